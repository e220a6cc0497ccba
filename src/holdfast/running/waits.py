"""What the waits for something from outside have in common: timers, signals, questions, children.

A wait begins with a `started` record that holds its absolute due time. How it ends is decided by a commit (a `decided`
record, the row of a question, the end of a child); the code learns it after that, at a tick, as any other outcome. The
outcome is recorded when the code takes it: a wait that is cancelled in the last moment leaves what it was given.
"""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.data import mutable
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.calls import elapsed_us
from holdfast.running.scopes import Scope

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry


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
        if run.gate is not None:
            await run.pass_gate(self.scope)
        if run.lines == 1:
            return run.ticks.next_tick()
        turn: asyncio.Future[int] = run.loop.create_future()

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
        took = elapsed_us(self.began_us)
        self.scope.run.journal.end(self.key, kind, tick=tick, took=took, payload=payload)

    async def decide(self, how: dict[str, Any]) -> None:
        """Have it on disk how this wait ends."""
        run = self.scope.run
        with run.busy():
            run.journal.add(Kind.decided, self.key, self.name, payload=json.dumps(how))
            await run.journal.barrier(inline=run.may_commit_inline)


class waiting:
    """An open wait, as `async with waiting(…) as call`. A recorded due time stays; `due_us` is for a new one."""

    def __init__(
        self,
        scope: Scope,
        name: str,
        entry: Entry | None,
        *,
        due_us: int | None,
        digest: str = "",
        args: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        run = scope.run
        key = entry.key if entry is not None else run.new_key(scope, name, None)
        payload = None
        if entry is not None and entry.started is not None:
            due_us = json.loads(entry.started.payload or "{}").get("due")
            payload = entry.started.payload if more is None else None
        payload = payload or json.dumps({"due": due_us, **(more or {})})
        self._opened = OpenCall(key, name, 1, now_us(), digest, args, payload)
        self._call = WaitCall(scope, key, name, monotonic_us(), due_us)

    async def __aenter__(self) -> WaitCall:
        scope = self._call.scope
        self._was_in_call, scope.in_call = scope.in_call, True
        scope.run.journal.begin(self._opened)
        return self._call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call = self._call
        run = call.scope.run
        if isinstance(error, asyncio.CancelledError) and not run.dead and not call.has_ended:
            took = elapsed_us(call.began_us)
            run.journal.end(call.key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
        call.scope.in_call = self._was_in_call
