"""Whatever comes from outside, each piece becomes one run or is set aside, and what comes behind it is not held up."""

from __future__ import annotations

import asyncio
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.model import FINAL, RunFilter, Status
from tests.eventually import eventually
from tests.hostile import BODIES, FILE_NAMES, TEXTS
from tests.worker.inboxes import fast, inbox_of, reads
from tests.worker.logged import logged
from tests.worker.nats_server import Server, server
from tests.worker.takers import shows

__all__ = ["server"]

SETTINGS = hf.Settings(sweep_s=0.05)
GOOD = "the good one"
STORES = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return str(tmp_path / "runs.db") if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))


async def ended(app: hf.Holdfast, trigger: str, count: int) -> tuple[list[str], int]:
    """Wait until so many pieces are runs that are over, or set aside: what the runs gave, and how many are aside."""

    async def all_over() -> bool:
        (info,) = [each for each in await app.triggers() if each.name == trigger]
        runs = [each for each in await app.runs(limit=1_000) if each.id.startswith(f"{trigger}:")]
        return info.started + info.refused == count == len(runs) + info.refused and all(r.status in FINAL for r in runs)

    await eventually(all_over, timeout=100)
    runs = [each for each in await app.runs(limit=1_000) if each.id.startswith(f"{trigger}:")]
    assert {each.status for each in runs} == {Status.done}
    return [str(await app.get(each.id).result()) for each in runs], count - len(runs)


def is_text(text: str) -> bool:
    """Or has it half of a character, which no encoding has?"""
    return not any(unicodedata.category(each) == "Cs" for each in text)


@STORES
def test_messages(url: str, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        await server.publish(*BODIES.values(), json.dumps(GOOD).encode())
        async with hf.connect(url, agents=[shows], settings=SETTINGS) as app:
            with logged():
                await app.on(server.queue(ack_wait=30.0), shows, name="t")
                results, aside = await ended(app, "t", len(BODIES) + 1)
                await eventually(server.is_all_acknowledged)
            assert any(GOOD in each for each in results)
            lone = {json.dumps(text).encode() for text in TEXTS.values() if not is_text(text)}
            assert {each.data for each in await app.refused_starts("t")} == lone
            assert aside == len(lone) > 0

    asyncio.run(main())


@STORES
def test_keys_that_are_taken_from_messages(url: str, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        bodies = [json.dumps({"customer": text}).encode() for text in TEXTS.values()]
        await server.publish(*bodies, json.dumps({"customer": GOOD}).encode())
        async with hf.connect(url, agents=[shows], settings=SETTINGS) as app:
            with logged():
                await app.on(server.queue(ack_wait=30.0), shows, name="t", queue_key="{data.customer}")
                await ended(app, "t", len(bodies) + 1)
                await eventually(server.is_all_acknowledged)
            keys = {each.queue_key for each in await app._store.runs(RunFilter(limit=1_000))}
            assert GOOD in keys
            assert keys <= {*TEXTS.values(), GOOD}

    asyncio.run(main())


@STORES
def test_names_and_contents_of_files(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with hf.connect(url, agents=[reads], settings=SETTINGS) as app:
            with logged():
                await app.on(fast(f"{inbox}/*"), reads, name="t")
                names = {os.fsencode(text) for text in FILE_NAMES.values()} | {b"no utf-8 \xff", b"line\nbreak"}
                hidden = {name for name in names if name.startswith(b".")}  # as a shell has it
                for number, name in enumerate(sorted(names)):
                    body = list(BODIES.values())[number % len(BODIES)]
                    Path(os.fsdecode(os.path.join(os.fsencode(inbox), name))).write_bytes(body)
                (inbox / "good.txt").write_text(GOOD)
                results, aside = await ended(app, "t", len(names - hidden) + 1)
            assert aside == sum(b"\xff" in name for name in names) > 0
            assert any("good.txt" in each for each in results)

    asyncio.run(main())


@STORES
@pytest.mark.parametrize("form", [lambda text: text, lambda text: {text: [text]}], ids=["text", "key"])
def test_values_of_events(url: str, form: Callable[[str], object]) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=[shows], settings=SETTINGS) as app:
            with logged():
                await app.on("e", shows, name="t")
                texts = [*TEXTS.values(), GOOD]
                for text in texts:
                    await app.emit("e", form(text))
                results, aside = await ended(app, "t", len(texts))
            assert aside == 0
            assert sorted(results) == sorted(repr(form(text)) for text in texts)

    asyncio.run(main())


@STORES
def test_names_of_events(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=[shows], settings=SETTINGS) as app:
            with logged():
                await app.on(GOOD, shows, name="t")
                said = []
                for text in TEXTS.values():
                    try:
                        await app.on(text, shows, name="any")
                        await app.emit(text, 1)
                        await app.remove_trigger("any")
                    except HoldfastError as error:
                        said.append(str(error))
                await app.emit(GOOD, 2)
                results, _ = await ended(app, "t", 1)
            assert results == ["2"]
            assert said
            assert all(each.isprintable() for each in said)

    asyncio.run(main())
