"""Who writes to a stream is killed, stopped, or has no space: readers get each event once, and the text that counts."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.history.streams import events
from holdfast.model import RunId, StreamEventKind
from holdfast.store import open_store
from holdfast.testing import Life, assert_survives, check_history
from holdfast.testing.reading import in_own_loop
from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer
from tests.ownership.scene import Scene
from tests.stores import forkserver
from tests.streams import agents
from tests.streams.agents import GATES, text_of
from tests.workers import seen, until

__all__ = ["forkserver"]


def stored(url: str, run_id: str, name: str) -> list[hf.StreamEvent]:
    async def look() -> list[hf.StreamEvent]:
        store = open_store(url, settings=Settings())
        await store.open(read_only=True)
        try:
            return [event async for event in events(store, RunId(run_id), name, offset=0)]
        finally:
            await store.close()

    found: list[hf.StreamEvent] = in_own_loop(look)
    return found


def what_counts_is_the_result(life: Life) -> None:
    """Numbers, resets and ends are looked at by `check_history`."""
    for name, text in zip(("output", "thread", "published"), life.result, strict=True):
        found = stored(life.url, life.run_id, name)
        assert text_of(found) == text, (name, found)
        assert found[-1].kind == "end"


def test_a_writer_killed_at_every_point_leaves_the_text_that_counts() -> None:
    points = ["stream.*@2", "effect.after_body", "append.after_commit@4"]
    survival = assert_survives(agents.all_sorts(2), points=points, check=what_counts_is_the_result)
    print(survival)
    assert {"stream.before_append", "stream.before_reset"} <= survival.killed_at


@pytest.mark.prove
def test_a_writer_killed_on_postgresql_leaves_the_text_that_counts(postgres_url: str) -> None:
    points = ["stream.before_append@2"]
    survival = assert_survives(agents.all_sorts(2), points=points, url=postgres_url, check=what_counts_is_the_result)
    print(survival)


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_a_writer_killed_anywhere_again_and_again(sort: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else None
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed}")
    print(
        assert_survives(agents.all_sorts(3), url=url, check=what_counts_is_the_result, rounds=60, seed=seed, timeout=60)
    )


class Streaming(Scene):
    """A scene whose agents write, and wait at gates."""

    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver)
        self._agents = agents.__name__
        self.env[GATES] = str(folder)

    def let(self, worker: Forked, gate: str) -> None:
        (self.folder / f"{gate}.{worker.pid}.open").touch()

    def stands_at(self, gate: str, worker: Forked) -> Callable[[], bool]:
        return (self.folder / f"{gate}.{worker.pid}").exists


@pytest.mark.postgres
def test_a_zombie_writes_nothing_that_anybody_reads(tmp_path: Path, forkserver: ForkServer) -> None:
    async def story(scene: Streaming) -> None:
        async with scene:
            run = await scene.app.start(agents.teller(20, 0.01, "gate", 10))
            old = scene.worker(lease_s=1.0)
            await eventually(scene.stands_at("gate", old))
            await eventually(lambda: _last_is(run, 10))
            await scene.stop(old)
            new = scene.worker()
            await eventually(scene.stands_at("gate", new))
            await eventually(lambda: _last_is(run, 12))  # the reset, and what it goes on from
            scene.let(old, "gate")
            old.go_on()
            await scene.lost(old, run)
            assert await _last_is(run, 12)
            scene.let(new, "gate")
            assert await until(run, "done") == "done"
            found = [event async for event in run.stream(offset=0)]
            assert [event.number for event in found] == list(range(1, 24))
            assert [event.kind for event in found].count(StreamEventKind.reset) == 1
            assert text_of(found) == "".join(f"{number} " for number in range(20))

    asyncio.run(story(Streaming(tmp_path, forkserver)))


async def _last_is(run: hf.Run[Any], number: int) -> bool:
    return await _last(run) == number


# readers


def readers_see_it_all(
    tmp_path: Path, forkserver: ForkServer, *, chunks: int, readers: int, processes: int, every_s: float
) -> None:
    """A writer that is killed twice, and readers that come and go at random offsets, in this process and others."""

    async def story(scene: Streaming) -> None:
        chance = random.Random(7)
        async with scene:
            run = await scene.app.start(agents.teller(chunks, every_s))
            at = {process: chance.randrange(chunks // 2) for process in range(processes)}
            outside = [
                forkserver.start(
                    agents.read_from,
                    log=scene.log,
                    url=scene.url,
                    run_id=run.id,
                    offset=offset,
                    path=str(scene.folder / f"{process}.json"),
                )
                for process, offset in at.items()
            ]

            async def read(offset: int) -> tuple[int, list[hf.StreamEvent]]:
                return offset, [event async for event in run.stream(offset=offset)]

            here = [asyncio.create_task(read(chance.randrange(chunks // 2))) for _ in range(readers - processes)]
            for kill in range(2):
                worker = scene.worker()
                await _reaches(run, chunks * (kill + 1) // 3)
                worker.kill()
            scene.worker()
            result = await run.result()
            whole = [event async for event in run.stream(offset=0)]
            assert text_of(whole) == result == "".join(f"{number} " for number in range(chunks))
            assert [event.number for event in whole] == list(range(1, len(whole) + 1))
            assert [event.kind for event in whole].count(StreamEventKind.reset) == 2
            for offset, found in await asyncio.gather(*here):
                assert found == whole[offset:]
            wanted_outside = [[event.number, event.kind, event.text, event.key, event.attempt] for event in whole]
            for process, reader in enumerate(outside):
                assert reader.wait(60) == 0, scene.log.read_text()
                got = json.loads((scene.folder / f"{process}.json").read_text())
                assert got == wanted_outside[at[process] :]

    asyncio.run(story(Streaming(tmp_path, forkserver)))


async def _reaches(run: hf.Run[Any], number: int) -> None:
    await seen(lambda: _last(run), lambda last: last > number, what=lambda last: f"its last event is {last}")


async def _last(run: hf.Run[Any]) -> int:
    row = await run._store.run(run.id)
    assert row is not None
    return int(row.summary.get("streams", {}).get("output", 0))


def test_readers_anywhere_see_each_event_once_while_the_writer_is_killed(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    readers_see_it_all(tmp_path, forkserver, chunks=300, readers=8, processes=2, every_s=0.003)


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_twenty_readers_see_each_of_ten_thousand_events(tmp_path: Path, forkserver: ForkServer) -> None:
    readers_see_it_all(tmp_path, forkserver, chunks=10_000, readers=20, processes=5, every_s=0.001)


# no space


def test_a_full_disk_loses_no_event_and_the_run_goes_on(tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "holdfast-test", str(mounted)], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted: {tried.stderr.decode().strip()}")
    try:
        asyncio.run(_fill(mounted))
        assert check_history(mounted / "r.db") == []
        shutil.copytree(mounted, tmp_path / "kept", ignore=shutil.ignore_patterns("ballast"))
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


@hf.step
async def noisy(path: str) -> str:
    """Write random text until there is no space for a while, and a little more."""
    out, text, chance = hf.stream(), "", random.Random(1)
    while not Path(path).exists():
        chunk = f"{chance.getrandbits(4000):x} "
        out.write(chunk)
        text += chunk
        await asyncio.sleep(0.002)
    return text


@hf.agent
async def noise(path: str) -> str:
    return await noisy(path)


async def _fill(mounted: Path) -> None:
    ballast, enough = mounted / "ballast", mounted / "enough"
    async with hf.connect(str(mounted / "r.db"), agents=[noise]) as app:
        run = await app.start(noise(str(enough)))
        free = os.statvfs(mounted)
        ballast.write_bytes(b"\0" * (free.f_bavail * free.f_frsize - 150_000))
        store = run._store
        await eventually(lambda: store.trouble is not None and "space" in store.trouble)
        reached = await _last(run)
        await asyncio.sleep(0.3)
        ballast.unlink()
        await eventually(lambda: store.trouble is None)

        async def goes_on() -> bool:
            return await _last(run) > reached + 20

        await eventually(goes_on)
        enough.touch()
        text = await run.result()
        found = [event async for event in run.stream(offset=0)]
        assert text_of(found) == text
        assert [event.number for event in found] == list(range(1, len(found) + 1))
