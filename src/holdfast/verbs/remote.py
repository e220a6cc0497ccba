"""What a run does to other runs: durable calls that the other side knows by a derived id, so none happens twice.

And what it waits for in them: without a process, and a replay has it at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from holdfast.base.clock import now_us
from holdfast.codec import Coder, coder_for, digest, encode_error
from holdfast.control import signals
from holdfast.control.acting import was_done
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
from holdfast.history.lookup import row_of
from holdfast.history.replies import REPLY, Replies
from holdfast.history.results import end_of
from holdfast.model import Kind, RunId, Status, WaitKind
from holdfast.running.bodies import Body
from holdfast.running.call import DurableCall
from holdfast.running.options import Options, Retry
from holdfast.running.outcomes import remember_key
from holdfast.running.scopes import Scope, in_branch
from holdfast.running.waiting import WaitCall, waiting
from holdfast.store.contract import Store
from holdfast.verbs.effect.effect import EffectDefinition
from holdfast.verbs.effect.rules import Rules
from holdfast.verbs.step import StepDefinition
from holdfast.verbs.values import this_step

T = TypeVar("T")

_POLL_US, _LONGEST_POLL_US = 100_000, 60_000_000
_REPLY = "hf:reply"
_RESULT = "hf:result"
_DONE = {"pause": Status.paused.value, "cancel": Status.cancelled.value, "resume": ""}
_END: Coder[tuple[str, str, str]] = coder_for(tuple[str, str, str])  # agent, status, what it ended with

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


async def remote_call(name: str, body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
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

    return str(await remote_call("emit", emit, (event, value)))


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
    return await RemoteWait(in_branch(awaited.verb), awaited, look, result_coder=coder, timeout=timeout).make()


class RemoteWait(DurableCall[T]):
    """One wait for something in another run."""

    __slots__ = ("_coder", "awaited", "look", "timeout")

    passes_gate = False  # it begins nothing: it looks, and what it finds is kept back at the gate
    outlasts = False  # nobody knows when another run gets there: in clean-up too, whoever cancels is heard

    def __init__(
        self,
        scope: Scope,
        awaited: Awaited,
        look: Callable[[], Awaitable[tuple[T | None, bool]]],
        *,
        result_coder: Coder[T],
        timeout: float | None,
    ) -> None:
        super().__init__(scope, awaited.name, digest(awaited.mark))
        self.awaited = awaited
        self.look = look
        self._coder = result_coder
        self.timeout = timeout

    @property
    def coder(self) -> Coder[T]:
        return self._coder

    async def execute(self) -> T:
        entry, timeout = self.entry, self.timeout
        due_us = None if timeout is None else now_us() + int(timeout * 1_000_000)
        async with waiting(self, due_us=due_us) as call:
            value: T | None = None
            if entry is None or entry.decided is None:
                value = await self._find(call)
                if value is None:
                    await call.decide({"expired": True})
            if value is None:
                error = TimeoutError(f"run {self.run.id}: {self.awaited.missed}")
                await call.end(Kind.failed, encode_error(error))
                raise remember_key(error, call.key)
            await call.end(Kind.done, self.coder.dumps(value))
        return value

    async def _find(self, call: WaitCall) -> T | None:
        """What is there, once it is; None: it is too late."""
        run, child = self.run, self.awaited.run_id
        poll_us = _POLL_US
        while True:
            run.inbox.look_at(child)
            with run.activity.busy():
                value, is_told = await self.look()
            if value is not None or (call.due_us is not None and now_us() >= call.due_us):
                return value
            if run.inbox.has_ended(child):
                continue
            wake_us = call.due_us
            if not is_told:
                wake_us = min(now_us() + poll_us, wake_us or now_us() + poll_us)
                poll_us = min(poll_us * 2, _LONGEST_POLL_US)
            shown = {"name": self.awaited.name.removeprefix("hf:"), "child": child}
            await run.waits.wait(call.key, WaitKind.child, shown, due_us=wake_us)


# what a run does to another: the names of the arguments are recorded, so they stay


async def act_on(
    store: Store, run_id: RunId, name: str, act: Callable[..., Awaitable[Any]], *, by: str | None, note: str
) -> str:
    """Pause, resume or cancel another run: what that says, or how the run stands after it."""

    async def told(run_id: str) -> str:
        info = this_step()
        own_id, other = info.idempotency_key, RunId(run_id)
        if info.attempt > 1 and await was_done(store, other, own_id):
            return _DONE[name]  # just before a crash; who acted since then is not overridden
        by_whom = by or f"run {info.run_id}"
        return str(await act(store, other, by=by_whom, note=note, own_id=own_id) or _DONE[name])

    return str(await remote_call(name, told, (run_id,)))


async def send_to(
    run_id: RunId, name: str, text: str, send: Callable[..., Awaitable[bool]], *, dedup: str | None, by: str | None
) -> bool:
    """Send a signal to another run; `send` does so under an id."""

    async def send_once(run_id: str, name: str, text: str) -> bool:
        info = this_step()
        by_whom = by or f"run {info.run_id}"
        if dedup is not None:
            return await send(name, text, dedup=dedup, by=by_whom)
        with suppress(ConflictingSend):  # its own id: it was sent just before a crash, whatever the code says now
            await send(name, text, dedup=info.idempotency_key, by=by_whom)
        return True

    return bool(await remote_call("send", send_once, (run_id, name, text)))


async def answer_in(
    question: str, text: str | None, decision: Callable[..., Awaitable[None]], *, by: str | None
) -> None:
    """Answer or decline a question of another run; `decision` does so under an id."""

    async def decide(question: str, text: str | None) -> None:
        info = this_step()
        await decision(by=by or f"run {info.run_id}", dedup=info.idempotency_key)

    await remote_call("answer", decide, (question, text))


async def settle_in(
    run_id: str,
    key: str,
    attempt: int,
    verdict: dict[str, str],
    settle: Callable[..., Awaitable[None]],
    *,
    by: str | None,
) -> None:
    """Say what became of an effect of another run; `settle` does so under an id."""

    async def resolve(run_id: str, key: str, attempt: int, verdict: dict[str, str]) -> None:
        info = this_step()
        await settle(by=by or f"run {info.run_id}", dedup=info.idempotency_key)

    await remote_call("resolve", resolve, (run_id, key, attempt, verdict))


async def interrupt_in(store: Store, run_id: RunId, text: str, *, by: str | None, timeout_s: float | None) -> Any:
    """Interrupt another run, and wait for the reply of its handler."""

    async def interrupt(run_id: str, text: str) -> int:
        info = this_step()
        by_whom = by or f"run {info.run_id}"
        return await signals.interrupt(store, RunId(run_id), text, by=by_whom, dedup=info.idempotency_key)

    number = int(await remote_call("interrupt", interrupt, (run_id, text)))
    replies = Replies(store, run_id, number)

    async def find_reply() -> tuple[tuple[str, str] | None, bool]:
        return await replies.look(await row_of(store, run_id)), False

    awaited = Awaited("Run.interrupt()", _REPLY, run_id, f"{run_id}/{number}", f"{run_id} did not reply in time")
    return replies.read(await wait_for(awaited, find_reply, REPLY, timeout_s))


async def wait_end(store: Store, run_id: RunId, timeout_s: float | None) -> tuple[str, Status, str]:
    """Wait for the end of another run: its agent, how it ended, and what with, as JSON text."""
    own_id = in_branch("Run.result()").run.id

    async def find_end() -> tuple[tuple[str, str, str] | None, bool]:
        row = await row_of(store, run_id)
        is_told = row.parent_id == own_id  # a child tells of its end
        if not row.status.is_final:
            return None, is_told
        row, text = await end_of(store, run_id)
        return (row.agent, row.status.value, text), is_told

    awaited = Awaited("Run.result()", _RESULT, run_id, run_id, f"{run_id} did not end in time")
    agent, status, text = await wait_for(awaited, find_end, _END, timeout_s)
    return agent, Status(status), text
