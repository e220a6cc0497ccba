"""A clock that was ahead for a moment: what it has written is not believed, and by it nothing is claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.automation.schedules import timetable
from holdfast.automation.schedules.schedules import Schedules
from holdfast.base import clock
from holdfast.worker import queue_state
from holdfast.worker.jumps import Jumps
from holdfast.worker.queue_state import QueueState
from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer
from tests.stores import forkserver
from tests.worker import jumping
from tests.worker.jumping import DAY_US

__all__ = ["forkserver"]

pytestmark = pytest.mark.postgres

EACH_SECOND = "* * * * * *"
FAR = 400


@pytest.fixture(autouse=True)
def clock_of_the_test() -> Iterator[None]:
    yield
    clock.reset()


class Scene:
    """A store, and a worker whose clock can be set."""

    def __init__(self, forkserver: ForkServer, folder: Path) -> None:
        self.folder = folder
        self.url = forkserver.store_url(folder)
        self.log = folder / "log.txt"
        self._forkserver = forkserver
        self.set(0)

    def set(self, days: int) -> None:
        new = self.folder / "days.new"
        new.write_text(str(days))
        new.rename(self.folder / "days")

    def worker(self, *, days: int = 0, fault: str = "") -> Forked:
        """`days`: its clock is ahead from the start."""
        env = {"HOLDFAST_TEST_FOLDER": str(self.folder)}
        if days:
            env["HOLDFAST_TEST_CLOCK_SHIFT_S"] = str(days * 86_400)
        return self._forkserver.start(
            jumping.work, log=self.log, env=env, fault=fault, url=self.url, folder=str(self.folder)
        )

    def count(self, name: str) -> int:
        path = self.folder / name
        return len(path.read_text()) if path.exists() else 0

    async def said(self, what: str, times: int = 1) -> None:
        await eventually(lambda: self.log.read_text().count(what) >= times)

    async def more(self, name: str, count: int = 2) -> None:
        before = self.count(name)
        await eventually(lambda: self.count(name) >= before + count)


@pytest.fixture
def scene(forkserver: ForkServer, tmp_path: Path) -> Scene:
    return Scene(forkserver, tmp_path)


async def each_second(app: hf.Holdfast, **changes: Any) -> None:
    await app.schedule("s", jumping.ticks(), **{"cron": EACH_SECOND, "overlap": "allow"} | changes)


# under a live worker


@pytest.mark.parametrize("days", [FAR, -FAR])
def test_by_a_clock_that_jumps_nothing_is_claimed_and_all_goes_on_when_it_is_put_right(scene: Scene, days: int) -> None:
    async def main() -> None:
        async with hf.connect(scene.url) as app:
            worker = scene.worker()
            try:
                await each_second(app)
                await app.queue("rated", rate=(2, 1))
                sleeper = await app.start(jumping.naps())
                await scene.more("ticks")
                await eventually(lambda: _is(sleeper, "sleeping"))
                for turn in (1, 2):
                    scene.set(days)
                    await scene.said("clock.jumped", turn)
                    runs = [await app.start(jumping.rated()) for _ in range(4)]
                    scene.set(0)
                    await scene.said("clock.put_right", turn)
                    await scene.more("ticks")
                    for run in runs:
                        await run.result(timeout=60)
                assert await sleeper.status() == "sleeping"
                instants = [run.id.split(":")[2] for run in await app.runs(limit=1000) if run.id.startswith("s:")]
                today = {timetable.stamp(clock.now_us() + day * DAY_US)[:8] for day in (-1, 0, 1)}
                assert {instant[:8] for instant in instants} <= today
                assert len(set(instants)) == len(instants)
            finally:
                worker.kill()

    asyncio.run(main())


async def _is(run: hf.Run[Any], status: str) -> bool:
    return (await run.status()).value == status


def test_a_clock_that_stays_where_it_was_set_is_believed() -> None:
    jumps = Jumps(settle_us=0)
    assert jumps.is_steady()
    clock.jump_us(FAR * DAY_US)
    assert jumps.is_steady()
    patient = Jumps()
    assert patient.is_steady()
    clock.jump_us(-FAR * DAY_US)
    assert not patient.is_steady()
    clock.jump_us(FAR * DAY_US - 1_000_000)  # put right, but for a second
    assert patient.is_steady()
    clock.jump_us(-1_000_000_000)  # less than an hour
    assert patient.is_steady()


def test_the_clock_of_a_test_is_no_jump() -> None:
    jumps = Jumps()
    clock.shift_us(FAR * DAY_US)
    assert jumps.is_steady()
    clock.freeze(clock.now_us() + FAR * DAY_US)
    assert jumps.is_steady()


# what was written


def test_what_a_worker_wrote_whose_clock_was_ahead_from_its_start_is_put_right_by_the_next(scene: Scene) -> None:
    """Killed with its schedule claimed and its permits taken."""

    async def main() -> None:
        async with hf.connect(scene.url) as app:
            await each_second(app)
            await app.queue("rated", rate=(1, 1))
            first = await app.start(jumping.rated())
            wrong = scene.worker(days=FAR, fault="schedule.before_start:kill@2")
            await first.result(timeout=60)
            await wrong.wait_dead()
            (state,) = await app.schedules()
            assert state.last_at is not None
            assert state.last_at.timestamp() > clock.now_us() / 1e6 + (FAR - 1) * 86_400
            right = scene.worker()
            try:
                await scene.more("ticks")
                for run in [await app.start(jumping.rated()) for _ in range(2)]:
                    await run.result(timeout=60)
                await scene.said("schedule.ahead schedule=s")
                await scene.said("queue.ahead queue=rated")
                assert scene.log.read_text().count("schedule.ahead") == 1
            finally:
                right.kill()

    asyncio.run(main())


def test_a_run_that_was_started_by_a_clock_that_was_ahead_is_taken_up(scene: Scene) -> None:
    async def main() -> None:
        async with hf.connect(scene.url) as app:
            clock.shift_us(FAR * DAY_US)
            run = await app.start(jumping.ticks(), queue="q")
            later = await app.start(jumping.ticks(), queue="q", delay=86_400)
            clock.reset()
            worker = scene.worker()
            try:
                await run.result(timeout=60)
                await scene.said(f"run.ahead run={run.id}")
                assert await later.status() == "queued"
            finally:
                worker.kill()

    asyncio.run(main())


ACTS: list[Callable[[hf.Holdfast], Any]] = [
    lambda app: each_second(app),
    lambda app: each_second(app, cron="*/2 * * * * *"),
    lambda app: each_second(app, missed="skip"),
    lambda app: app.resume_schedule("s"),
]


@pytest.mark.parametrize("act", ACTS, ids=["declared again", "another cron", "changed", "resumed"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_whoever_acts_on_a_schedule_that_is_ahead_puts_it_right(
    scene: Scene, act: Callable[[hf.Holdfast], Any], is_paused: bool
) -> None:
    async def main() -> None:
        async with hf.connect(scene.url) as app:
            clock.shift_us(FAR * DAY_US)
            await each_second(app)
            clock.shift_us(2_000_000)
            await app._parts.schedules.fire_due(clock.now_us())
            if is_paused:
                await app.pause_schedule("s")
            clock.reset()
            await act(app)
            await app.resume_schedule("s")
            (state,) = await app.schedules()
            assert state.next_fires[0].timestamp() < clock.now_us() / 1e6 + 5
            assert state.updated_at.timestamp() <= clock.now_us() / 1e6
            await eventually(lambda: app._parts.schedules.fire_due(clock.now_us()))

    asyncio.run(main())


def test_a_queue_that_is_declared_resumed_or_held_again_is_put_right(scene: Scene) -> None:
    async def main() -> None:
        async with hf.connect(scene.url) as app:
            own = app._here.queues
            await app.queue("q", rate=(3, 60))
            clock.shift_us(FAR * DAY_US)
            assert await own.reserve({"q": 3}, clock.now_us()) == {"q": 3}
            await own.hold("q", clock.now_us() + 1_000_000)
            clock.reset()
            (info,) = await app.queues()
            assert info.held_until is None
            await app.queue("q", rate=(3, 60))
            (stored,) = await app._store.definitions(queue_state.KIND)
            assert abs(queue_state.from_definition(stored).allowance_at - clock.now_us()) < 3_600_000_000
            assert await own.reserve({"q": 5}, clock.now_us()) == {"q": 3}
            assert await own.reserve({"q": 5}, clock.now_us()) == {"q": 0}

    asyncio.run(main())


def test_times_that_are_a_little_ahead_are_believed() -> None:
    """Clocks of machines differ."""
    now = clock.now_us()
    near = QueueState("q", rate=(5, 60.0), allowance=0.0, allowance_at=now + 1_800_000_000, held_at=now + 1_800_000_000)
    assert queue_state.believed(near, now) == near
    assert queue_state.believed(near, now - 3_600_000_000).allowance == 5.0


@pytest.mark.sqlite_alone("there the clock of the store is that of the process")
def test_the_schedule_goes_on_from_now_and_keeps_what_it_is(forkserver: ForkServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(forkserver.store_url(tmp_path)) as app:
            clock.shift_us(FAR * DAY_US)
            await each_second(app, missed=5)
            clock.reset()
            schedules: Schedules = app._parts.schedules
            await schedules.put_right(clock.now_us())
            (state,) = await app.schedules()
            assert (state.generation, state.missed, state.last_at) == (1, 5, None)
            await schedules.put_right(clock.now_us())
            (stored,) = await app._store.definitions("schedule")
            assert stored.revision == 2

    asyncio.run(main())
