"""What the waits for something from outside have in common: timers, signals, questions, children.

A wait begins with a `started` record that holds its absolute due time. How it ends is decided by a commit (a `decided`
record, the row of a question, the end of a child); the code learns it after that, at a tick, as any other outcome. The
outcome is recorded when the code takes it: a wait that is cancelled in the last moment leaves what it was given.
"""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any

from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.data import mutable
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.call import DurableCall
from holdfast.running.scopes import Scope


@mutable
class WaitCall:
    """One wait, while it is open."""

    scope: Scope
    key: str
    name: str
    began_us: int
    due_us: int | None
    has_ended: bool = False

    async def turn(self) -> int:
        """Return when it is this call's turn, with its tick."""
        run = self.scope.run
        if run.gate.shut is not None:
            await run.gate.pass_(self.scope, begins=False)
        if run.activity.lines == 1:
            return run.ticks.next_tick()
        turn: asyncio.Future[int] = run.life.loop.create_future()

        def complete(tick: int) -> None:
            if not turn.done():
                turn.set_result(tick)

        run.ticks.complete(complete, alone=True)
        try:
            return await turn
        except asyncio.CancelledError:
            run.ticks.withdraw(complete)
            raise

    async def end(self, kind: Kind, payload: str | None) -> None:
        """Record the outcome when it is its turn; the code goes on with it at once."""
        tick = await self.turn()
        self.has_ended = True
        took = monotonic_us() - self.began_us
        self.scope.run.journal.end(self.key, kind, tick=tick, took=took, payload=payload)

    async def decide(self, how: dict[str, Any]) -> None:
        """Have it on disk how this wait ends."""
        run = self.scope.run
        with run.activity.busy():
            run.journal.add(Kind.decided, self.key, self.name, payload=json.dumps(how))
            await run.journal.barrier(inline=run.may_commit_inline)


class waiting:
    """An open wait, as `async with waiting(…) as call`. A recorded due time stays; `due_us` is for a new one."""

    def __init__(
        self, call: DurableCall[Any], *, due_us: int | None, args: str | None = None, more: dict[str, Any] | None = None
    ) -> None:
        payload, entry = None, call.entry
        if entry is not None and entry.started is not None:
            due_us = json.loads(entry.started.payload or "{}").get("due")
            payload = entry.started.payload if more is None else None
        payload = payload or json.dumps({"due": due_us, **(more or {})})
        self._opened = OpenCall(call.key, call.name, 1, now_us(), call.digest, args, payload)
        self._call = WaitCall(call.scope, call.key, call.name, monotonic_us(), due_us)

    async def __aenter__(self) -> WaitCall:
        scope = self._call.scope
        self._was_in_call = scope.enter_call()
        scope.run.journal.begin(self._opened)
        return self._call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call = self._call
        run = call.scope.run
        if isinstance(error, asyncio.CancelledError) and not run.life.dead and not call.has_ended:
            took = monotonic_us() - call.began_us
            run.journal.end(call.key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
        call.scope.leave_call(self._was_in_call)
