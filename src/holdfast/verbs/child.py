"""Runs that a run waits for: a call of an agent, awaited inside a run, is a child run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import monotonic_us
from holdfast.base.shields import Shield, go_on_with
from holdfast.codec import Coder, coder_for, encode_error
from holdfast.errors import NotInRun, RunError
from holdfast.journal.replay import CHILD_ENDED
from holdfast.model import Kind, RunId, WaitKind
from holdfast.running.call import DurableCall
from holdfast.running.children import ChildStart, Startable, child_of, start_once
from holdfast.running.cleaning import to_its_end
from holdfast.running.outcomes import answer, deliver, remember_key
from holdfast.running.pending import block_child
from holdfast.running.scopes import Scope, check_branch, scope_or_none

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

_ENDED = ".ended"  # of a child that was given up, and had to undo what it had done


async def await_child(call: Startable) -> Any:
    """A child run: start it (once), wait for its end, record what it was."""
    name = call.agent.name
    scope = scope_or_none()
    if scope is None:
        raise NotInRun(
            f"{name}(…) was awaited outside of a run. Use `hf.run({name}(…))`, or "
            f"`run = await app.start({name}(…))` and `await run.result()`."
        )
    check_branch(scope, name)
    return await ChildCall(scope, call).make()


class ChildCall(DurableCall[Any]):
    """One child run, waited for."""

    __slots__ = ("call",)

    is_outward = True

    def __init__(self, scope: Scope, call: Startable) -> None:
        super().__init__(scope, call.agent.name, call.input.given)
        self.call = call

    @property
    def coder(self) -> Coder[Any]:
        return self.call.agent.coder

    async def hold(self, entry: Entry) -> None:
        run = self.run
        try:
            await super().hold(entry)
        except asyncio.CancelledError:
            if not run.life.dead:  # a crash may have come in between
                await _end_child(self.scope, entry.key, child_of(run, entry.key, entry))
            raise
        if entry.outcome is not None and entry.outcome.seq > run.replay.reopened:
            await block_child(self.scope, entry)

    async def pass_gate(self) -> None:
        entry = self.entry
        try:
            await super().pass_gate()
        except asyncio.CancelledError:
            if entry is not None and entry.child is not None and not self.run.life.dead:
                await self._give_up(entry.key, RunId(entry.child), monotonic_us())
            raise

    async def execute(self) -> Any:
        run = self.run
        self.scope.enter_call()
        try:
            with run.activity.busy():
                child, cancelled = await start_once(self, self.call, ChildStart())
            return await self._wait(child, cancelled)
        finally:
            self.scope.leave_call()

    async def _wait(self, child: RunId, cancelled: asyncio.CancelledError | None) -> Any:
        """Wait for the end of a child. One that does not execute here is waited for without a process."""
        run, key, coder = self.run, self.key, self.call.agent.coder
        began = monotonic_us()
        try:
            if cancelled is not None:
                raise cancelled
            read = await _end_of(run, child, key, self.name)
        except asyncio.CancelledError:
            if not run.life.dead:
                await self._give_up(key, child, began)
            raise
        value: Any = None
        error: Exception | None = None
        try:
            value = read(coder)
            payload = coder.dumps(value, what=f"the result of {key}")
        except RunError as failed:
            error = failed
            payload = encode_error(failed)
        kind = Kind.done if error is None else Kind.failed

        def record(tick: int) -> None:
            took = monotonic_us() - began
            run.journal.add(kind, key, self.name, tick=tick, took=took, payload=payload)

        await deliver(self.scope, record)
        if error is not None:
            raise remember_key(error, key)
        return value

    async def _give_up(self, key: str, child: RunId, began: int) -> None:
        """Nobody waits for the child any more: it is cancelled too."""
        run = self.run
        run.journal.add(Kind.cancelled, key, self.name, tick=run.ticks.tick, took=monotonic_us() - began)
        await _end_child(self.scope, key, child)


async def _end_child(scope: Scope, key: str, child: RunId) -> None:
    """Have a child cancelled, and wait until it has undone what it did: that came after what the parent did.

    When the parent goes on is a record with a tick, if it had to wait; so a replay has the same order.
    """
    run, handled = scope.run, sys.exception()
    ended = run.replay.entries.get(key + _ENDED)
    if ended is not None and ended.outcome is not None:
        run.replay.pass_by(ended)
        await _endure(run, answer(scope, ended, coder_for(type(None)), ()))
        return

    async def end() -> bool:
        # Why nobody waits any more is on disk first: a crash must not bring back a run that waits for one cancelled.
        await run.journal.barrier()
        return await run.host.cancel_child(child, parent=run)

    was_in_call = scope.in_call
    scope.leave_call()
    try:
        with run.activity.busy_apart():
            has_ended, kept = await to_its_end(run, end())
            go_on_with(handled, kept)
    finally:
        scope.leave_call(was_in_call)
    if not has_ended:
        scope.enter_call()
        try:
            await _endure(run, _wait_undone(scope, child, key))
        finally:
            scope.leave_call(was_in_call)


async def _endure(run: RunContext, work: Coroutine[Any, Any, None]) -> None:
    """Await something, whoever cancels; the cancellation that is being handled goes on."""
    shield = Shield(run.life.is_dead)
    await shield.drive(work)
    go_on_with(shield.handled, shield.kept)


async def _wait_undone(scope: Scope, child: RunId, key: str) -> None:
    run = scope.run
    await _end_of(run, child, key + _ENDED, "the end of a child")

    def record(tick: int) -> None:
        run.journal.add(Kind.done, key + _ENDED, CHILD_ENDED, tick=tick, payload="null")

    await deliver(scope, record, shielded=True)


async def _end_of(run: RunContext, child: RunId, key: str, name: str) -> Callable[[Coder[Any]], Any]:
    """Wait until a child has ended; its result, to be read by a coder (or raised)."""
    handle = run.host.handle(child, run.thread_id)
    while True:
        run.inbox.look_at(child)
        with run.activity.busy():
            if (execution := run.host.local(child)) is not None:
                await execution.wait_ended()
            look = partial(handle._ended, execution)
            read: Callable[[Coder[Any]], Any] | None = await run.patiently(look)
        if read is not None:
            return read
        if run.host.local(child) is None and not run.inbox.has_ended(child):
            await run.waits.wait(key, WaitKind.child, {"name": name, "child": child})
