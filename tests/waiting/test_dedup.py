"""Dedup ids: the same again is known, something else under the same id is refused and never dropped in silence."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.model import RunId
from tests.eventually import eventually
from tests.workers import until

value = hf.Signal("value", Any)
other = hf.Signal("other", Any)


@hf.agent(signals=[value, other])
async def takes(count: int) -> list[Any]:
    return [await hf.receive(value) for _ in range(count)]


@hf.agent
async def sends(to: str) -> list[str]:
    run, said = hf.get(to), []
    for act in (
        run.send(value, {"a": 1, "b": 2}, dedup="x"),
        run.send(value, {"b": 2, "a": 1}, dedup="x"),
        run.send(value, 3, dedup="x"),
        hf.emit("happened", 1, dedup="e"),
        hf.emit("happened", 1, dedup="e"),
        hf.emit("happened", 2, dedup="e"),
    ):
        try:
            said.append(str(await act)[:4])
        except hf.ConflictingSend as error:
            said.append(type(error).__name__)
    await hf.receive(("go", bool))
    return said


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


def test_another_value_under_a_known_id_is_refused_and_the_same_one_is_known(url: str) -> None:
    async def go() -> None:
        async with hf.connect(url, agents=[takes]) as app, hf.connect(url) as client:
            run = await app.start(takes(3), id="r")
            for who in (app, client):
                mine = who.get("r")
                assert await mine.send(value, {"a": 1, "b": [True]}, dedup="x") is (who is app)
                assert await mine.send(value, {"b": [True], "a": 1}, dedup="x", by="somebody else") is False
                for name, wrong in ((value, {"a": 1}), (value, {"a": 1, "b": [1]}), (other, {"a": 1, "b": [True]})):
                    with pytest.raises(hf.ConflictingSend, match="dedup='x'"):
                        await mine.send(name, wrong, dedup="x")
            for bad in ("", "hf:cancel:1", 7):
                with pytest.raises(hf.UsageError, match="dedup="):
                    await run.send(value, 1, dedup=bad)  # type: ignore[arg-type]
            await run.send(value, 2)
            await run.send(value, 2)
            assert await run.result(timeout=30) == [{"a": 1, "b": [True]}, 2, 2]
            assert await run.send(value, {"a": 1, "b": [True]}, dedup="x") is False
            with pytest.raises(hf.ConflictingSend):
                await run.send(value, 1, dedup="x")
            await app.prune(older_than=timedelta(0))
            assert await run.send(value, 1, dedup="x") is False, "what was said is not known any more"

    asyncio.run(go())


def test_an_event_with_a_known_id_says_the_same_or_is_refused(url: str) -> None:
    async def go() -> None:
        async with hf.connect(url, agents=[takes]) as app, hf.connect(url) as client:
            first = await app.emit("happened", {"a": 1, "b": 2}, dedup="e")
            assert await client.emit("happened", {"b": 2, "a": 1}, dedup="e") == first
            for who in (app, client):
                with pytest.raises(hf.ConflictingSend, match="dedup='e'"):
                    await who.emit("happened", {"a": 1}, dedup="e")
            assert await app.emit("another", {"a": 1}, dedup="e") != first

    asyncio.run(go())


def test_inside_a_run_it_is_refused_as_well_and_a_replay_is_told_the_same(url: str) -> None:
    async def go() -> None:
        async with hf.connect(url, agents=[takes, sends]) as app:
            target = await app.start(takes(1), id="target")
            run = await app.start(sends("target"), id="r")
            assert await target.result(timeout=30) == [{"a": 1, "b": 2}]
            await until(run, "waiting")
        async with hf.connect(url, agents=[takes, sends]) as app:
            run = app.get("r")
            await run.send("go", True)
            said = await run.result(timeout=30)
            assert said == ["True", "Fals", "ConflictingSend", said[3], said[3], "ConflictingSend"]
            assert len(await app._store.mail(RunId("target"), after=0)) == 1

    asyncio.run(go())


def test_a_transaction_that_sends_or_emits_something_else_is_told_or_the_log_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An event is compared at once. A signal is compared when it is delivered: its sender has gone on by then."""
    url = str(tmp_path / "s.db")

    async def go() -> None:
        async with hf.connect(url, agents=[takes], settings=hf.Settings(sweep_s=0.05)) as app:
            run = await app.start(takes(2), id="r")
            await run.send(value, 1, dedup="x")
            await app.emit("happened", 1, dedup="e")
            mine = apsw.Connection(url)
            mine.set_busy_timeout(30_000)
            mine.execute("BEGIN IMMEDIATE")
            await run.send(value, 1, dedup="x", transaction=mine)
            await run.send(value, 2, dedup="x", transaction=mine)
            await app.emit("happened", 1, dedup="e", transaction=mine)
            with pytest.raises(hf.ConflictingSend, match="dedup='e'"):
                await app.emit("happened", 2, dedup="e", transaction=mine)
            with pytest.raises(hf.UsageError, match="dedup="):
                await run.send(value, 2, dedup="", transaction=mine)
            mine.execute("COMMIT")
            mine.close()
            refused = await eventually(lambda: [r for r in caplog.messages if "outbox.refused" in r])
            assert len(refused) == 1
            await run.send(value, 3)
            assert await run.result(timeout=30) == [1, 3]

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())


def test_a_signal_cannot_keep_a_run_from_being_cancelled(tmp_path: Path) -> None:
    """What Holdfast sends by itself has ids of its own."""

    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[takes]) as app:
            run = await app.start(takes(100), id="r")
            for epoch in range(5):
                await run.send(value, 1, dedup=f"cancel:{epoch}")
            assert await run.cancel(timeout=60) is hf.Status.cancelled
            await until(run, "cancelled")

    asyncio.run(go())
