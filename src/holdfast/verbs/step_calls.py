"""Calls of steps.

A step needs no durable intent. Its outcome is appended and flushed in the background; the agent goes on at once. A
crash before the flush makes the step run again, which is what "safe to repeat" means.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.tracebacks import trimmed
from holdfast.codec import encode_error, roundtrip_error
from holdfast.errors import HoldfastError, RetryLater
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.bodies import Body, LateThread
from holdfast.running.call import DurableCall
from holdfast.running.options import Options
from holdfast.running.outcomes import deliver, drop, remember_key
from holdfast.running.raising import raised
from holdfast.running.scopes import SEALED, Scope, StepInfo
from holdfast.running.sealing import reason_for

if TYPE_CHECKING:
    from holdfast.codec import Coder
    from holdfast.running.outputs import AttemptOutputs

_DONE = Kind.done  # looked up once: on Python 3.11 that takes as long as a small function


class DefinedStep(Protocol):
    """A step with its options."""

    name: str
    explicit_key: str | None
    body: Body
    options: Options


class StepCall(DurableCall[Any]):
    """One call of a step."""

    __slots__ = ("args", "args_text", "definition", "kwargs")

    is_repeatable = True
    passes_gate = False  # each attempt does, by itself: one that waits for its time waits for that first

    def __init__(
        self,
        definition: DefinedStep,
        scope: Scope,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        args_text: str,
        args_digest: str,
    ) -> None:
        self.scope = scope  # as DurableCall does, without one more call for each step
        self.run = scope.run
        self.name = definition.name
        self.digest = args_digest
        self.explicit_key = definition.explicit_key
        self.definition = definition
        self.args = args
        self.kwargs = kwargs
        self.args_text = args_text

    @property
    def coder(self) -> Coder[Any]:
        return self.definition.body.coder

    @property
    def raises(self) -> tuple[type[BaseException], ...]:
        return self.definition.options.raises

    async def execute(self) -> Any:
        scope, run, key, entry = self.scope, self.run, self.key, self.entry
        journal, body = run.journal, self.definition.body
        timeout_s = self.definition.options.timeout_s
        failed = postponed = 0
        scope.enter_call()
        try:
            if entry is not None and entry.ready_at:
                failed, postponed = entry.attempt, entry.postponed
                await run.waits.wait_until(key, entry.ready_at)
            while True:
                if run.gate.shut is not None:
                    await run.gate.pass_(scope)
                attempt = failed + 1
                journal.begin(OpenCall(key, self.name, attempt, now_us(), self.digest, self.args_text))
                began = monotonic_us()
                faults.point("step.before_body")
                value: Any = None
                error: Exception | None = None
                payload: str
                cancels = scope.task.cancelling() if scope.task is not None else 0
                info = StepInfo(run, self.name, key, attempt)
                try:
                    workspaces = run.outputs.workspaces
                    given = None if workspaces is None else workspaces.given(self.args, self.kwargs)
                    if given is not None or scope.shield is not None:
                        run_body = partial(body.run, scope, info, timeout_s=timeout_s)
                        work: Awaitable[Any] = (
                            run_body(self.args, self.kwargs) if given is None else given.run(info, run_body)
                        )
                        if scope.shield is not None:  # in a task of its own: whatever cancels there is the body's own
                            work = asyncio.Task(work, context=contextvars.copy_context())  # type: ignore[arg-type]
                        value = await work
                    elif body.is_async and timeout_s is None:
                        token = scope.enter_body(info)  # as body.run does, without one more coroutine
                        try:
                            value = await body.fn(*self.args, **self.kwargs)
                        finally:
                            scope.leave_body(token)
                    else:
                        value = await body.run(scope, info, self.args, self.kwargs, timeout_s)
                    faults.point("step.after_body")
                    payload, value = body.coder.roundtrip(value, what=f"the result of {key}")
                    if len(payload) > journal.value_limit:
                        journal.check_size(payload, f"the result of {key}")
                except asyncio.CancelledError as caught:
                    if not run.life.dead and scope.task is not None and scope.task.cancelling() > cancels:
                        drop(info)
                        took = monotonic_us() - began
                        journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
                        raise
                    error = raised(caught, is_over=run.life.dead)
                except Exception as caught:
                    error = caught
                except BaseException as caught:
                    error = raised(caught, is_over=run.life.dead)
                took = monotonic_us() - began
                scope.count_executed()
                if error is None:
                    info.is_over = True
                    if run.activity.lines == 1 and info.outputs is None and not journal.is_backlogged:
                        # The usual case, without a detour: one branch, nothing to wait for.
                        journal.summary["steps"] = journal.summary.get("steps", 0) + 1
                        journal.end(key, _DONE, tick=run.ticks.next_tick(), took=took, payload=payload)
                    else:
                        await self._deliver(Kind.done, payload, took, outputs=info.outputs)
                    return value
                drop(info)
                wait_s = self._wait_before_retry(error, attempt - postponed)
                if wait_s is None:
                    raise await self._failure(error, took)
                postponed += isinstance(error, RetryLater)
                retry_at = now_us() + int(wait_s * 1_000_000)
                self._note_attempt(error, attempt, took=took, retry_at=retry_at, postponed=postponed)
                failed = attempt
                await self._wait_for_retry(error, retry_at)
        finally:
            scope.leave_call()

    async def _deliver(self, kind: Kind, payload: str, took: int, *, outputs: AttemptOutputs | None = None) -> None:
        run, key, journal = self.run, self.key, self.run.journal

        def record(tick: int) -> None:  # counted with its record: a commit in between would have one and not the other
            journal.summary["steps"] = journal.summary.get("steps", 0) + 1
            if outputs is not None:
                outputs.record(journal, key)
            journal.end(key, kind, tick=tick, took=took, payload=payload)

        counts = run.spending is not None  # nobody else asks how many have begun
        if counts:
            run.activity.begin_delivery()
        try:
            await deliver(self.scope, record)
        except asyncio.CancelledError:
            if outputs is not None:
                outputs.drop()
            if not run.life.dead and journal.is_open(key):
                journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
            raise
        finally:
            if counts:
                run.activity.end_delivery()

    async def _failure(self, error: Exception, took: int) -> BaseException:
        """There are no attempts left: what the agent gets, once that is recorded."""
        options = self.definition.options
        if self.scope.sealed and isinstance(error, SEALED):  # nothing is recorded: once it is mended, it runs
            await self.run.block(reason_for(self.scope, error, self.key))
        if isinstance(error, LateThread):
            error = TimeoutError(f"{self.key} took longer than {options.timeout_s} s")
        payload, seen = roundtrip_error(error, options.raises)
        seen.__traceback__ = trimmed(error.__traceback__)  # live, the line in the body is seen too
        await self._deliver(Kind.failed, payload, took)
        return remember_key(seen, self.key)

    # another attempt

    def _wait_before_retry(self, error: Exception, failures: int) -> float | None:
        """Seconds; None: there is none."""
        options = self.definition.options
        if isinstance(error, RetryLater):
            return error.after
        if isinstance(error, HoldfastError) or not isinstance(error, options.retry_on):
            return None
        return options.retries._delay_s(failures) if failures <= options.retries.attempts else None

    def _note_attempt(self, error: Exception, attempt: int, *, took: int, retry_at: int, postponed: int) -> None:
        journal, key = self.run.journal, self.key
        journal.forget(key)
        journal.add(
            Kind.attempt,
            key,
            self.name,
            attempt=attempt,
            took=took,
            digest=self.digest,
            args=self.args_text if attempt == 1 else None,
            payload=f'{{"error":{encode_error(error)},"retry_at":{retry_at},"postponed":{postponed}}}',
        )

    async def _wait_for_retry(self, error: Exception, retry_at: int) -> None:
        run = self.run
        if isinstance(error, LateThread):
            await asyncio.wait({error.future})
        if isinstance(error, RetryLater) and error.hold_queue:
            await run.host.hold_queue(run.journal.row.queue, retry_at)
        await run.waits.wait_until(self.key, retry_at)
