"""Schedules: runs started by the calendar.

Every worker looks for schedules that are due; there is no singleton. What keeps an instant from firing twice is one
row per schedule, changed by compare-and-set only, and the order of things:

1. Claim: `last_at` and `next_at` move past the instants that are due, and the runs to be started for them are written
   down (`firing`), in one change. Whoever loses it does nothing more.
2. Start these runs. Their ids come from the instant, and a start whose id exists changes nothing.
3. Strike them out. If the process dies before, the schedule is due again within seconds, and another one does 2 and 3.

So whatever was not claimed was not started, by the calendar, by hand or by a backfill. That is what makes rolling
deploys safe: a new generation goes on behind what older ones have claimed, and no process that stood still in between
can start anything that it did not claim.

A schedule that is removed stays as a row without a time, for the same reason: its ids must not be given out again.
The decisions are in `timetable`.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.automation.schedules import cron as calendar
from holdfast.automation.schedules.timetable import (
    KIND,
    SECOND_US,
    Firing,
    ScheduleInfo,
    ScheduleState,
    as_us,
    believed,
    checked,
    from_definition,
    info,
    plan,
    redeclared,
    resumed,
    run_id_of,
    stamp,
    to_definition,
)
from holdfast.base import clock, faults
from holdfast.base.clock import as_time
from holdfast.base.telemetry import warn
from holdfast.codec import said_by
from holdfast.durations import Duration
from holdfast.errors import StoreError, UsageError
from holdfast.journal.tombstones import is_empty
from holdfast.model import Act, RunFilter, RunId, Status
from holdfast.store.contract import Store
from holdfast.store.runs import every_run

__all__ = ["ScheduleInfo", "ScheduledStart", "Schedules"]

MOST_BACKFILLED = 10_000
_ATTEMPTS = 100
_AT_ONCE = 100
_FOR_EVER = 2**62
#: Runs are stored after their instant; clocks of machines may differ by less than this.
_SKEW_US = 86_400 * SECOND_US
_STAMP = re.compile(r"[0-9]+:([0-9]{8}T[0-9]{6}Z)")


@dataclass(frozen=True, slots=True)
class ScheduledStart:
    """A run to be stored as queued, unless one with its id exists."""

    agent: str
    args_text: str
    args_digest: str
    run_id: RunId
    queue: str | None
    tags: Mapping[str, str]
    scheduled_at: int  #: µs
    defaults: tuple[str, ...] = ()  #: of the arguments, those that were not given


class Schedules:
    """The schedules of a store.

    `start` stores a run as queued unless its id exists, also of an agent that this process does not know. `cancel` asks
    for a run's end without waiting for it, and does nothing if it has ended.
    """

    def __init__(
        self,
        store: Store,
        start: Callable[[ScheduledStart], Awaitable[None]],
        *,
        cancel: Callable[[RunId], Awaitable[None]],
    ) -> None:
        self._store = store
        self._start_run = start
        self._cancel_run = cancel
        self._told: set[tuple[str, int]] = set()

    async def declare(
        self,
        name: str,
        *,
        agent: str,
        args_text: str,
        args_digest: str,
        cron: str,
        tz: str = "UTC",
        jitter: Duration = 0,
        overlap: str = "skip",
        missed: str | int = "latest",
        queue: str | None = None,
        defaults: Sequence[str] = (),
    ) -> None:
        """Make a schedule, or change it; the same declaration again changes nothing.

        Whatever happens in between, no instant fires for two declarations of one name. A paused one stays paused.

        Example: `await schedules.declare("nightly", agent="report", **encoded, cron="0 2 * * *")`
        """
        jitter_s = clock.in_seconds(jitter, f"Schedule {name!r}: jitter=")
        for _ in range(_ATTEMPTS):
            now = clock.now_us()
            wanted = checked(
                ScheduleState(
                    name=name,
                    generation=1,
                    agent=agent,
                    args=args_text,
                    args_digest=args_digest,
                    cron=cron,
                    tz=tz,
                    jitter_s=jitter_s,
                    overlap=overlap,
                    missed=missed,
                    queue=queue,
                    defaults=tuple(defaults),
                    created_at=now,
                    updated_at=now,
                ),
                now,
            )
            found = await self._store.definitions(KIND, names=[name])
            if not found:
                after: ScheduleState | None = wanted
            else:
                try:
                    stored = from_definition(found[0])
                except StoreError:
                    # Its generation is not known, but it was changed at least as often.
                    revision = found[0].revision
                    after = replace(wanted, generation=revision + 1, revision=revision)
                else:
                    if stored.firing and stored.content != wanted.content:
                        await self._finish(stored)
                        continue
                    right = believed(stored, now)
                    after = redeclared(right, wanted, now) or (right if right != stored else None)
            if after is None or await self._write(after, now):
                return
        raise _contended(name)

    async def fire_due(self, now: int) -> int:
        """Start the runs of all schedules that are due; how many were started here.

        Safe to be called by any number of workers at once, and to be cut off anywhere. One schedule that fails is told
        of and does not keep others from firing.

        Example: `await schedules.fire_due(now_us())`
        """
        started = 0
        for definition in await self._store.definitions(KIND, due=now, limit=1000):
            try:
                started += await self._fire(from_definition(definition), now)
            except Exception as error:
                if (definition.name, definition.revision) not in self._told:
                    self._told.add((definition.name, definition.revision))
                    warn("schedule.failed", schedule=definition.name, error=said_by(error))
        return started

    async def put_right(self, now: int) -> None:
        """Have schedules go on that a clock which was ahead has taken to a time that is far away: they are never due.

        Example: `await schedules.put_right(now_us())`
        """
        for definition in await self._store.definitions(KIND):
            try:
                state = from_definition(definition)
            except StoreError:
                continue  # told of when it is due
            right = believed(state, now)
            if state.removed or right == state:
                continue
            warn(
                "schedule.ahead",
                schedule=state.name,
                decided_until=as_time(max(state.last_at, state.updated_at)).isoformat(),
                goes_on="" if right.next_at is None else as_time(right.next_at).isoformat(),
                why="a clock was ahead when this was written; times in between are not made up for",
            )
            if state.firing:
                await self._finish(state)
                state, right = _next(state), _next(right)
            await self._write(replace(right, firing=()), now)

    async def next_due(self) -> int | None:
        """When the next schedule is due, µs; one that cannot fire here, and was told of, does not count.

        Example: `wake_at = await schedules.next_due()`
        """
        known = await self._store.definitions(KIND, due=_FOR_EVER, limit=len(self._told) + 1)
        times = (each.due_at for each in known if (each.name, each.revision) not in self._told)
        return next(times, None)

    async def pause(self, name: str, act: Act | None = None) -> None:
        """Fire no more until it is resumed.

        Example: `await schedules.pause("nightly")`
        """
        await self._change(
            name, lambda state, now: state if state.paused else replace(state, paused=True, updated_at=now), act
        )

    async def resume(self, name: str, act: Act | None = None) -> None:
        """Go on after a pause; the instants that came meanwhile are skipped.

        Example: `await schedules.resume("nightly")`
        """
        await self._change(name, resumed, act)
        self._store.ring()

    async def remove(self, name: str, act: Act | None = None) -> None:
        """End a schedule; its runs stay. Declared again, it is a new one.

        Example: `await schedules.remove("nightly")`
        """
        await self._change(name, lambda state, now: replace(state, removed=True, updated_at=now), act)

    async def fire(self, name: str, act: Act | None = None) -> RunId:
        """Start a run of a schedule now, also of one that is paused, and whatever still runs.

        Once this has returned, the run is there; if the process dies in between, it may come seconds later.

        Example: `run_id = await schedules.fire("nightly")`
        """
        run_id = ""

        def with_run(state: ScheduleState, now: int) -> ScheduleState:
            nonlocal run_id
            run_id = f"{name}:{state.generation}:manual-{as_time(now).strftime('%Y%m%dT%H%M%S.%fZ')}"
            runs = (*state.last_runs, run_id)[-_AT_ONCE:]
            return replace(state, firing=(Firing(run_id, now),), last_run=run_id, last_runs=runs)

        await self._finish(await self._change(name, with_run, act))
        return RunId(run_id)

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, act: Act | None = None
    ) -> builtins.list[RunId]:
        """Start a run for every instant from `start` to `end` that has none, of any generation; those started.

        They are all started at once: give the schedule a queue to limit how many run at a time. Instants that are about
        to fire by themselves are left to that. Cut off, it can be called again. If the schedule is declared anew
        meanwhile, what is missing is started as it says then.

        Example: `await schedules.backfill("nightly", datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC))`
        """
        if start.tzinfo is None or end.tzinfo is None:
            raise UsageError("backfill takes times with a time zone, such as datetime(2026, 1, 1, tzinfo=UTC).")
        began = clock.now_us()
        if end < start or as_us(end) > began:
            raise UsageError(f"backfill takes a range of the past; got {start.isoformat()} to {end.isoformat()}.")
        started: builtins.list[RunId] = []
        state, revision = await self._settled(name), -1
        fires_itself = None if state.paused else state.next_at
        missing: builtins.list[int] = []
        while True:
            state, now = await self._settled(name), clock.now_us()
            due_at = state.due_at()
            if due_at is not None and began < due_at <= now:
                await self._fire(state, now)  # what is claimed here keeps others from it
                continue
            if state.revision != revision:  # somebody has changed it: perhaps another backfill, or a new generation
                found = await self._missing(state, start, end)
                missing = [each for each in found if fires_itself is None or each < fires_itself]
            if not missing:
                return started
            batch, rest = missing[:_AT_ONCE], missing[_AT_ONCE:]
            firing = tuple(Firing(run_id_of(state, instant), instant) for instant in batch)
            claimed = replace(state, firing=firing)
            if not await self._write(claimed, now, act):
                continue
            act = None
            started += [RunId(each.run) for each in firing]
            await self._finish(_next(claimed), at_once=True)
            missing, revision = rest, state.revision + 2

    async def _missing(self, state: ScheduleState, start: datetime, end: datetime) -> builtins.list[int]:
        """The instants of a range that have no run."""
        name, first = state.name, -(-as_us(start) // SECOND_US) * SECOND_US - SECOND_US
        upcoming = map(as_us, calendar.instants(state.cron, state.tz, as_time(first)))
        wanted = builtins.list(
            itertools.islice(itertools.takewhile(lambda each: each <= as_us(end), upcoming), MOST_BACKFILLED + 1)
        )
        if len(wanted) > MOST_BACKFILLED:
            raise UsageError(
                f"Schedule {name!r} has more than {MOST_BACKFILLED} instants from {start.isoformat()} to "
                f"{end.isoformat()}; backfill a part of it at a time."
            )
        has_run = await self._stamps_with_runs(name, since=first - _SKEW_US)
        return [each for each in wanted if stamp(each) not in has_run]

    async def list(self) -> builtins.list[ScheduleInfo]:
        """All schedules, by name.

        Example: `for schedule in await schedules.list(): print(schedule.name, schedule.explained)`
        """
        states = [from_definition(definition) for definition in await self._store.definitions(KIND)]
        return [info(state) for state in states if not state.removed]

    # firing

    async def _fire(self, state: ScheduleState, now: int) -> int:
        if state.firing:
            # Whoever claimed it died, or is slow. One takes over; should that fail as well, it is due again.
            return await self._finish(_next(state)) if await self._write(state, now) else 0
        due_at = state.due_at()
        if due_at is None or due_at > now:
            return 0
        decided = plan(state, now)
        fires, skipped = decided.fires, decided.skipped
        replaces: tuple[str, ...] = ()
        if fires and state.overlap != "allow":
            unfinished = await self._unfinished(state.last_runs)
            if unfinished and state.overlap == "skip":
                fires, skipped = (), skipped + len(fires)
            elif unfinished:
                replaces = unfinished
        firing = tuple(
            Firing(run_id_of(state, instant), instant, replaces if n == 0 else ()) for n, instant in enumerate(fires)
        )
        runs = tuple(each.run for each in firing)
        claimed = replace(
            state,
            last_at=decided.last_at,
            next_at=decided.next_at,
            skipped=state.skipped + skipped,
            firing=firing,
            last_run=runs[-1] if runs else state.last_run,
            last_runs=runs or state.last_runs,
        )
        if not await self._write(claimed, now):
            return 0
        return await self._finish(_next(claimed)) if firing else 0

    async def _unfinished(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        found: builtins.list[str] = []
        for run_id in run_ids:
            row = await self._store.run(RunId(run_id))
            if row is None or row.status.is_final or is_empty(row):
                continue
            if row.status is not Status.quarantined:
                found.append(run_id)
        return tuple(found)

    async def _finish(self, state: ScheduleState, *, at_once: bool = False) -> int:
        """Start what is claimed and strike it out; if somebody else did so first, that is as good.

        `at_once`: in no order.
        """
        if at_once:
            ends = await asyncio.gather(*(self._start(state, each) for each in state.firing), return_exceptions=True)
            for error in ends:
                if error is not None:
                    raise error
        else:
            for firing in state.firing:
                await self._start(state, firing)
        await self._write(replace(state, firing=()), clock.now_us())
        return len(state.firing)

    async def _start(self, state: ScheduleState, firing: Firing) -> None:
        for run_id in firing.replaces:
            await self._cancel_run(RunId(run_id))
        faults.point("schedule.before_start")
        await self._start_run(
            ScheduledStart(
                agent=state.agent,
                args_text=state.args,
                args_digest=state.args_digest,
                run_id=RunId(firing.run),
                queue=state.queue,
                tags={"schedule": state.name, "instant": stamp(firing.instant)},
                scheduled_at=firing.instant,
                defaults=state.defaults,
            )
        )
        faults.point("schedule.after_start")

    # reading and writing

    async def _write(self, state: ScheduleState, now: int, act: Act | None = None) -> bool:
        return (await self._store.define([to_definition(state, now=now)], act=act))[0]

    async def _settled(self, name: str) -> ScheduleState:
        """The schedule, with nothing under way."""
        for _ in range(_ATTEMPTS):
            found = await self._store.definitions(KIND, names=[name])
            state = from_definition(found[0]) if found else None
            if state is None or state.removed:
                raise UsageError(f"There is no schedule {name!r}; `holdfast schedules` lists those there are.")
            if not state.firing:
                return state
            await self._finish(state)
        raise _contended(name)

    async def _change(
        self, name: str, change: Callable[[ScheduleState, int], ScheduleState], act: Act | None = None
    ) -> ScheduleState:
        """Write what `change` makes of the schedule, whoever else changes it meanwhile; what is stored now."""
        for _ in range(_ATTEMPTS):
            state, now = await self._settled(name), clock.now_us()
            after = change(believed(state, now), now)
            if after == state:
                return state
            if await self._write(after, now, act):
                return _next(after)
        raise _contended(name)

    async def _stamps_with_runs(self, name: str, *, since: int) -> set[str]:
        """The instants, as in ids, that have a run of some generation that was stored since then."""
        runs = every_run(self._store, RunFilter(id_prefix=f"{name}:", since=since))
        return {match[1] async for row in runs if (match := _STAMP.fullmatch(row.id, len(name) + 1)) is not None}


def _next(state: ScheduleState) -> ScheduleState:
    """The state as it is stored once it was written."""
    return replace(state, revision=state.revision + 1)


def _contended(name: str) -> StoreError:
    return StoreError(f"Schedule {name!r} was changed by others {_ATTEMPTS} times in a row; try again.")
