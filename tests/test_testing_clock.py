"""Time moved by a test: weeks pass in a moment, in order, and the same way each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.app import Holdfast
from holdfast.base import clock as wall
from holdfast.errors import UsageError
from holdfast.model import RunId
from holdfast.testing import Clock
from tests.workers import until

DAY_US = 86_400_000_000

#: What happened, and when, in hours since the test began.
seen: list[tuple[str, float]] = []
began = datetime.fromtimestamp(0, UTC)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    seen.clear()
    yield
    wall.reset()


def see(what: str) -> None:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=wall.now_us())
    seen.append((what, round((at - began) / timedelta(hours=1), 3)))


@hf.step
async def note(what: str) -> None:
    see(what)


@hf.agent
async def sleeper(name: str, hours: float, times: int = 2) -> str:
    for number in range(times):
        await hf.sleep(hours=hours)
        await note(f"{name}{number}")
    return name


approved = hf.Signal("approved", bool)


@hf.agent(signals=[approved])
async def patient() -> str:
    try:
        await hf.receive(approved, timeout=36 * 3600)
    except TimeoutError:
        await note("expired")
        return "expired"
    return "approved"


@hf.agent
async def asking() -> str:
    try:
        return "yes" if await hf.ask("Shall I?", timeout=timedelta(days=3)) else "no"
    except TimeoutError:
        await note("unanswered")
        return "unanswered"


@hf.agent
async def limited() -> str:
    try:
        async with hf.timeout(3600):
            await hf.sleep(days=1)
    except TimeoutError:
        await note("cut off")
        return "cut off"
    return "slept"


@hf.agent
async def daily() -> None:
    await note("daily")


@hf.step(retries=hf.Retry(3, first=600, most=3600))
async def shaky() -> str:
    see("attempt")
    if len(seen) < 3:
        raise OSError("not yet")
    return "at last"


@hf.agent
async def retrying() -> str:
    return await shaky()


AGENTS: list[hf.Agent[..., Any]] = [sleeper, patient, asking, limited, daily, retrying]


@asynccontextmanager
async def moved(path: Path, *, frozen: bool = True) -> AsyncIterator[tuple[Holdfast, Clock]]:
    global began
    async with hf.connect(str(path / "runs.db"), agents=AGENTS) as app, Clock(app, frozen=frozen) as clock:
        began = clock.now()
        yield app, clock


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def journal(app: Holdfast, run_id: str) -> list[tuple[str, str, str]]:
    records = await app._store.records(RunId(run_id))
    return [(record.kind, record.key, record.name if record.kind != "claimed" else "") for record in records]


def test_days_of_sleep_take_a_moment_and_happen_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            run = await app.start(sleeper("a", 24))
            await clock.skip(hours=23)
            assert seen == []
            await clock.skip(days=2)
            assert seen == [("a0", 24), ("a1", 48)]
            assert await run.result() == "a"
            assert clock.now() == began + timedelta(hours=71)

    go(test())


def test_runs_that_sleep_differently_wake_in_the_order_of_their_times(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            for name, hours in (("a", 5.0), ("b", 2.0), ("c", 3.5)):
                await app.start(sleeper(name, hours, 3), id=name)
            await clock.skip(days=1)

    go(test())
    assert seen == [
        ("b0", 2),
        ("c0", 3.5),
        ("b1", 4),
        ("a0", 5),
        ("b2", 6),
        ("c1", 7),
        ("a1", 10),
        ("c2", 10.5),
        ("a2", 15),
    ]


def test_the_same_test_writes_the_same_records_each_time(tmp_path: Path) -> None:
    found: list[object] = []

    async def test(path: Path) -> None:
        async with moved(path) as (app, clock):
            for name, hours in (("a", 1.0), ("b", 1.0), ("c", 0.5)):
                await app.start(sleeper(name, hours), id=name)
            await clock.skip(hours=3)
            found.append((list(seen), [await journal(app, name) for name in "abc"]))

    for attempt in range(3):
        seen.clear()
        path = tmp_path / str(attempt)
        path.mkdir()
        go(test(path))
    assert found[0] == found[1] == found[2]


def test_a_run_that_was_parked_by_another_process_is_woken_at_its_time(tmp_path: Path) -> None:
    async def first() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=AGENTS) as app:
            run = await app.start(sleeper("a", 24), id="a")
            await until(run, "sleeping")

    async def second() -> None:
        async with moved(tmp_path) as (app, clock):
            await clock.skip(days=3)
            assert await app.get("a").result() == "a"
            assert [name for name, _ in seen] == ["a0", "a1"]

    go(first())
    go(second())


def test_timeouts_of_receive_and_ask_and_blocks_expire_at_their_times(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            for number, call in enumerate((patient(), asking(), limited())):
                await app.start(call, id=f"r{number}")
            await clock.skip(hours=1)
            assert seen == [("cut off", 1)]
            await clock.skip(days=7)
            assert seen == [("cut off", 1), ("expired", 36), ("unanswered", 72)]
            assert [await app.get(f"r{n}").result() for n in range(3)] == ["expired", "unanswered", "cut off"]

    go(test())


def test_what_comes_in_time_is_not_a_timeout(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            run = await app.start(patient())
            other = await app.start(asking())
            await clock.skip(hours=35)
            await run.send(approved, True)
            (question,) = await other.questions()
            await question.answer(True)
            await clock.skip(days=7)
            assert (await run.result(), await other.result(), seen) == ("approved", "yes", [])

    go(test())


def test_retries_wait_on_the_same_clock(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            run = await app.start(retrying())
            await clock.skip(days=1)
            assert await run.result() == "at last"
            times = [at for _, at in seen]
            assert times == sorted(times)
            assert times[-1] > 0.1

    go(test())


def test_a_schedule_fires_each_day_of_a_week(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            await app.schedule("each morning", daily(), cron="0 6 * * *")
            await clock.skip_to((clock.now() + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0))
            seen.clear()
            start = clock.now()
            await clock.skip(days=7)
            hours = [at - (start - began) / timedelta(hours=1) for _, at in seen]
            assert [round(each, 2) for each in hours] == [6 + 24 * day for day in range(7)]

    go(test())


def test_a_frozen_clock_stands_still_and_one_that_is_not_goes_on(tmp_path: Path) -> None:
    async def test(frozen: bool) -> None:
        async with moved(tmp_path, frozen=frozen) as (app, clock):
            at = clock.now()
            await asyncio.sleep(0.02)
            assert (clock.now() == at) is frozen
            run = await app.start(sleeper(f"frozen={frozen}", 24))
            await clock.skip(days=2, seconds=1)
            assert await run.result() == f"frozen={frozen}"
            assert (clock.now() - at == timedelta(days=2, seconds=1)) is frozen
            assert clock.now() - at < timedelta(days=3)

    go(test(True))
    go(test(False))
    assert abs(wall.now_us() - time.time_ns() // 1000) < 1_000_000


def test_short_sleeps_pass_by_themselves_where_the_clock_is_not_frozen(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path, frozen=False) as (app, _):
            run = await app.start(sleeper("a", 0.05 / 3600))
            assert await run.result() == "a"

    go(test())


def test_the_clock_going_back_an_hour_and_forward_a_month_loses_no_timer_and_starts_no_storm(tmp_path: Path) -> None:
    async def test() -> None:
        global began
        async with hf.connect(str(tmp_path / "runs.db"), agents=AGENTS) as app:
            began = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=wall.now_us())
            for name, hours in (("a", 1.0), ("b", 24.0 * 40), ("c", 0.5 / 3600)):
                await app.start(sleeper(name, hours, 1), id=name)
            await app.schedule("each morning", daily(), cron="0 6 * * *", missed="latest")
            wall.shift_us(-3_600_000_000)
            began_s = time.monotonic()
            spun = time.process_time()
            await asyncio.sleep(1)
            assert seen == []  # all of them wait longer
            assert time.process_time() - spun < 0.7 * (time.monotonic() - began_s)
            wall.shift_us(3_600_000_000 + 30 * DAY_US)
            await app._here.quiet()
            # One for the month that was missed, not thirty.
            assert sorted(what for what, _ in seen) == ["a0", "c0", "daily"]
            assert await app.get("b").status() in ("running", "sleeping")
            wall.shift_us(11 * DAY_US)
            assert await asyncio.wait_for(app.get("b").result(), 60) == "b"

    go(test())


def test_runs_of_agents_that_the_app_does_not_have_do_not_hold_up_the_clock(tmp_path: Path) -> None:
    @hf.agent
    async def foreign() -> None:
        await hf.sleep(hours=1)

    async def first() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[foreign]) as app:
            run = await app.start(foreign())
            await until(run, "sleeping")

    async def second() -> None:
        async with moved(tmp_path) as (app, clock):
            await app.start(sleeper("a", 2))
            await clock.skip(days=1)
            assert [what for what, _ in seen] == ["a0", "a1"]

    go(first())
    go(second())


def test_the_clock_goes_forward_only(tmp_path: Path) -> None:
    async def test() -> None:
        async with moved(tmp_path) as (app, clock):
            with pytest.raises(UsageError, match="forward"):
                await clock.skip(days=-1)
            with pytest.raises(UsageError, match="forward"):
                await clock.skip_to(began - timedelta(seconds=1))
            with pytest.raises(UsageError, match="time zone"):
                await clock.skip_to(datetime(2100, 1, 1))
            with pytest.raises(UsageError, match="one wall clock"):
                async with Clock(app):
                    pass
            await clock.skip_to(began + timedelta(hours=1))
            assert clock.now() == began + timedelta(hours=1)

    go(test())
