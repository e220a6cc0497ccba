"""The order in which a run with several branches learns what happened.

Completions are delivered in ticks: all that are ready together, then the run settles, then the next. The tick stands in
the record, and a replay delivers the same groups in the same order, so whatever the code builds from "who was first"
(`gather`, `TaskGroup`, `wait`, `as_completed`) comes out as it did.

The run has settled when, for a few turns of the loop, no durable call was made, no task began or ended, and no task of
the run is about to run. A recorded call that the code does not make any more is passed by once the run has settled; as
long as a task waits for something of its own (a timer, a socket) the replay is patient first, for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from holdfast.journal.replay import Entry, Replay

_QUIET_TURNS = 3
_PATIENCE_S = 1.0
_LOOK_AGAIN_S = 0.002


class Quiet(Enum):
    """What the tasks of a run are doing, apart from durable calls."""

    busy = "busy"  #: one is about to run
    outside = "outside"  #: one waits for something that the run does not control
    settled = "settled"  #: all wait for durable calls or for each other


class Ticks:
    """Delivers outcomes to the calls of one run."""

    def __init__(self, replay: Replay, tasks: Callable[[], Quiet]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._groups = replay.groups()
        self._groups.reverse()
        self._awaited: dict[Entry, Callable[[], None]] = {}
        self._ready: list[Callable[[int], None]] = []
        self._cancels: dict[Entry, int] = {}  # calls that were cancelled, and are not yet
        self._replayed_waiters: list[asyncio.Future[None]] = []
        self.tick = 0
        self._last_recorded = replay.last_tick
        self._activity = 0
        self._seen_activity = -1
        self._quiet_turns = 0
        self._impatient_at = 0.0
        self._scheduled = False
        self.stopped = False
        self.passed_late = 0  #: recorded calls made only after the replay had gone past them

    def touch(self) -> None:
        """Something happened in the run: it has not settled."""
        self._activity += 1

    def next_tick(self) -> int:
        """The tick of an outcome that is delivered at once, because the run has one branch."""
        self.tick = max(self.tick, self._last_recorded) + 1
        return self.tick

    def at_once(self, entry: Entry) -> None:
        """A recorded outcome is delivered at once, because the run has one branch."""
        entry.delivered = True
        if entry.outcome is not None and entry.outcome.tick > self.tick:
            self.tick = entry.outcome.tick

    # with several branches

    def await_recorded(self, entry: Entry, deliver: Callable[[], None]) -> None:
        """A recorded call was made again; `deliver` is called when its turn comes."""
        assert entry.outcome is not None
        if entry.delivered:
            self.passed_late += 1
            self._ready.append(lambda _tick: deliver())
        else:
            self._awaited[entry] = deliver
        self._activity += 1
        self._schedule()

    def await_cancel(self, entry: Entry) -> None:
        """A call that the code once cancelled was made again; the replay holds its place until it is cancelled."""
        assert entry.outcome is not None
        self._cancels[entry] = entry.outcome.tick
        self._activity += 1

    def cancelled(self, entry: Entry) -> None:
        self._cancels.pop(entry, None)
        self._awaited.pop(entry, None)
        self._activity += 1

    def complete(self, deliver: Callable[[int], None]) -> None:
        """A body ended; `deliver` is called with its tick when its turn comes."""
        self._ready.append(deliver)
        self._activity += 1
        self._schedule()

    def withdraw(self, deliver: Callable[[int], None]) -> None:
        if deliver in self._ready:
            self._ready.remove(deliver)

    @property
    def is_replayed(self) -> bool:
        """Has everything that was recorded been delivered or passed by?"""
        while self._groups and all(e.delivered for e in self._groups[-1][1]):
            self._groups.pop()
        return not self._groups

    @property
    def has_work(self) -> bool:
        return bool(self._ready or self._awaited)

    async def wait_replayed(self) -> None:
        """Return when the journal has no answer left to give out."""
        if self.is_replayed:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._replayed_waiters.append(waiter)
        self._activity += 1
        self._schedule()
        await waiter

    # settling

    def _schedule(self) -> None:
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self.stopped:
            return
        doing = self._tasks()
        if self._activity != self._seen_activity or doing is Quiet.busy:
            self._seen_activity = self._activity
            self._quiet_turns = 0
            self._impatient_at = self._loop.time() + _PATIENCE_S
        else:
            self._quiet_turns += 1
        if self._quiet_turns < _QUIET_TURNS:
            self._schedule()
            return
        self._next(patient=doing is Quiet.outside and self._loop.time() < self._impatient_at)

    def _next(self, *, patient: bool) -> None:
        while self._groups:
            tick, group = self._groups[-1]
            waiting = [e for e in group if not e.delivered]
            missing = [e for e in waiting if e not in self._awaited]
            late_cancels = any(at < tick for at in self._cancels.values())
            if waiting and patient and (missing or late_cancels):
                self._scheduled = True
                self._loop.call_later(_LOOK_AGAIN_S, self._turn)
                return
            self._groups.pop()
            for entry in waiting:
                entry.delivered = True
            if len(missing) < len(waiting):
                self.tick = max(self.tick, tick)
                for entry in waiting:
                    deliver = self._awaited.pop(entry, None)
                    if deliver is not None:
                        deliver()
                self._activity += 1
                self._schedule()
                return
        if self._replayed_waiters:
            for waiter in self._replayed_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._replayed_waiters.clear()
            self._activity += 1
            self._schedule()
            return
        if self._ready:
            ready, self._ready = self._ready, []
            tick = self.next_tick()
            for complete in ready:
                complete(tick)
            self._activity += 1
