"""Time that a test moves: what takes weeks happens in milliseconds, and in the same order each time.

The clock does not jump over things. It goes from one due time to the next, lets everything happen that is due then,
waits until nothing is going on any more, and only then goes further: a run that sleeps for a day, works, and sleeps for
another day sees the days pass as it would have.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final

from holdfast.app import Holdfast
from holdfast.base import clock
from holdfast.errors import UsageError
from holdfast.journal.stillness import Quiet
from holdfast.model import RunFilter, Status
from holdfast.worker.execution import Execution
from holdfast.worker.parking import SHORT_WAIT_US as SHORT_WAIT_US

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
#: What may wake up by itself.
_WAKING: Final = frozenset({Status.queued, Status.sleeping, Status.waiting, Status.in_doubt})
#: Definitions that may have a due time.
_TIMED: Final = ("schedule", "trigger", "event")
#: Runs and definitions that are looked at to find the next due time.
_MANY: Final = 100_000
#: How long a look is waited for before the next one is asked for.
_LOOK_S: Final = 0.002
#: How long runs are waited for that seem about to change.
_PATIENCE_S: Final = 5.0


class Clock:
    """The wall clock of this process, moved by the test, for the runs, timers and schedules of an app.

    It stands still between skips, so that a test is the same each time; with `frozen=False` it goes on. Only what
    Holdfast waits for is moved: a step that calls `asyncio.sleep` sleeps. On leaving, the time is the real one again.
    One at a time, and other processes have their own.

    Example:
        async with hf.connect("runs.db", agents=[reminder]) as app, Clock(app) as clock:
            run = await app.start(reminder("Ada"))
            await clock.skip(days=2)
            assert await run.status() == "done"
    """

    def __init__(self, app: Holdfast, *, frozen: bool = True) -> None:
        self._app = app
        self._frozen = frozen

    async def __aenter__(self) -> Clock:
        if clock.is_frozen():
            raise UsageError("Another Clock is in use: a process has one wall clock.")
        self._executor = self._app._here
        if not self._executor.executes:
            raise UsageError("Clock takes an app that executes: hf.connect(…, agents=[…]).")
        if self._frozen:
            clock.freeze(clock.now_us())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        clock.reset()

    def now(self) -> datetime:
        """The time that runs see, in UTC.

        Example: `assert clock.now().hour == 8`
        """
        return _EPOCH + timedelta(microseconds=clock.now_us())

    async def skip(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Have this much time pass, and everything happen that is due meanwhile; return when all is quiet again.

        Example: `await clock.skip(days=2)`
        """
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if length < timedelta(0):
            raise UsageError(f"skip() goes forward; got {length}.")
        await self._go_to(clock.now_us() + length // timedelta(microseconds=1))

    async def skip_to(self, at: datetime) -> None:
        """As `skip`, up to a time.

        Example: `await clock.skip_to(datetime(2027, 1, 1, tzinfo=UTC))`
        """
        if at.tzinfo is None:
            raise UsageError(f"skip_to() takes a datetime with a time zone; got {at!r}.")
        until_us = (at - _EPOCH) // timedelta(microseconds=1)
        if until_us < clock.now_us():
            raise UsageError(f"skip_to() goes forward: it is {self.now()} already, and {at} has passed.")
        await self._go_to(until_us)

    async def settle(self) -> None:
        """Have everything happen that can happen at this time, and return when all is quiet.

        Example: `await clock.settle()`
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE_S
        await self._quiet()
        while any(map(_is_changing, self._executor.executions)) and loop.time() < give_up:
            await self._quiet()

    async def _quiet(self) -> None:
        """Have the app look at everything, again and again, until it finds nothing more to do."""
        quiet = asyncio.ensure_future(self._executor.quiet())
        try:
            while not quiet.done():
                self._executor.nudge()
                await asyncio.wait({quiet}, timeout=_LOOK_S)
            await quiet
        finally:
            quiet.cancel()

    async def _go_to(self, until_us: int) -> None:
        await self.settle()
        while (due_us := await self._next_due(until_us)) is not None:
            self._set(due_us)
            await self.settle()
        self._set(until_us)

    def _set(self, at_us: int) -> None:
        # Unless it has gone there by itself.
        clock.shift_us(max(0, at_us - clock.now_us()))

    async def _next_due(self, until_us: int) -> int | None:
        """The next time that something is to happen at; what is due by now and was left is not for this app."""
        now_us = clock.now_us()
        store = self._executor.store
        dues = [self._executor.timers.next_due(), await store.next_wake()]
        if dues[1] is not None and dues[1] <= now_us:
            rows = await store.runs(RunFilter(status=_WAKING, limit=_MANY))
            dues += [row.wake_at for row in rows if row.owner is None]
        for kind in _TIMED:
            dues += [each.due_at for each in await store.definitions(kind, due=until_us, limit=_MANY)]
        return min((due for due in dues if due is not None and now_us < due <= until_us), default=None)


def _is_changing(execution: Execution) -> bool:
    """Is a run about to begin, to end, or to leave memory? It is in the records whether it did, so it is waited for."""
    run = execution.run
    if run.life.dead or not execution.is_idle:
        return True
    if run.activity.quiet() is not Quiet.settled or run.activity.own_timers.pending(run.life.loop.time()):
        return False  # it waits for something of its own, which time has no power over
    due_us = run.waits.next_due_us()
    is_short = due_us is not None and due_us - clock.now_us() <= SHORT_WAIT_US
    return not run.waits or run.gate.paused or not is_short
