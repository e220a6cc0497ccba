"""What a run does to other runs: durable calls that the other side knows by a derived id, so none happens twice.

And what it waits for in them: without a process, and a replay has it at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from holdfast.base.clock import now_us
from holdfast.codec import Coder, digest, encode_error
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    ConflictingSend,
    CorruptJournal,
    QuestionChanged,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    StoreError,
    UsageError,
)
from holdfast.model import Kind
from holdfast.running.calls import Body, Options, Retry, answer, remember_key
from holdfast.running.pending import until_cancelled
from holdfast.running.scopes import in_branch
from holdfast.running.waits import waiting
from holdfast.verbs.effect.effect import EffectDefinition, Rules
from holdfast.verbs.step import StepDefinition
from holdfast.verbs.values import this_step

T = TypeVar("T")

_POLL_US, _LONGEST_POLL_US = 100_000, 60_000_000

_REFUSALS = (
    UsageError,
    RunFinished,
    RunNotFound,
    RunPruned,
    RunMoved,
    AlreadyDecided,
    AlreadySettled,
    QuestionChanged,
    ConflictingSend,
    CorruptJournal,
)


async def outward(name: str, body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call `body` as an effect that may be repeated after a crash: whoever it reaches knows the second one."""
    options = Options(f"hf.{name}", Retry(100, most=5.0), None, (StoreError,), _REFUSALS)
    return await EffectDefinition(Body(body), options, Rules("retry", 0, is_closure=True)).call(args, {})


async def recorded(name: str, find: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Look at something, as a step: what the code does next depends on it, so a replay must find the same."""
    options = Options(f"hf.{name}", Retry(100, most=5.0), None, (StoreError,), _REFUSALS)
    return await StepDefinition(Body(find), options).call(args, {})


async def emit(event: str, value: Any = None, *, dedup: str | None = None) -> str:
    """Inside a run: emit an event, as `app.emit` does outside. A replay does not emit it again. Its id.

    Example: `await hf.emit("report.ready", {"id": 7})`
    """
    run = in_branch("hf.emit()").run

    async def emit(event: str, value: Any) -> str:
        try:
            return await run.host.emit(event, value, dedup=dedup or this_step().idempotency_key)
        except ConflictingSend as conflict:
            if dedup is not None:
                raise
            return conflict.known  # its own id: it was emitted just before a crash, whatever the code says now

    return str(await outward("emit", emit, (event, value)))


class Awaited(NamedTuple):
    """What a run waits for in another run."""

    verb: str  #: as users write it
    name: str  #: of the call
    run_id: str
    mark: str  #: which of its kind, in that run
    missed: str  #: what did not come, if it does not in time


async def wait_for(
    awaited: Awaited, look: Callable[[], Awaitable[tuple[T | None, bool]]], coder: Coder[T], timeout: float | None
) -> T:
    """Wait, inside a run, for something in another run; TimeoutError after a time.

    `look` tells what is there, if it is, and whether this run is told when there may be news; else it is asked from
    time to time.
    """
    scope = in_branch(awaited.verb)
    run = scope.run
    if run.halted:
        await run.check(scope)
    mark = digest(awaited.mark)
    entry = run.claim(scope, awaited.name, mark, None)
    if entry is not None and entry.outcome is not None:
        if not entry.was_cancelled:
            found: T = await answer(scope, entry, coder, ())
            return found
        await until_cancelled(scope, entry)
    due_us = None if timeout is None else now_us() + int(timeout * 1_000_000)
    async with waiting(scope, awaited.name, entry, due_us=due_us, digest=mark) as call:
        value: T | None = None
        if entry is None or entry.decided is None:
            poll_us = _POLL_US
            while True:
                run.ended_children.discard(awaited.run_id)
                with run.busy():
                    value, is_told = await look()
                if value is not None or (call.due_us is not None and now_us() >= call.due_us):
                    break
                if awaited.run_id in run.ended_children:
                    continue
                wake_us = call.due_us
                if not is_told:
                    wake_us = min(now_us() + poll_us, wake_us or now_us() + poll_us)
                    poll_us = min(poll_us * 2, _LONGEST_POLL_US)
                shown = {"name": awaited.name.removeprefix("hf:"), "child": awaited.run_id}
                await run.wait(call.key, "child", shown, due_us=wake_us)
            if value is None:
                await call.decide({"expired": True})
        if value is None:
            error = TimeoutError(f"run {run.id}: {awaited.missed}")
            await call.end(Kind.failed, encode_error(error))
            raise remember_key(error, call.key)
        await call.end(Kind.done, coder.dumps(value))
    return value
