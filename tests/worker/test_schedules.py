"""Schedules: which instants fire, once each, whoever looks, declares, pauses or dies meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.automation.schedules import timetable
from holdfast.automation.schedules.schedules import ScheduledStart, Schedules
from holdfast.automation.schedules.timetable import (
    Firing,
    ScheduleState,
    as_us,
    jitter_us,
    plan,
    redeclared,
    resumed,
    stamp,
)
from holdfast.base import clock
from holdfast.errors import StoreError, UsageError
from holdfast.model import Definition, Kind, RunFilter, RunId, Status
from holdfast.store.contract import Store
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import extend, new_run, opened

# The runs here are rows that nobody executes.
pytestmark = pytest.mark.corrupts

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND


def us(text: str) -> int:
    return as_us(datetime.fromisoformat(text).replace(tzinfo=UTC))


NOON = us("2026-11-16T12:00")


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    clock.freeze(NOON)
    yield
    clock.reset()


def a_state(**changes: Any) -> ScheduleState:
    state = ScheduleState(
        name="s",
        generation=1,
        agent="report",
        args="{}",
        args_digest="d",
        cron="0 * * * *",
        tz="UTC",
        jitter_s=0.0,
        overlap="skip",
        missed="latest",
        queue=None,
        created_at=NOON,
        updated_at=NOON,
        next_at=NOON,
    )
    return replace(state, **changes)


def hours(*instants: int) -> list[float]:
    return [(instant - NOON) / HOUR for instant in instants]


# the plan


def test_nothing_fires_before_its_time() -> None:
    decided = plan(a_state(last_at=7), NOON - 1)
    assert (decided.fires, decided.next_at, decided.last_at, decided.skipped) == ((), NOON, 7, 0)


@pytest.mark.parametrize("missed", ["latest", "skip", 1, 5])
def test_an_instant_on_time_fires_whatever_the_rule_for_missed_ones(missed: str | int) -> None:
    for late in (0, 1, 59 * SECOND, 60 * SECOND):
        decided = plan(a_state(missed=missed), NOON + late)
        assert (decided.fires, decided.next_at, decided.last_at, decided.skipped) == ((NOON,), NOON + HOUR, NOON, 0)


@pytest.mark.parametrize(
    ("missed", "minutes", "fired", "skipped"),
    [
        ("skip", 2, [], 1),
        ("latest", 2, [0], 0),
        (3, 2, [0], 0),
        ("skip", 5 * 60 + 20, [], 6),
        ("latest", 5 * 60 + 20, [5], 5),
        (3, 5 * 60 + 20, [3, 4, 5], 3),
        (6, 5 * 60 + 20, [0, 1, 2, 3, 4, 5], 0),
        (9, 5 * 60 + 20, [0, 1, 2, 3, 4, 5], 0),
        # The newest is on time.
        ("skip", 5 * 60, [5], 5),
        ("latest", 5 * 60, [5], 5),
        (2, 5 * 60, [4, 5], 4),
    ],
)
def test_of_missed_instants_the_newest_fire_as_the_rule_says(
    missed: str | int, minutes: int, fired: list[int], skipped: int
) -> None:
    decided = plan(a_state(missed=missed), NOON + minutes * MINUTE)
    assert hours(*decided.fires) == fired
    assert decided.skipped == skipped
    assert not decided.is_estimate
    newest = minutes // 60
    assert hours(decided.last_at, decided.next_at or 0) == [newest, newest + 1]


def test_what_is_late_depends_on_how_often_it_fires() -> None:
    often = a_state(cron="*/10 * * * * *", missed="skip")
    assert plan(often, NOON + 5 * SECOND).fires == (NOON,)
    assert plan(often, NOON + 5 * SECOND + 1).fires == ()


def test_a_thousand_missed_instants_are_counted() -> None:
    decided = plan(a_state(cron="* * * * *"), NOON + 1000 * MINUTE)
    assert (decided.fires, decided.skipped, decided.is_estimate) == ((NOON + 1000 * MINUTE,), 1000, False)


@pytest.mark.parametrize("jitter_s", [0.0, 100.0])
@pytest.mark.parametrize("keep", [1, 3])
def test_a_million_missed_instants_are_estimated_and_the_newest_found(keep: int, jitter_s: float) -> None:
    million, half = 1_000_000, 30 * SECOND
    state = a_state(cron="* * * * *", tz="Europe/Vienna", missed=keep, jitter_s=jitter_s)
    decided = plan(state, NOON + million * MINUTE + half)
    assert decided.is_estimate
    assert decided.skipped == pytest.approx(million, rel=0.001)
    # The same instants as if the outage had been short enough to be counted.
    short = plan(replace(state, next_at=NOON + (million - 5000) * MINUTE), NOON + million * MINUTE + half)
    assert not short.is_estimate
    assert (decided.fires, decided.last_at, decided.next_at) == (short.fires, short.last_at, short.next_at)


def test_an_irregular_calendar_is_estimated_without_end_as_well() -> None:
    state = a_state(cron="* * * * * MON", missed=2)
    tuesday = us("2027-11-16T12:00")
    decided = plan(state, tuesday)
    assert [stamp(each) for each in decided.fires] == ["20271115T235958Z", "20271115T235959Z"]
    assert decided.next_at == us("2027-11-22T00:00")


def test_the_last_instant_there_is_has_no_next() -> None:
    last = us("9999-12-31T23:00")
    decided = plan(a_state(next_at=last), last)
    assert (decided.fires, decided.next_at) == ((last,), None)
    assert plan(a_state(next_at=None, last_at=last), last + HOUR).fires == ()


# jitter


def test_jitter_is_the_same_for_all_who_ask_and_spreads_over_its_range() -> None:
    found = [jitter_us("s", NOON + n * HOUR, 10.0) for n in range(500)]
    assert found == [jitter_us("s", NOON + n * HOUR, 10.0) for n in range(500)]
    assert min(found) >= 0
    assert max(found) <= 10 * SECOND
    assert len({each // SECOND for each in found}) >= 10
    assert found[:20] != [jitter_us("t", NOON + n * HOUR, 10.0) for n in range(20)]
    assert jitter_us("s", NOON, 0) == 0


def test_jitter_moves_the_start_and_not_the_instant() -> None:
    state = a_state(jitter_s=600.0)
    due_at = state.due_at()
    assert due_at is not None
    assert NOON < due_at <= NOON + 10 * MINUTE
    assert plan(state, due_at - 1).fires == ()
    assert plan(state, due_at).fires == (NOON,)


# declaring


def test_the_same_declaration_changes_nothing() -> None:
    stored = a_state(generation=4, paused=True, last_at=NOON, skipped=3, last_run="s:4:x")
    assert redeclared(stored, a_state(), NOON + HOUR) is None


CHANGES: list[dict[str, Any]] = [
    {"agent": "other"},
    {"args": "[1]", "args_digest": "e"},
    {"jitter_s": 5.0},
    {"overlap": "allow"},
    {"missed": 3},
    {"queue": "q"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_content_is_a_new_generation_that_goes_on_with_the_same_times(change: dict[str, Any]) -> None:
    stored = a_state(generation=4, paused=True, last_at=NOON - HOUR, skipped=3)
    after = redeclared(stored, a_state(**change), NOON + 5 * HOUR)
    # What is missed until now is still to be decided, by the new rule.
    assert after == replace(stored, **change, generation=5, updated_at=NOON + 5 * HOUR)


@pytest.mark.parametrize("change", [{"cron": "30 * * * *"}, {"tz": "Europe/Vienna"}], ids=str)
def test_other_times_begin_behind_now_and_all_that_was_decided(change: dict[str, Any]) -> None:
    ahead = redeclared(a_state(last_at=NOON + 2 * HOUR), a_state(**change), NOON)
    assert ahead is not None
    assert ahead.next_at is not None
    assert ahead.next_at > NOON + 2 * HOUR
    behind = redeclared(a_state(last_at=NOON - HOUR, next_at=NOON), a_state(**change), NOON + HOUR)
    assert behind is not None
    assert behind.next_at is not None
    assert behind.next_at > NOON + HOUR


def test_what_came_while_it_was_paused_is_skipped() -> None:
    state = a_state(paused=True, missed=9, last_at=NOON - HOUR, next_at=NOON, skipped=1)
    after = resumed(state, NOON + 3 * HOUR)
    assert (after.paused, after.next_at, after.last_at, after.skipped) == (False, NOON + 4 * HOUR, NOON + 3 * HOUR, 5)
    assert resumed(after, NOON + 9 * HOUR) == after


def test_what_is_stored_is_read_as_it_was() -> None:
    state = a_state(last_runs=("a", "b"), firing=(Firing("r", NOON, ("a",)),), missed=3, revision=7)
    definition = timetable.to_definition(state, now=NOON)
    assert timetable.from_definition(definition) == replace(state, revision=8)
    assert definition.due_at == NOON + timetable.TAKE_OVER_US
    assert timetable.to_definition(replace(state, firing=()), now=NOON).due_at == NOON
    assert timetable.to_definition(replace(state, firing=(), paused=True), now=NOON).due_at is None
    with pytest.raises(StoreError, match="'s' cannot be read"):
        timetable.from_definition(Definition("schedule", "s", '{"cron": 1}', 1))


# with a store


class Starts:
    """Stores runs as an app does, and notes what it did and was asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.new: list[str] = []
        self.asked: list[ScheduledStart] = []
        self.cancelled: list[str] = []

    async def start(self, what: ScheduledStart) -> None:
        self.asked.append(what)
        made = new_run(
            what.run_id, agent=what.agent, status=Status.queued, wake_at=clock.now_us(), created_at=clock.now_us()
        )
        row = await self.store.create(made, owner=None)
        if row.nonce == made.row.nonce:
            self.new.append(what.run_id)

    async def cancel(self, run_id: RunId) -> None:
        self.cancelled.append(run_id)

    def schedules(self) -> Schedules:
        return Schedules(self.store, self.start, cancel=self.cancel)


Body = Callable[[Store, Starts, Schedules], Awaitable[None]]


def with_store(tmp_path: Path, body: Body) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            starts = Starts(store)
            await body(store, starts, starts.schedules())

    asyncio.run(main())


async def declare(schedules: Schedules, name: str = "s", **changes: Any) -> None:
    given = {"agent": "report", "args_text": "{}", "args_digest": "d", "cron": "0 * * * *", "overlap": "allow"}
    await schedules.declare(name, **given | changes)


async def look(schedules: Schedules, at: int) -> int:
    clock.freeze(at)
    return await schedules.fire_due(at)


async def end(store: Store, run_id: str) -> None:
    row = await store.run(RunId(run_id))
    assert row is not None
    next_epoch = replace(row, epoch=row.epoch + 1)
    assert await store.amend(extend(next_epoch, Kind.finished, status=Status.cancelled, wake_at=None))


async def state_of(store: Store, name: str = "s") -> ScheduleState:
    return timetable.from_definition((await store.definitions("schedule", names=[name]))[0])


def test_a_run_is_started_at_each_instant_with_what_was_declared(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, args_text="[7]", args_digest="seven", queue="night")
        assert await schedules.next_due() == NOON + HOUR
        assert [await look(schedules, NOON + n * MINUTE) for n in (59, 60, 61, 120, 121)] == [0, 1, 0, 1, 0]
        assert starts.asked[0] == ScheduledStart(
            agent="report",
            args_text="[7]",
            args_digest="seven",
            run_id=RunId("s:1:20261116T130000Z"),
            queue="night",
            tags={"schedule": "s", "instant": "20261116T130000Z"},
            scheduled_at=NOON + HOUR,
        )
        assert starts.new == ["s:1:20261116T130000Z", "s:1:20261116T140000Z"]
        assert await schedules.next_due() == NOON + 3 * HOUR

    with_store(tmp_path, body)


@pytest.mark.parametrize("jitter", [0, 20])
def test_four_workers_start_each_instant_once(tmp_path: Path, jitter: int) -> None:
    minutes = 40

    async def main() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(lambda: SqliteStore(tmp_path / "s.db"))) for _ in range(4)]
            starts = [Starts(store) for store in stores]
            workers = [each.schedules() for each in starts]
            await declare(workers[0], cron="* * * * *", jitter=jitter)
            for n in range(1, minutes + 1):
                now = NOON + n * MINUTE + jitter * SECOND
                clock.freeze(now)
                await asyncio.gather(*(worker.fire_due(now) for worker in workers))
            expected = [f"s:1:{stamp(NOON + n * MINUTE)}" for n in range(1, minutes + 1)]
            assert sorted(itertools.chain(*(each.new for each in starts))) == expected
            # Who lost the claim did not even ask for a start.
            assert sum(len(each.asked) for each in starts) == minutes
            assert sorted(row.id for row in await stores[0].runs(RunFilter(limit=1000))) == expected

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_two_versions_that_declare_alternately_never_fire_one_instant_twice_nor_lose_one(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(lambda: SqliteStore(tmp_path / "s.db"))) for _ in range(3)]
            starts = [Starts(store) for store in stores]
            versions = [each.schedules() for each in starts]

            async def act(number: int, now: int) -> None:
                for _ in range(3):
                    await asyncio.sleep(chance.random() / 1000)
                    if chance.random() < 0.5:
                        await declare(versions[number], cron="* * * * *", missed=5, args_digest=f"version {number}")
                    else:
                        await versions[number].fire_due(now)

            await declare(versions[0], cron="* * * * *", missed=5)
            for n in range(1, 31):
                now = NOON + n * MINUTE + chance.choice((0, 0, 1, MINUTE // 2))
                clock.freeze(now)
                await asyncio.gather(*(act(number, now) for number in range(3)))
            await look(versions[0], NOON + 30 * MINUTE + 6 * SECOND + MINUTE // 2)
            new = sorted(run_id.rpartition(":")[2] for each in starts for run_id in each.new)
            assert new == [stamp(NOON + n * MINUTE) for n in range(1, 31)]
            assert (await state_of(stores[0])).generation > 10

    asyncio.run(main())


def test_a_version_that_stood_still_starts_nothing_that_a_newer_one_has_fired(tmp_path: Path) -> None:
    """It has read the schedule, and goes on only after another declared and fired."""

    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules)
        old = await state_of(store)
        clock.freeze(NOON + HOUR)
        await declare(schedules, args_digest="new")
        await look(schedules, NOON + HOUR)
        assert await schedules._fire(old, NOON + HOUR) == 0
        assert starts.new == ["s:2:20261116T130000Z"]

    with_store(tmp_path, body)


def test_a_deployment_in_the_middle_of_an_outage_loses_nothing(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules)
        clock.freeze(NOON + 3 * HOUR + 20 * MINUTE)
        await declare(schedules, args_digest="new")
        await look(schedules, NOON + 3 * HOUR + 20 * MINUTE)
        assert starts.new == ["s:2:20261116T150000Z"]
        assert starts.asked[0].args_digest == "new"
        assert (await schedules.list())[0].skipped == 2

    with_store(tmp_path, body)


# overlap


def test_with_skip_nothing_is_started_while_the_run_before_has_not_ended(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, overlap="skip")
        assert [await look(schedules, NOON + n * HOUR) for n in (1, 2, 3)] == [1, 0, 0]
        await end(store, "s:1:20261116T130000Z")
        assert await look(schedules, NOON + 4 * HOUR) == 1
        assert starts.new == ["s:1:20261116T130000Z", "s:1:20261116T160000Z"]
        assert (await schedules.list())[0].skipped == 2
        assert starts.cancelled == []

    with_store(tmp_path, body)


def test_with_allow_runs_overlap(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, overlap="allow")
        assert [await look(schedules, NOON + n * HOUR) for n in (1, 2)] == [1, 1]
        assert starts.cancelled == []

    with_store(tmp_path, body)


def test_with_replace_the_run_before_is_cancelled_first_if_it_has_not_ended(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, overlap="replace")
        assert [await look(schedules, NOON + n * HOUR) for n in (1, 2)] == [1, 1]
        assert starts.cancelled == ["s:1:20261116T130000Z"]
        await end(store, "s:1:20261116T140000Z")
        assert await look(schedules, NOON + 3 * HOUR) == 1
        assert starts.cancelled == ["s:1:20261116T130000Z"]

    with_store(tmp_path, body)


def test_runs_that_catch_up_start_together_and_the_next_one_waits_for_all(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, overlap="skip", missed=3)
        assert await look(schedules, NOON + 5 * HOUR) == 3
        await end(store, starts.new[-1])
        assert await look(schedules, NOON + 6 * HOUR) == 0
        for run_id in starts.new[:2]:
            await end(store, run_id)
        assert await look(schedules, NOON + 7 * HOUR) == 1

    with_store(tmp_path, body)


# failures


def test_what_was_claimed_and_not_started_is_started_by_another_within_seconds(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        async def fail(_: ScheduledStart) -> None:
            raise StoreError("the disk is full")

        broken = Schedules(store, fail, cancel=starts.cancel)
        await declare(schedules)
        assert await look(broken, NOON + HOUR) == 0
        # Due at the next hour only, were it not for what is left undone.
        assert await look(schedules, NOON + HOUR + 4 * SECOND) == 0
        assert await look(schedules, NOON + HOUR + 5 * SECOND) == 1
        assert starts.new == ["s:1:20261116T130000Z"]
        assert await schedules.next_due() == NOON + 2 * HOUR

    with_store(tmp_path, body)


def test_a_schedule_that_fails_is_told_of_once_and_others_fire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await store.define([Definition("schedule", "bad", "[]", 1, due_at=1)])
        await declare(schedules)
        assert [await look(schedules, NOON + n * HOUR) for n in (1, 2)] == [1, 1]
        assert await schedules.next_due() == NOON + 3 * HOUR
        with pytest.raises(StoreError, match="'bad' cannot be read"):
            await schedules.list()
        await declare(schedules, "bad")
        assert [each.name for each in await schedules.list()] == ["bad", "s"]
        # An id that it never had.
        assert (await state_of(store, "bad")).generation == 2

    with caplog.at_level(logging.WARNING, "holdfast"):
        with_store(tmp_path, body)
    assert caplog.text.count("schedule.failed schedule=bad") == 1


DYING = """
import asyncio, sys
from holdfast.base import clock
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import opened
from tests.worker.test_schedules import Starts

async def main(path, now):
    clock.freeze(now)
    async with opened(lambda: SqliteStore(path)) as store:
        await Starts(store).schedules().fire_due(now)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize(
    "fault",
    [
        *(f"schedule.{where}_start:kill@{n}" for where in ("before", "after") for n in (1, 2, 3)),
        *(f"define.{where}_commit:kill@{n}" for where in ("before", "after") for n in (1, 2)),
    ],
)
def test_a_worker_killed_while_it_fires_neither_loses_nor_repeats_an_instant(tmp_path: Path, fault: str) -> None:
    root = Path(__file__).parents[2]
    path, now = tmp_path / "s.db", NOON + 3 * HOUR

    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, missed=3)

    async def after(store: Store, starts: Starts, schedules: Schedules) -> None:
        before = {row.id for row in await store.runs(RunFilter())}
        assert len(before) <= 3
        await look(schedules, now)
        await look(schedules, now + 5 * SECOND)
        expected = {f"s:1:{stamp(NOON + n * HOUR)}" for n in (1, 2, 3)}
        assert {row.id for row in await store.runs(RunFilter())} == expected
        assert set(starts.new) == expected - before
        assert (await state_of(store)).firing == ()
        assert await schedules.next_due() == NOON + 4 * HOUR

    with_store(tmp_path, body)
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(path), str(now)],
        env={**os.environ, "HOLDFAST_FAULT": fault, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    with_store(tmp_path, after)


# what people do


def test_a_paused_schedule_does_not_fire_and_skips_what_came_meanwhile(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, missed=9)
        await schedules.pause("s")
        await schedules.pause("s")
        assert await look(schedules, NOON + 3 * HOUR) == 0
        await declare(schedules, missed=9, args_digest="new")
        (paused,) = await schedules.list()
        assert (paused.paused, paused.next_fires) == (True, ())
        await schedules.resume("s")
        assert await look(schedules, NOON + 3 * HOUR) == 0
        assert await look(schedules, NOON + 4 * HOUR) == 1
        assert starts.new == ["s:2:20261116T160000Z"]
        assert (await schedules.list())[0].skipped == 3

    with_store(tmp_path, body)


def test_a_schedule_can_be_fired_at_any_time_and_goes_on_as_before(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, overlap="skip")
        await schedules.pause("s")
        first = await schedules.fire("s")
        clock.freeze(NOON + 1)
        second = await schedules.fire("s")
        assert [first, second] == starts.new
        assert first == "s:1:manual-20261116T120000.000000Z"
        await schedules.resume("s")
        # They are runs of the schedule, so the next one does not overlap with them.
        assert await look(schedules, NOON + HOUR) == 0
        await end(store, first)
        await end(store, second)
        assert await look(schedules, NOON + 2 * HOUR) == 1

    with_store(tmp_path, body)


def test_a_removed_schedule_is_gone_and_its_ids_do_not_come_again(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules)
        await look(schedules, NOON + HOUR)
        await schedules.remove("s")
        assert await schedules.list() == []
        assert await schedules.next_due() is None
        assert await look(schedules, NOON + 2 * HOUR) == 0
        for act in (schedules.pause, schedules.resume, schedules.fire, schedules.remove):
            with pytest.raises(UsageError, match="no schedule 's'"):
                await act("s")
        await declare(schedules)
        assert await look(schedules, NOON + 2 * HOUR) == 0
        assert await look(schedules, NOON + 3 * HOUR) == 1
        assert starts.new == ["s:1:20261116T130000Z", "s:2:20261116T150000Z"]

    with_store(tmp_path, body)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_backfill_starts_every_instant_of_a_range_that_has_no_run_of_any_generation(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules)
        await declare(schedules, "s:1")
        assert [await look(schedules, NOON + n * HOUR) for n in (1, 2)] == [2, 2]
        await declare(schedules, args_digest="new")
        clock.freeze(NOON + 4 * HOUR)
        started = await schedules.backfill("s", at("2026-11-16T10:00:00"), at("2026-11-16T16:00:00"))
        # 13 and 14 o'clock have runs of the first generation; 15 and 16 are about to fire.
        assert started == [f"s:2:20261116T{hour}0000Z" for hour in (10, 11, 12)]
        assert await schedules.backfill("s", at("2026-11-16T10:00:00"), at("2026-11-16T16:00:00")) == []
        assert await schedules.backfill("s", at("2026-11-16T08:00:00.000001"), at("2026-11-16T09:59:59")) == [
            "s:2:20261116T090000Z"
        ]
        assert len(set(starts.new)) == len(starts.new)

    with_store(tmp_path, body)


def test_a_backfill_of_the_future_or_of_too_much_is_refused(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, cron="* * * * *")
        now = at("2026-11-16T12:00")
        for start, stop, said in (
            (now, now + timedelta(seconds=1), "range of the past"),
            (now, now - timedelta(seconds=1), "range of the past"),
            (datetime(2026, 1, 1), now, "with a time zone"),
            (now - timedelta(minutes=10_000), now, "more than 10000 instants"),
        ):
            with pytest.raises(UsageError, match=said):
                await schedules.backfill("s", start, stop)
        assert starts.asked == []
        with pytest.raises(UsageError, match="no schedule"):
            await schedules.backfill("t", now, now)

    with_store(tmp_path, body)


def test_a_backfill_of_hundreds_that_fails_in_the_middle_can_be_called_again(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, cron="* * * * *")

        async def fail_late(what: ScheduledStart) -> None:
            if len(starts.new) >= 150:
                raise StoreError("the disk is full")
            await starts.start(what)

        now = at("2026-11-16T12:00")
        with pytest.raises(StoreError, match="full"):
            await Schedules(store, fail_late, cancel=starts.cancel).backfill("s", now - timedelta(minutes=249), now)
        done = set(starts.new)
        rest = await schedules.backfill("s", now - timedelta(minutes=249), now)
        assert not done & set(rest)
        assert len(starts.new) == len(set(starts.new)) == 250

    with_store(tmp_path, body)


def test_a_schedule_is_listed_with_its_next_fires_and_in_words(tmp_path: Path) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        await declare(schedules, cron="30 2 * * *", tz="Europe/Vienna", jitter=5, missed=2, queue="q")
        (found,) = await schedules.list()
        assert found == timetable.ScheduleInfo(
            name="s",
            agent="report",
            cron="30 2 * * *",
            explained="At 02:30 every day",
            tz="Europe/Vienna",
            jitter_s=5.0,
            overlap="allow",
            missed=2,
            queue="q",
            paused=False,
            generation=1,
            next_fires=tuple(at(f"2026-11-{day}T01:30") for day in range(17, 22)),
            last_at=None,
            last_run=None,
            skipped=0,
            created_at=at("2026-11-16T12:00"),
            updated_at=at("2026-11-16T12:00"),
        )
        await look(schedules, us("2026-11-17T01:31"))
        (found,) = await schedules.list()
        assert (found.last_run, found.last_at) == ("s:1:20261117T013000Z", at("2026-11-17T01:30"))

    with_store(tmp_path, body)


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name of a schedule"),
    ({"name": "a@b"}, "without '@'"),
    ({"name": "x" * 101}, "name of a schedule"),
    ({"cron": "0 0 30 2 *"}, "never comes"),
    ({"cron": "0 0 */31 * MON#5"}, "never fires"),
    ({"cron": "often"}, "no cron expression"),
    ({"tz": "Vienna"}, "no time zone"),
    ({"jitter": -1}, "jitter= takes seconds"),
    ({"jitter": float("nan")}, "jitter= takes seconds"),
    ({"jitter": "5"}, "jitter= takes seconds"),
    ({"overlap": "queue"}, "overlap= takes"),
    ({"missed": 0}, "missed= takes"),
    ({"missed": True}, "missed= takes"),
    ({"missed": "all"}, "missed= takes"),
    ({"missed": 1001}, "missed= takes"),
    ({"queue": ""}, "name of a queue"),
    ({"args_text": "x" * 1_000_001}, "more than 1000000"),
]


@pytest.mark.parametrize(("given", "said"), NONSENSE, ids=lambda each: str(each)[:40])
def test_nonsense_is_refused_and_nothing_is_stored(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    async def body(store: Store, starts: Starts, schedules: Schedules) -> None:
        with pytest.raises(UsageError, match=said):
            await declare(schedules, **given)
        assert await store.definitions("schedule") == []

    with_store(tmp_path, body)
