"""Waiting without a process: a run in which nothing happens but waiting leaves memory until there is news."""

from __future__ import annotations

import asyncio

from holdfast.base import faults
from holdfast.base.clock import now_us, ready_us
from holdfast.errors import StoreError
from holdfast.journal.stillness import Quiet
from holdfast.model import Applied, Status, Wait, WaitKind
from holdfast.model.reasons import HandedOver, Paused, Reason, Stood, Waiting
from holdfast.model.waits import foremost
from holdfast.running.context import RunContext
from holdfast.running.current import outside
from holdfast.worker.cancelling import Cancelling
from holdfast.worker.endings import Ending
from holdfast.worker.interrupts import Interrupts
from holdfast.worker.keeping import Keeping
from holdfast.worker.mailbox import Mailbox
from holdfast.worker.pausing import Pausing

_PARK_GRACE_S = 0.02
SHORT_WAIT_US = 1_000_000  # not worth leaving memory for
_LONGEST_LOOK_S = 1.0
_LOOK_TURNS = 4  # from a callback to what the code does about it


class Parking:
    """Of one execution."""

    def __init__(
        self,
        run: RunContext,
        *,
        ending: Ending,
        mailbox: Mailbox,
        cancelling: Cancelling,
        interrupts: Interrupts,
        pausing: Pausing,
    ) -> None:
        self._run = run
        self._ending = ending
        self._mailbox = mailbox
        self._cancelling = cancelling
        self._interrupts = interrupts
        self._pausing = pausing
        self._keeping = Keeping(run)
        self._look_later: asyncio.TimerHandle | None = None
        self._looked_at = (-1, 0.0)
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._look_later is not None:
            self._look_later.cancel()

    async def wait(self) -> None:
        """If the run is leaving, return when it has left, or has not."""
        if self._task is not None:
            await asyncio.wait({self._task})

    @property
    def is_idle(self) -> bool:
        """Does nothing happen here but waiting?"""
        run = self._run
        if (
            run.activity.is_at_work
            or run.ticks.has_work
            or self._mailbox.is_reading
            or self._interrupts.has_news
            or self._cancelling.is_under_way
        ):
            return False
        return run.is_waiting and run.activity.quiet() is not Quiet.busy

    # looking whether it can leave

    def look_soon(self) -> None:
        """Something waits: perhaps there is nothing else."""
        run = self._run
        now = run.life.loop.time()
        if (later := self._look_later) is not None and later.when() > now + _PARK_GRACE_S:
            later.cancel()  # it was going to look without haste
            later = None
        if later is None and run.goes_on:
            self._looked_at = (run.ticks.activity, now)
            self._look_in(_PARK_GRACE_S)

    def _look_in(self, delay_s: float) -> None:
        loop = self._run.life.loop
        due = loop.time() + delay_s
        self._look_later = loop.call_at(due, self._look, due)

    def _look(self, due: float, turns: int = _LOOK_TURNS) -> None:
        """Leave memory, if nothing happened for a while and nothing is about to.

        A timer of the code's own may have been due in the same turn of the loop: what it sets off comes first.
        """
        run = self._run
        if turns:
            run.life.loop.call_soon(self._look, due, turns - 1)
            return
        self._look_later = None
        has_reason = run.waits or run.gate.paused
        if run.life.dead or self._task is not None or not self._cancelling.has_begun or not has_reason:
            return
        if run.ticks.activity != self._looked_at[0] or not self.is_idle:
            self.look_soon()
            return
        idle_s = run.life.loop.time() - self._looked_at[1]
        if not self._keeping.is_kept(due, idle_s):
            wake_at = run.waits.next_due_us()
            if run.gate.paused or wake_at is None or wake_at - now_us() > SHORT_WAIT_US:
                run.freeze()
                self._keeping.leaves()
                self._task = asyncio.Task(self._park(), loop=run.life.loop, context=outside())
                return
        self._look_in(min(max(_PARK_GRACE_S, idle_s / 4), _LONGEST_LOOK_S))

    # leaving

    async def _park(self) -> None:
        """Give the run up until what it waits for comes, unless it has come already."""
        run = self._run
        self._ending.sum_up()
        status, reason, wake_at = self._why_waiting()
        faults.point("park.before")
        try:
            applied = await run.journal.park(status, reason, wake_at=wake_at, mail=self._mailbox.seen)
        except StoreError as error:
            run.life.stop(error)
            return
        finally:
            self._task = None
        faults.point("park.after")
        if applied is Applied.committed:
            self._ending.committed()
            run.life.stop()
        elif applied is Applied.unread and not run.life.dead:  # whether or not the agent has ended
            run.thaw()
            self._mailbox.came()
            self.look_soon()

    def _why_waiting(self) -> tuple[Status, Reason, int | None]:
        """The status, what is waited for, and when to wake up at the latest."""
        run, has_cleanup = self._run, self._cancelling.has_cleanup
        waits = tuple(
            Wait(wait.kind, wait.key, wait.due_us, wait.shown) for wait in sorted(run.waits, key=lambda each: each.key)
        )
        due = run.waits.next_due_us()
        status = {WaitKind.doubt: Status.in_doubt, WaitKind.timer: Status.sleeping}.get(foremost(waits), Status.waiting)
        reason = Waiting(waits, due, self._mailbox.seen, has_cleanup)
        if run.gate.paused:
            is_idle = run.waits and not run.gate.kept_back and not self._keeping.has_own
            was = status if is_idle else Status.queued
            return Status.paused, Paused(was, *self._pausing.told_by, Stood(reason, due)), None
        if run.gate.kept_back and run.gate.draining:  # not everything waits: a call could go on, elsewhere
            return Status.queued, HandedOver(has_cleanup), ready_us()
        return status, reason, due
