"""Who hears of an event is decided when it is emitted, by the store, whatever clocks say and workers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.base import clock
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.stores import forkserver
from tests.worker.listeners import hears, told
from tests.workers import Scene, until

__all__ = ["forkserver"]

pytestmark = pytest.mark.postgres

HOUR_S = 3600


@pytest.fixture
def scene(tmp_path: Path, forkserver: ForkServer) -> Iterator[Scene]:
    settings = {"sweep_s": 0.1}
    with Scene(tmp_path / "place", forkserver, agents="tests.worker.listeners", settings=settings) as scene:
        yield scene
    clock.reset()


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Any]:
    """A transaction of the user's own, committed in the end."""
    if not url.startswith("postgres"):
        mine = apsw.Connection(url)
        mine.set_busy_timeout(60_000)
        with mine:
            yield mine
        mine.close()
        return
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        yield connection
    await connection.close()


async def heard(app: hf.Holdfast) -> list[object]:
    """What the runs of the trigger were given, oldest first."""
    return [await app.get(run.id).result() for run in reversed(await app.runs(agent="told"))]


async def emitted(app: hf.Holdfast, url: str, value: int) -> str:
    """Emit an event that only a worker can deliver."""
    async with transaction(url) as mine:
        return await app.emit("happened", value, transaction=mine)


def test_a_pause_decides_about_events_that_are_emitted_after_it_and_not_before(scene: Scene) -> None:
    async def main() -> None:
        async with scene.client() as app:
            await app.on("happened", told, name="t")
            await emitted(app, scene.url, 1)
            await app.pause_trigger("t")
            await emitted(app, scene.url, 2)
            with scene.working():
                await eventually(lambda: app.runs(agent="told"))
            await app.resume_trigger("t")
            await emitted(app, scene.url, 3)
            await app.pause_trigger("t")
            await app.resume_trigger("t")
            with scene.working():
                await eventually(lambda: has_runs(app, 2))
                assert await heard(app) == [1, 3]

    asyncio.run(main())


async def has_runs(app: hf.Holdfast, count: int) -> bool:
    return len(await app.runs(agent="told")) >= count


def test_a_trigger_that_is_declared_anew_does_not_hear_what_was_emitted_for_the_one_before(scene: Scene) -> None:
    async def main() -> None:
        async with scene.client() as app:
            await app.on("happened", told, name="t")
            await emitted(app, scene.url, 1)
            await app.remove_trigger("t")
            await emitted(app, scene.url, 2)
            await app.on("happened", told, name="t")
            await emitted(app, scene.url, 3)
            await app.on("other", told, name="t")
            await app.on("happened", told, name="t")
            await emitted(app, scene.url, 4)
            with scene.working():
                await eventually(lambda: app.runs(agent="told"))
                assert await heard(app) == [4]

    asyncio.run(main())


def test_a_clock_that_was_put_back_keeps_no_event_from_triggers_and_runs(scene: Scene) -> None:
    async def main() -> None:
        clock.shift_us(HOUR_S * 1_000_000)
        async with scene.client() as app:
            await app.on("happened", told, name="t")
        with scene.working(shift_s=HOUR_S):
            async with scene.client() as app:
                run = await app.start(hears(3), id="hears")
                await until(run, "waiting")
        clock.reset()
        async with scene.client() as app:
            await app.emit("happened", 1)
            await emitted(app, scene.url, 2)
            with scene.working():
                assert await eventually(lambda: has_runs(app, 2))
                await app.emit("happened", 3)
                # The worker may be in the middle of telling of the second one when the third comes by another way.
                assert sorted(await app.get("hears").result(60)) == [1, 2, 3]
                assert sorted(await heard(app)) == [1, 2, 3]  # type: ignore[type-var]

    asyncio.run(main())


def test_an_event_is_no_signal_for_the_runs_that_it_starts_however_far_ahead_their_clocks_are(scene: Scene) -> None:
    async def main() -> None:
        clock.shift_us(400 * 24 * HOUR_S * 1_000_000)
        with scene.working(shift_s=400 * 24 * HOUR_S):
            async with scene.client() as app:
                await until(await app.start(hears(2), id="ahead"), "waiting")
        clock.reset()
        async with scene.client() as app:
            await app.on("happened", hears, name="t")
            first = await emitted(app, scene.url, 1)
            with scene.working():
                started = await eventually(lambda: find(app, f"t:{first}"))
                await until(started, "waiting")
                await app.emit("happened", 2)
                assert await started.result(60) == [2]
                assert await app.get("ahead").result(60) == [1, 2]

    asyncio.run(main())


async def find(app: hf.Holdfast, run_id: str) -> hf.Run[Any] | None:
    try:
        return await app.find(run_id)
    except hf.RunNotFound:
        return None
