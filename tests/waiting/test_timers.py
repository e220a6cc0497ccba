"""Sleeps and timeouts: absolute due times, once, also after a crash and after a long time without any worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base.clock import now_us
from holdfast.model import Kind, Record
from holdfast.testing import Clock
from tests.forkserver import ForkServer
from tests.runs.journal import records_of
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene, others_are_done
from tests.workers import noted, until

Sleep = Callable[[datetime], dict[str, Any]]

FORMS: dict[str, tuple[Sleep, timedelta]] = {
    "seconds": (lambda _: {"seconds": 90}, timedelta(seconds=90)),
    "a part of a second": (lambda _: {"seconds": 0.25}, timedelta(seconds=0.25)),
    "minutes": (lambda _: {"minutes": 1.5}, timedelta(seconds=90)),
    "hours": (lambda _: {"hours": 30}, timedelta(hours=30)),
    "days": (lambda _: {"days": 400}, timedelta(days=400)),
    "all of them": (
        lambda _: {"seconds": 1, "minutes": 1, "hours": 1, "days": 1},
        timedelta(days=1, hours=1, minutes=1, seconds=1),
    ),
    "until": (lambda now: {"until": now + timedelta(hours=5)}, timedelta(hours=5)),
    "until, in another time zone": (
        lambda now: {"until": (now + timedelta(hours=5)).astimezone(timezone(timedelta(hours=-9)))},
        timedelta(hours=5),
    ),
    "nothing": (lambda _: {}, timedelta(0)),
    "a time that has passed": (lambda now: {"until": now - timedelta(days=5)}, timedelta(0)),
    "less than nothing": (lambda _: {"seconds": -5}, timedelta(0)),
}

BAD: dict[str, dict[str, Any]] = {
    "for ever": {"seconds": float("inf")},
    "not a number": {"seconds": float("nan")},
    "too long": {"days": 40_000},
    "without a time zone": {"until": datetime(2030, 1, 1)},
    "a length and a time": {"seconds": 1, "until": datetime(2030, 1, 1, tzinfo=UTC)},
}


def micros(at: datetime) -> int:
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def record_of(records: list[Record], kind: Kind, name: str) -> Record:
    return next(r for r in records if r.kind == kind and r.name == name)


@pytest.mark.parametrize("form", FORMS)
def test_a_sleep_ends_when_its_time_has_come_and_not_before(form: str, tmp_path: Path) -> None:
    arguments, length = FORMS[form]

    @hf.agent
    async def sleeps() -> float:
        began = hf.now()
        await hf.sleep(**arguments(began))
        return (hf.now() - began) / timedelta(seconds=1)

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[sleeps]) as app, Clock(app) as clock:
            run = await app.start(sleeps())
            if length:
                await clock.skip(seconds=length.total_seconds() - 0.001)
                assert await run.status() in ("sleeping", "running")
            await clock.skip(seconds=0.001)
            assert await run.result(timeout=60) == pytest.approx(length.total_seconds())

    asyncio.run(run())


@pytest.mark.parametrize("form", BAD)
def test_a_sleep_that_makes_no_sense_is_refused_to_the_code(form: str, tmp_path: Path) -> None:
    @hf.agent
    async def sleeps() -> str:
        try:
            await hf.sleep(**BAD[form])
        except hf.UsageError as error:
            return str(error)
        return "slept"

    async def run() -> str:
        async with hf.connect(str(tmp_path / "s.db"), agents=[sleeps]) as app:
            return await (await app.start(sleeps())).result(timeout=60)

    assert "hf.sleep(" in asyncio.run(run())


def test_outside_of_a_run_and_inside_a_body_it_is_an_ordinary_sleep(tmp_path: Path) -> None:
    @hf.step
    async def body() -> None:
        await hf.sleep(0.01)

    @hf.agent
    async def agent() -> None:
        await body()

    async def run() -> list[str]:
        began = time.monotonic()
        await hf.sleep(0.02)
        assert time.monotonic() - began >= 0.02
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            await run.result(timeout=60)
            return [item.name for item in await run.history()]

    assert not any("sleep" in name for name in asyncio.run(run()))


def test_after_kill_9_in_the_middle_only_the_rest_is_slept(scene: Scene) -> None:
    """Half an hour later another process takes it up."""

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.nap(3600), id="r")
            with scene.working():
                await until(run, "sleeping")
            await run.pause()
            await run.send("nothing", 1)
            await run.resume()  # somebody takes it up, because of its mail, and dies
            assert await scene.worker(fault="park.before:kill@1").wait_dead() == -9
            assert await run.status() == "running"
            with scene.working(shift_s=1800):
                await until(run, "sleeping")
            began = record_of(await app._store.records(run.id), Kind.started, "hf:sleep").at
            row = await app._store.run(run.id)
            assert row is not None
            assert row.wake_at is not None
            assert abs(row.wake_at - began - 3600e6) < 900e6, "a sleep that began anew would end at 5400 s"
            with scene.working(shift_s=3600):
                assert await run.result(timeout=60) == "awake"
            ended = record_of(await app._store.records(run.id), Kind.done, "hf:sleep").at
            assert ended >= row.wake_at
            assert scene.done() == [1, 2]

    asyncio.run(run())


def test_what_was_recorded_as_due_does_not_move_however_often_the_run_is_taken_up(scene: Scene) -> None:

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.nap(3600), id="r")
            dues = set()
            for _ in range(3):
                with scene.working():
                    await until(run, "sleeping")
                    row = await app._store.run(run.id)
                    assert row is not None
                    dues.add(row.wake_at)
                    await run.pause()  # parked: pausing, resuming with mail in between, and being taken up anew
                    await run.send("nothing", 1)
                    await run.resume()
                    async with asyncio.timeout(60):
                        while (await run.info()).epoch < row.epoch + 3:
                            await until(run, "sleeping")
                    await until(run, "sleeping")
            assert len(dues) == 1
            row = await app._store.run(run.id)
            assert row is not None
            assert row.wake_at in dues

    asyncio.run(run())


def test_what_became_due_while_nobody_worked_happens_once(scene: Scene) -> None:

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.nap(7200), id="r")
            with scene.working():
                await until(run, "sleeping")
            for _ in range(2):  # two workers, and both find it due
                scene.worker(shift_s=3 * 3600)
            assert await run.result(timeout=60) == "awake"
            records = await app._store.records(run.id)
            late = (
                record_of(records, Kind.done, "hf:sleep").at - record_of(records, Kind.started, "hf:sleep").at - 7.2e9
            )
            assert 3600e6 - 60e6 < late < 3600e6 + 60e6, "how late it was can be read from the journal"
            assert scene.done() == [1, 2]

    asyncio.run(run())


def test_a_worker_whose_clock_is_behind_does_not_wake_it_early(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.nap(3600), id="r")
            with scene.working():
                await until(run, "sleeping")
            with scene.working(shift_s=-7200):
                await others_are_done(app)
                assert await run.status() == "sleeping"
            with scene.working(shift_s=3601):
                assert await run.result(timeout=60) == "awake"

    asyncio.run(run())


#: Around the commit that decides.
DECISIONS = ("append.before_commit@2", "append.after_commit@2")


@pytest.mark.parametrize("what", ["receive", "sleep", "step", "ask"])
def test_a_timeout_that_was_decided_stays_decided(what: str, tmp_path: Path, forkserver: ForkServer) -> None:
    """Killed between the decision and its outcome, before it and after it."""

    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.impatient(what), id="r")
        result = await run.result(timeout=60)
        questions = await run.questions(only_open=False)  # none, if the time was over before it was stored
        return result, scene.done("post"), all(q.state == "withdrawn" for q in questions)

    lives = live(tmp_path, forkserver, drive, only=DECISIONS)
    assert lives.end[0] == "late"
    assert lives.killed_at, "nobody was killed"


@hf.agent
async def just_in_time() -> str:
    async with hf.timeout(60) as limit:
        limit._due()  # its time has come while the block ends
    await hf.sleep(seconds=0)
    return "in time"


def test_a_timeout_whose_block_has_ended_is_not_decided_any_more(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    assert hf.run(just_in_time(), id="r", url=url) == "in time"
    kinds = [r.kind for r in records_of(url, "r") if r.name == "hf.timeout"]
    assert kinds[-1] == Kind.done
    assert Kind.decided not in kinds


def test_a_wait_that_expired_stays_expired(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.expecting(), id="r")
        return await run.result(timeout=60), scene.done("post")

    lives = live(tmp_path, forkserver, drive, only=(*DECISIONS, "question.before_commit@2", "question.after_commit@2"))
    assert lives.end == ("receive ask", [2])
    assert lives.killed_at, "nobody was killed"


@pytest.mark.prove
@pytest.mark.parametrize("what", ["receive", "sleep", "step", "ask", "own"])
def test_timeouts_survive_every_crash_point(what: str, tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.expecting() if what == "own" else agents.impatient(what), id="r")
        return await run.result(timeout=60), scene.done("post")

    print(live(tmp_path, forkserver, drive))


def test_nothing_expires_while_a_run_is_paused(tmp_path: Path) -> None:
    @hf.agent
    async def sleeps() -> str:
        await hf.sleep(hours=1)
        return "awake"

    @hf.agent
    async def receives() -> str:
        try:
            return await hf.receive(("word", str), timeout=3600)
        except TimeoutError:
            return "too late"

    @hf.agent
    async def limited() -> str:
        try:
            async with hf.timeout(3600):
                return await hf.receive(("word", str))
        except TimeoutError:
            return "too late"

    @hf.agent
    async def asks() -> str:
        try:
            return str(await hf.ask("Well?", timeout=3600))
        except TimeoutError:
            return "too late"

    all_agents = [sleeps, receives, limited, asks]

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=all_agents) as app, Clock(app) as clock:
            runs = [await app.start(agent()) for agent in all_agents]
            await clock.settle()
            for run in runs:
                assert await run.pause() == "paused"
            await clock.skip(hours=5)
            assert {await run.status() for run in runs} == {"paused"}
            assert [q.state for q in await app.questions()] == ["open"]
            for run in runs:
                await run.resume()
            await clock.skip(seconds=1)
            results = [await run.result(timeout=60) for run in runs]
            assert results == ["awake", "too late", "too late", "too late"]

    asyncio.run(run())


def test_the_time_limit_of_a_whole_run_holds_while_it_waits(tmp_path: Path) -> None:
    @hf.agent(timeout=timedelta(hours=1))
    async def limited() -> str:
        return await hf.receive(("word", str))

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[limited]) as app, Clock(app) as clock:
            run = await app.start(limited())
            await clock.skip(minutes=59)
            assert await run.status() == "waiting"
            await clock.skip(minutes=2)
            with pytest.raises(hf.RunFailed, match="expired"):
                await run.result(timeout=60)

    asyncio.run(run())


def test_a_timeout_does_not_cut_off_the_body_that_a_pause_waits_for(tmp_path: Path) -> None:
    ended = asyncio.Event()

    @hf.step
    async def body() -> str:
        await ended.wait()
        return "whole"

    @hf.agent
    async def agent() -> str:
        try:
            async with hf.timeout(3600):
                return await body()
        except TimeoutError:
            return "cut off"

    @hf.agent
    async def other() -> None:
        await hf.sleep(3700)

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent, other]) as app, Clock(app, frozen=False) as clock:
            run = await app.start(agent())
            later = await app.start(other())
            await until(run, "running")
            await until(later, "sleeping")
            await run.pause()
            await noted(run, "paused")
            wall_before = now_us()
            hf_clock_skip(2 * 3600)
            assert now_us() - wall_before >= 7200e6
            await later.result(timeout=60)  # what is due later has happened
            ended.set()
            await run.resume()
            assert await run.result(timeout=60) == "whole"
            del clock

    def hf_clock_skip(seconds: int) -> None:
        from holdfast.base import clock as wall

        wall.shift_us(seconds * 1_000_000)

    asyncio.run(run())
