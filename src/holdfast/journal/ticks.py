"""The order in which a run with several branches learns what happened.

Completions are delivered in ticks: all that are ready together, then the run settles, then the next. The tick stands in
the record, and a replay delivers the same groups in the same order, so whatever the code builds from "who was first"
(`gather`, `TaskGroup`, `wait`, `as_completed`) comes out as it did.

The run has settled when, for a few turns of the loop, no durable call was made, no task began or ended, and no task of
the run is about to run. A recorded call that the code does not make any more is passed by once the run has settled; as
long as a task waits for something of its own (a timer, a socket) the replay is patient first, for a while. A call that
the code once cancelled holds up what came after, for about as long as it took then.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Protocol

from holdfast.journal.cancels import AwaitedCancels, Overdue
from holdfast.journal.replay import CHILD_ENDED, Entry, Replay
from holdfast.journal.stillness import Quiet

_QUIET_TURNS = 3
_BUSY_TURNS = 500  # a task that spins (`while not ready: await asyncio.sleep(0)`) must not hold up what it waits for
_PATIENCE_S = 1.0
_LEAST_PATIENCE_S = 0.01
_PATIENCE_WITH_EFFECTS_S = 10.0  # not only order is at stake: the run would be blocked
_LOOK_AGAIN_S = 0.002
_TIMER_ROUNDS = 20  # nor must one that sets timers all the time


class TimersOfCode(Protocol):
    """Those that the code of a run has set by itself."""

    def pending(self, as_of: float) -> Sized:
        """Those that were not due at that time."""

    def came_due(self, since: float, until: float) -> bool:
        """Was one due then?"""


class Ticks:
    """Delivers outcomes to the calls of one run."""

    def __init__(self, replay: Replay, tasks: Callable[[], Quiet], timers: TimersOfCode) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._timers: TimersOfCode | None = timers
        self._replay = replay
        self._undelivered = replay.delivered_count
        self._open = [e for e in replay.entries.values() if e.is_open_effect and not e.claimed]
        self._awaited: dict[Entry, Callable[[], None]] = {}
        self._ready: OrderedDict[Callable[[int], None], bool] = OrderedDict()  # and whether it is delivered alone
        self.cancels = AwaitedCancels(self._loop)  #: calls that the code once cancelled, and has not cancelled yet
        self._replayed_waiters: list[tuple[asyncio.Future[None], Callable[[], bool]]] = []
        self.tick = 0
        self._last_recorded = replay.last_tick
        self.activity = 0  #: changes whenever something happens in the run
        self._seen_activity = -1
        self._quiet_turns = 0
        self._busy_turns = 0
        self._timer_rounds = 0
        self._turned_at = self._quiet_from = 0.0
        self._active_at = 0.0
        self._looked_at = self._heard_until = 0.0
        self._patience_s = _PATIENCE_S
        self._patience_with_effects_s = _PATIENCE_WITH_EFFECTS_S
        self._scheduled = False
        self._stopped = False

    @functools.cached_property
    def _groups(self) -> list[tuple[int, list[Entry]]]:
        """What is to be delivered together, the next group last. A run with one branch never needs to know."""
        return self._replay.groups()[::-1]

    def let_go(self) -> None:
        """The run is over; nobody is to be asked what it does."""
        self._tasks = lambda: Quiet.settled
        self._timers = None

    def touch(self) -> None:
        """Something happened in the run: it has not settled."""
        self.activity += 1

    def stop(self) -> None:
        """Deliver nothing any more."""
        self._stopped = True

    def go_on(self) -> None:
        """Deliver again, after a stop."""
        self._stopped = False
        self.activity += 1
        self._schedule()

    def begin_turn(self) -> int:
        """What was recorded has been delivered, or is passed by; ticks go on counting: the last one."""
        self._last_recorded = max(self.tick, self._last_recorded)
        self._undelivered = 0
        self._open = []
        self.__dict__["_groups"] = []
        return self._last_recorded

    def next_tick(self) -> int:
        """The tick of an outcome that is delivered at once, because the run has one branch."""
        self.tick = max(self.tick, self._last_recorded) + 1
        return self.tick

    def at_once(self, entry: Entry) -> None:
        """A recorded outcome is delivered at once, because the run has one branch."""
        outcome = entry.outcome
        if outcome is not None and outcome.tick:
            self._undelivered -= not entry.delivered
            self.tick = max(self.tick, outcome.tick)
        entry.delivered = True

    # with several branches

    def await_recorded(self, entry: Entry, deliver: Callable[[], None]) -> None:
        """A recorded call was made again; `deliver` is called when its turn comes."""
        assert entry.outcome is not None
        if entry.delivered:
            self._ready[lambda _tick: deliver()] = False
        else:
            self._awaited[entry] = deliver
        self.activity += 1
        self._schedule()

    def await_cancel(self, entry: Entry, overdue: Overdue, give_up: Callable[[], None]) -> None:
        """A call that the code once cancelled was made again; the replay holds its place until it is cancelled."""
        self.cancels.add(entry, overdue, give_up)
        self.activity += 1

    def cancelled(self, entry: Entry) -> None:
        self.cancels.remove(entry)
        self._awaited.pop(entry, None)
        self.activity += 1

    def complete(self, deliver: Callable[[int], None], *, alone: bool = False) -> None:
        """A body ended; `deliver` is called with its tick when its turn comes.

        `alone`: in a tick of its own. Whoever loses a race against it is cancelled before it has anything.
        """
        self._ready[deliver] = alone
        self.activity += 1
        self._schedule()

    def withdraw(self, deliver: Callable[[int], None]) -> None:
        self._ready.pop(deliver, None)

    def deliver_ready(self) -> None:
        """Have what is complete recorded and delivered, together; or the first alone, if it is to be alone."""
        ready: list[Callable[[int], None]] = []
        while self._ready:
            complete, is_alone = self._ready.popitem(last=False)
            if is_alone and ready:
                self._ready[complete] = True
                self._ready.move_to_end(complete, last=False)
                break
            ready.append(complete)
            if is_alone:
                break
        if ready:
            tick = self.next_tick()
            for complete in ready:
                complete(tick)

    @property
    def is_replayed(self) -> bool:
        """Has everything that was recorded been delivered or passed by?"""
        if not self._undelivered:
            return True
        while self._groups and all(e.delivered for e in self._groups[-1][1]):
            self._groups.pop()
        return not self._groups

    def has_delivered(self, tick: int) -> bool:
        """Was everything delivered or passed by that was recorded up to this tick?"""
        if not self._undelivered or all(e.delivered for at, group in self._groups if at <= tick for e in group):
            return True
        self._schedule()  # what the code does not ask for any more is passed by in time
        return False

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def has_work(self) -> bool:
        return bool(self._ready or self._awaited)

    async def wait_replayed(self, is_clear: Callable[[], bool]) -> None:
        """Return when the journal has no answer left to give out; a while later unless `is_clear()` by then."""
        if self.is_replayed and is_clear():
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._replayed_waiters.append((waiter, is_clear))
        self.activity += 1
        self._schedule()
        await waiter

    # settling

    def _schedule(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        before, self._turned_at = self._turned_at, self._loop.time()
        if self.activity != self._seen_activity:
            self._seen_activity = self.activity
            self._quiet_turns = self._busy_turns = self._timer_rounds = 0
            self._active_at = self._looked_at = self._heard_until = self._turned_at
            self._schedule()
            return
        doing = self._tasks()
        if doing is Quiet.busy and self._busy_turns < _BUSY_TURNS:
            self._quiet_turns = 0
            self._busy_turns += 1
        else:
            if not self._quiet_turns:
                self._quiet_from = before
            self._quiet_turns += 1
        if self._quiet_turns < _QUIET_TURNS:
            self._schedule()
        elif self._has_timer_been_called():
            self._quiet_turns = 0
            self._timer_rounds += 1
            self._schedule()
        else:
            self._next(is_outside=doing is not Quiet.settled)

    def _has_timer_been_called(self) -> bool:
        """Since the run became quiet. Whom it wakes, or cancels in a call, goes on in one of the next turns.

        If something else were delivered now, the code would hear of it later than of the timer, and a replay before.
        """
        if self._timers is None or self._timer_rounds >= _TIMER_ROUNDS:
            return False
        return self._timers.came_due(self._quiet_from, self._turned_at)

    def _look_again(self) -> None:
        self._heard_until, self._looked_at = self._looked_at, self._loop.time()
        self._scheduled = True
        self._loop.call_later(_LOOK_AGAIN_S, self._turn)

    def _next(self, *, is_outside: bool) -> None:
        quiet_s = self._loop.time() - self._active_at
        while self._groups:
            tick, group = self._groups[-1]
            waiting = [e for e in group if not e.delivered]
            missing = [e for e in waiting if e not in self._awaited]
            if waiting and (
                self._is_held(tick, waiting, is_outside) or self._is_open_effect_due(is_outside, quiet_s, group)
            ):
                self._look_again()
                return
            if missing and self._is_patient(missing, is_outside, quiet_s):
                self._look_again()
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
                self.activity += 1
                self._schedule()
                return
        is_own = not is_outside and bool(self._replayed_waiters) and self._has_own_timers()
        is_patient = (is_outside or is_own) and quiet_s < _PATIENCE_WITH_EFFECTS_S
        is_freed = [not is_patient or w.done() or is_clear() for w, is_clear in self._replayed_waiters]
        if any(is_freed):
            waiters, self._replayed_waiters = self._replayed_waiters, []
            for each, is_free in zip(waiters, is_freed, strict=True):
                if not is_free:
                    self._replayed_waiters.append(each)
                elif not each[0].done():
                    each[0].set_result(None)
            self.activity += 1
            self._schedule()
        elif self._ready and (
            self._is_held(self._last_recorded + 1, [], is_outside) or self._is_open_effect_due(is_outside, quiet_s, [])
        ):
            self._look_again()
        elif self._ready:
            self.deliver_ready()
            self.activity += 1
            if self._replayed_waiters or self._ready:
                self._schedule()
        elif self._replayed_waiters:
            self._look_again()

    def _has_own_timers(self) -> bool:
        """Is the code yet to hear of a timer that it has set? One that was due at the last look but one was heard of.

        What was due since may not have been called, and whoever it wakes goes on some turns later.
        """
        return self._timers is not None and len(self._timers.pending(self._heard_until)) > 0

    @property
    def has_unasked_effects(self) -> bool:
        """Was an effect cut off that the code has not come to yet?"""
        self._open = [e for e in self._open if not e.claimed]
        return bool(self._open)

    def _is_patient(self, missing: list[Entry], is_outside: bool, quiet_s: float) -> bool:
        """Is something waited for after which the code may ask for these? A timer of its own comes in any case."""
        is_own = not is_outside and self._has_own_timers()
        if not is_outside and not is_own:
            return False
        with_effects_s = self._patience_with_effects_s if is_own and any(e.is_effect for e in missing) else 0.0
        if quiet_s < max(self._patience_s, with_effects_s):
            return True
        self._patience_s = max(self._patience_s / 2, _LEAST_PATIENCE_S)
        self._patience_with_effects_s = 0.0 if with_effects_s else self._patience_with_effects_s
        return False

    def _is_held(self, tick: int, waiting: list[Entry], is_outside: bool) -> bool:
        """Is a call to be cancelled first?

        The end of a child that was given up comes of a cancellation, and holds up nothing that may lead to one. What
        the code waits for by itself comes in any case.
        """
        if not self.cancels.are_due_before(tick):
            return False
        return is_outside or self._has_own_timers() or any(e.name != CHILD_ENDED for e in waiting)

    def _is_open_effect_due(self, is_outside: bool, quiet_s: float, group: list[Entry]) -> bool:
        """Has a task that waits outside yet to ask for an effect that was cut off, begun before this group ended?

        Going on might cancel that task, and then nobody could settle the effect. Given up once, for all of them: code
        that no longer makes the call must not wait at every tick.
        """
        if not self._open or not is_outside:
            return False
        self._open = [] if quiet_s >= _PATIENCE_WITH_EFFECTS_S else [e for e in self._open if not e.claimed]
        end = max((e.outcome.seq for e in group if e.outcome is not None), default=None)
        return any(end is None or e.seq < end for e in self._open)
