"""A schedule's state and what becomes of it: which instants fire, and what a declaration or a pause changes.

Pure functions. `schedules` reads and writes what is decided here.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from holdfast.automation.schedules import cron as calendar
from holdfast.base.clock import as_time, is_ahead
from holdfast.codec import said_by
from holdfast.errors import StoreError, UsageError
from holdfast.model import Definition, RunId
from holdfast.worker.queue_state import checked_name

KIND = "schedule"
OVERLAPS = ("skip", "allow", "replace")
#: Instants that are counted one by one; how many more were missed is estimated.
MOST_STEPS = 10_000
MOST_CAUGHT_UP = 1000
#: Characters of input; it is written again with each fire.
LONGEST_INPUT = 1_000_000
SECOND_US = 1_000_000
#: After this time others take over what was claimed and not struck out.
TAKE_OVER_US = 5 * SECOND_US
_GRACE_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as people see it."""

    name: str
    agent: str
    cron: str
    explained: str  #: the expression in words
    tz: str
    jitter_s: float
    overlap: str
    missed: str | int
    queue: str | None
    paused: bool
    generation: int
    next_fires: tuple[datetime, ...]  #: the next five, without jitter; none while paused
    last_at: datetime | None  #: the newest instant that was fired or skipped
    last_run: RunId | None
    skipped: int  #: instants that were missed, or overlapped; above 10,000 in a row an estimate
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Firing:
    """A run that is claimed and may not be started yet."""

    run: str
    instant: int
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as it is stored. Times are in µs; `last_at` 0: nothing was decided yet."""

    name: str
    generation: int
    agent: str
    args: str
    args_digest: str
    cron: str
    tz: str
    jitter_s: float
    overlap: str
    missed: str | int
    queue: str | None
    created_at: int
    updated_at: int
    paused: bool = False
    removed: bool = False
    last_at: int = 0
    last_run: str | None = None
    last_runs: tuple[str, ...] = ()  #: those that the next ones may overlap with
    next_at: int | None = None
    skipped: int = 0
    firing: tuple[Firing, ...] = ()
    defaults: tuple[str, ...] = ()  #: of the arguments, those that were not given
    revision: int = 0

    @property
    def content(self) -> tuple[object, ...]:
        """What a declaration says; all else is what became of it."""
        timing = (self.cron, self.tz, self.jitter_s, self.overlap, self.missed)
        return (self.agent, self.args_digest, self.queue, *timing)

    def due_at(self) -> int | None:
        """When it fires next, if nothing is under way."""
        if self.paused or self.removed or self.next_at is None:
            return None
        return self.next_at + jitter_us(self.name, self.next_at, self.jitter_s)


def from_definition(definition: Definition) -> ScheduleState:
    """The schedule of a stored definition; StoreError if it cannot be read."""
    try:
        body: dict[str, Any] = json.loads(definition.body)
        firing = tuple(Firing(each["run"], each["instant"], tuple(each["replaces"])) for each in body.pop("firing"))
        body |= {"last_runs": tuple(body["last_runs"]), "defaults": tuple(body.get("defaults", ()))}
        return ScheduleState(**body, name=definition.name, firing=firing, revision=definition.revision)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"Schedule {definition.name!r} cannot be read ({said_by(error)}), so it does not fire. Declare it again."
        ) from error


def to_definition(state: ScheduleState, *, now: int) -> Definition:
    """What replaces the definition that the state was read from."""
    body = asdict(state)
    del body["name"], body["revision"]
    due_at = now + TAKE_OVER_US if state.firing else state.due_at()
    return Definition(KIND, state.name, json.dumps(body), state.revision + 1, due_at)


# the decisions


@dataclass(frozen=True, slots=True)
class DueFires:
    """What a look at a schedule comes to, before overlaps: instants to fire, oldest first, in µs."""

    fires: tuple[int, ...]
    last_at: int  #: the newest instant that is decided by this
    next_at: int | None
    skipped: int
    is_estimate: bool = False  #: `skipped` was not counted one by one


def jitter_us(name: str, instant: int, jitter_s: float) -> int:
    """How much later than its instant a run is started: the same for all who ask, evenly from 0 to `jitter_s`."""
    if jitter_s <= 0:
        return 0
    number = int.from_bytes(blake2b(f"{name}:{instant}".encode(), digest_size=8).digest(), "big")
    return number % (int(jitter_s * SECOND_US) + 1)


def stamp(instant: int) -> str:
    """An instant as it is part of a run's id: 20261116T000500Z."""
    return as_time(instant).strftime("%Y%m%dT%H%M%SZ")


def run_id_of(state: ScheduleState, instant: int) -> str:
    return f"{state.name}:{state.generation}:{stamp(instant)}"


def plan(state: ScheduleState, now: int) -> DueFires:
    """Which of the instants that are due by now fire.

    An instant that is late by more than a minute, or half the time to the next one if that is less (but a second), was
    missed. Those that are on time fire. Of the missed ones fire: none (`missed="skip"`), the newest if no later one is
    on time (`"latest"`), or as many as make up the newest `missed` in all. An instant waits for those before it.

    Example: `plan(state, now_us()).fires`
    """
    keep = 0 if state.missed == "skip" else 1 if state.missed == "latest" else int(state.missed)
    if state.next_at is None:
        return DueFires((), state.last_at, None, 0)
    steps = _step(state, state.next_at, now=now, keep=keep)
    if not steps.is_cut:
        return _decided(state, steps, steps.count, keep=keep)
    # Too many to count: look for the newest from behind, and for what has begun since from there.
    cut_off = as_time(now - int(state.jitter_s * SECOND_US))
    newest = [as_us(instant) for instant in calendar.latest(state.cron, state.tz, cut_off, count=max(keep, 1))]
    assert steps.following is not None
    if not newest or newest[-1] <= steps.following:
        return _decided(state, steps, steps.count, keep=keep)
    mean_us = max(SECOND_US, (steps.following - state.next_at) / steps.count)
    between = int((newest[-1] - steps.following) / mean_us) + 1
    rest = _step(state, newest[-1], now=now, keep=keep)
    merged = replace(rest, due=tuple(sorted({*newest, *rest.due})))
    return replace(_decided(state, merged, steps.count + between + rest.count - 1, keep=keep), is_estimate=True)


@dataclass(frozen=True, slots=True)
class _Steps:
    due: tuple[int, ...]  #: the newest of those that are due
    on_time: frozenset[int]
    count: int  #: all that are due
    following: int | None  #: the first that is not due, or not looked at
    is_cut: bool  #: there are more, not looked at


def _step(state: ScheduleState, first: int, *, now: int, keep: int) -> _Steps:
    """Go through the instants from `first` on, while they are due, up to a number."""
    due: deque[int] = deque(maxlen=max(keep, 1))
    on_time: set[int] = set()
    count, instant = 0, first
    upcoming = calendar.instants(state.cron, state.tz, as_time(first))
    while True:
        fires_at = instant + jitter_us(state.name, instant, state.jitter_s)
        if fires_at > now or count == MOST_STEPS:
            return _Steps(tuple(due), frozenset(on_time), count, instant, is_cut=fires_at <= now)
        following = next(upcoming, None)
        interval = as_us(following) - instant if following is not None else 2 * _GRACE_US
        if now - fires_at <= min(_GRACE_US, max(SECOND_US, interval // 2)):
            on_time.add(instant)
        due.append(instant)
        count += 1
        if following is None:
            return _Steps(tuple(due), frozenset(on_time), count, None, is_cut=False)
        instant = as_us(following)


def _decided(state: ScheduleState, steps: _Steps, count: int, *, keep: int) -> DueFires:
    caught_up = steps.due[-keep:] if keep else ()
    fires = tuple(sorted({*steps.on_time, *caught_up}))
    last_at = max((state.last_at, *steps.due))
    return DueFires(fires, last_at, steps.following, count - len(fires))


def as_us(instant: datetime) -> int:
    """The opposite of `as_time`."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def next_instant(state: ScheduleState, after: int) -> int | None:
    found = calendar.next_after(state.cron, state.tz, as_time(after))
    return None if found is None else as_us(found)


def believed(state: ScheduleState, now: int) -> ScheduleState:
    """The schedule without times that only a clock which was ahead can have written: it goes on from now.

    What is stored says until when all is decided. Believed, a time that is years ahead would keep it from ever firing.
    """
    if not is_ahead(max(state.last_at, state.created_at, state.updated_at), now):
        return state
    return replace(
        state,
        last_at=0,
        created_at=min(state.created_at, now),
        updated_at=now,
        next_at=next_instant(state, now),
    )


def redeclared(stored: ScheduleState, wanted: ScheduleState, now: int) -> ScheduleState | None:
    """What a declaration makes of a schedule that exists; None: nothing, it says the same.

    The times go on where they are if they are the same, so a deployment in the middle of an outage loses nothing that
    `missed` would catch up. Other times begin now, behind all that was decided.
    """
    start: int | None = max(now, stored.last_at)
    if stored.removed:
        again = replace(stored, removed=False, paused=False, created_at=now, skipped=0)
    elif stored.content == wanted.content:
        return None
    else:
        has_same_times = (stored.cron, stored.tz) == (wanted.cron, wanted.tz) and stored.next_at is not None
        start = None if has_same_times else start
        again = stored
    changed = replace(
        again,
        generation=stored.generation + 1,
        agent=wanted.agent,
        args=wanted.args,
        args_digest=wanted.args_digest,
        defaults=wanted.defaults,
        cron=wanted.cron,
        tz=wanted.tz,
        jitter_s=wanted.jitter_s,
        overlap=wanted.overlap,
        missed=wanted.missed,
        queue=wanted.queue,
        updated_at=now,
    )
    return changed if start is None else replace(changed, next_at=next_instant(changed, start))


def resumed(state: ScheduleState, now: int) -> ScheduleState:
    """The schedule going on after a pause: what came meanwhile is skipped, whatever `missed` says."""
    if not state.paused:
        return state
    came = plan(replace(state, missed="skip", jitter_s=0), now)
    return replace(
        state,
        paused=False,
        last_at=came.last_at,
        next_at=next_instant(state, max(now, came.last_at)),
        skipped=state.skipped + came.skipped + len(came.fires),
        updated_at=now,
    )


def checked(wanted: ScheduleState, now: int) -> ScheduleState:
    """The declaration, if it makes sense, with its first time; else UsageError."""
    name, missed = wanted.name, wanted.missed
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= 100
        or not name.isprintable()
        or "@" in name
        or name != name.strip()
    ):
        raise UsageError(f"The name of a schedule has 1 to 100 printable characters, without '@'; got {name!r}.")
    if wanted.overlap not in OVERLAPS:
        raise UsageError(f"Schedule {name!r}: overlap= takes 'skip', 'allow' or 'replace'; got {wanted.overlap!r}.")
    is_number = isinstance(missed, int) and not isinstance(missed, bool) and 1 <= missed <= MOST_CAUGHT_UP
    if missed not in ("latest", "skip") and not is_number:
        raise UsageError(
            f"Schedule {name!r}: missed= takes 'latest', 'skip', or how many to catch up (1 to {MOST_CAUGHT_UP}); "
            f"got {missed!r}."
        )
    if wanted.jitter_s > 86_400:
        raise UsageError(f"Schedule {name!r}: jitter= takes at most a day; got {wanted.jitter_s:g} seconds.")
    if len(wanted.args) > LONGEST_INPUT:
        raise UsageError(
            f"Schedule {name!r}: the input has {len(wanted.args)} characters, more than {LONGEST_INPUT}. "
            "Let the agent read it, and pass where it is."
        )
    if wanted.queue is not None:
        checked_name(wanted.queue)
    calendar.check(wanted.cron, wanted.tz, as_time(now))
    return replace(wanted, next_at=next_instant(wanted, now))


def info(state: ScheduleState) -> ScheduleInfo:
    """A schedule as people see it."""
    next_fires: tuple[datetime, ...] = ()
    if not state.paused and state.next_at is not None:
        first = as_time(state.next_at)
        next_fires = (first, *itertools.islice(calendar.instants(state.cron, state.tz, first), 4))
    return ScheduleInfo(
        name=state.name,
        agent=state.agent,
        cron=state.cron,
        explained=calendar.explain(state.cron),
        tz=state.tz,
        jitter_s=state.jitter_s,
        overlap=state.overlap,
        missed=state.missed,
        queue=state.queue,
        paused=state.paused,
        generation=state.generation,
        next_fires=next_fires,
        last_at=as_time(state.last_at) if state.last_at else None,
        last_run=RunId(state.last_run) if state.last_run else None,
        skipped=state.skipped,
        created_at=as_time(state.created_at),
        updated_at=as_time(state.updated_at),
    )
