"""Steps: what an agent asks of the world that is safe to repeat.

A step needs no durable intent. Its outcome is appended and flushed in the background; the agent goes on at once. A
crash before the flush makes the step run again, which is what "safe to repeat" means.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.tracebacks import trimmed
from holdfast.codec import encode_call, encode_error, roundtrip_error
from holdfast.durations import Duration
from holdfast.errors import HoldfastError, RetryLater
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.branches import durable_function
from holdfast.running.calls import (
    Body,
    BoundCall,
    CallMethod,
    LateThread,
    Options,
    Retry,
    answer,
    clean_up,
    deliver,
    elapsed_us,
    refuse_result,
    remember_key,
)
from holdfast.running.pending import until_cancelled
from holdfast.running.raising import raised
from holdfast.running.scopes import Scope, StepInfo, body_scope, check_branch, enter, leave, scope_or_none

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


class Step(Protocol[P, R_co]):
    """An async function whose completed calls are never repeated."""

    __name__: str

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    # In a class it is a method. An option variant of it is a function again, so a bound one has no options.
    @overload
    def __get__(self: CallMethod[type[S], Q, R], instance: S | None, owner: type[S], /) -> BoundCall[Q, R]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Step[P, R_co]: ...
    @overload
    def __get__(self: CallMethod[S, Q, R], instance: S, owner: type | None = None, /) -> BoundCall[Q, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> Step[P, R_co]: ...

    def with_options(
        self, *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
    ) -> Step[P, R_co]:
        """The same step with other options; `key=` names one call explicitly, once per run.

        Example: `await fetch.with_options(key=f"page-{n}", timeout=5)(url)`
        """
        ...


class StepDecorator(Protocol):
    """What `step(...)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int | Retry = 0,
    timeout: Duration | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (Exception,),
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int | Retry = 0,
    timeout: Duration | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (Exception,),
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Make a function a step: safe to repeat (reads, model calls, computation), its result recorded.

    After a crash a completed step answers from the journal, with the same value or exception; a step that was cut off
    runs again. `def` functions run in a thread. Outside of a run a step is a plain function.

    Example:
        @hf.step(retries=3)
        async def search(query: str) -> list[str]:
            return await web.search(query)
    """

    def decorate(fn: Callable[..., Any]) -> Any:
        options = Options.checked(fn, name=name, retries=retries, timeout=timeout, retry_on=retry_on, raises=raises)
        return StepDefinition(Body(fn), options).function()

    return decorate if fn is None else decorate(fn)


class StepDefinition:
    """A step with its options."""

    def __init__(self, body: Body, options: Options) -> None:
        self.body = body
        self.options = options
        self.name: str = options.name
        self.explicit_key: str | None = options.explicit_key
        self._is_checked = False

    def function(self) -> Step[..., Any]:
        function = durable_function(self, self.body.fn)

        def with_options(
            *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
        ) -> Step[..., Any]:
            return StepDefinition(self.body, self.options.changed(key=key, retries=retries, timeout=timeout)).function()

        function.__dict__.update(with_options=with_options, _definition=self)
        return cast("Step[..., Any]", function)

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = scope_or_none()
        if scope is None or scope.body is not None:
            return await self.body.plain(args, kwargs)
        check_branch(scope, self.name)
        run = scope.run
        if run.halted:
            await run.check(scope)
        if not self._is_checked:
            refuse_result(run, self.name, self.body)
            self._is_checked = True
        args_text, args_digest = encode_call(self.body.fn, args, kwargs)
        if len(args_text) > run.journal.value_limit:
            run.journal.check_size(args_text, f"what {self.name} is called with")
        entry = run.claim(scope, self.name, args_digest, self.explicit_key)
        work = self._execute(scope, run, entry, args, kwargs, args_text, args_digest)
        if (scope.handling is not None or scope.cleans_up) and run.is_clean_up(scope):
            return await clean_up(scope, work)
        return await work

    async def _execute(
        self,
        scope: Scope,
        run: RunContext,
        entry: Entry | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        args_text: str,
        args_digest: str,
    ) -> Any:
        if entry is not None and entry.outcome is not None:
            if not entry.was_cancelled:
                return await answer(scope, entry, self.body.result_coder(), self.options.raises)
            await until_cancelled(scope, entry)
        key = entry.key if entry is not None else run.new_key(scope, self.name, self.explicit_key)
        failed = postponed = 0
        journal, body, timeout_s = run.journal, self.body, self.options.timeout_s
        scope.in_call = True
        try:
            if entry is not None and entry.ready_at:
                failed, postponed = entry.attempt, entry.postponed
                await run.wait_until(key, entry.ready_at)
            while True:
                if run.gate is not None:
                    await run.pass_gate(scope)
                attempt = failed + 1
                journal.begin(OpenCall(key, self.name, attempt, now_us(), args_digest, args_text))
                began = monotonic_us()
                faults.point("step.before_body")
                value: Any = None
                error: Exception | None = None
                payload: str
                cancels = scope.task.cancelling() if scope.task is not None else 0
                run.bodies += 1
                try:
                    info = StepInfo(run, self.name, key, attempt)
                    if scope.shield is not None:  # in a task of its own: whatever cancels there is the body's own
                        context = contextvars.copy_context()
                        value = await asyncio.Task(body.run(scope, info, args, kwargs, timeout_s), context=context)
                    elif body.is_async and timeout_s is None:
                        token = enter(body_scope(scope, info))  # as body.run does, without one more coroutine
                        try:
                            value = await body.fn(*args, **kwargs)
                        finally:
                            leave(token)
                    else:
                        value = await body.run(scope, info, args, kwargs, timeout_s)
                    faults.point("step.after_body")
                    payload, value = body.result_coder().roundtrip(value, what=f"the result of {key}")
                    if len(payload) > journal.value_limit:
                        journal.check_size(payload, f"the result of {key}")
                except asyncio.CancelledError as caught:
                    if not run.dead and scope.task is not None and scope.task.cancelling() > cancels:
                        journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=elapsed_us(began), payload=None)
                        raise
                    error = raised(caught, is_over=run.dead)
                except Exception as caught:
                    error = caught
                except BaseException as caught:
                    error = raised(caught, is_over=run.dead)
                finally:
                    run.bodies -= 1
                took = elapsed_us(began)
                run.receipt.executed += 1
                if error is None:
                    if run.lines == 1 and not journal.backlogged:
                        # The usual case, without a detour: one branch, nothing to wait for.
                        journal.summary["steps"] = journal.summary.get("steps", 0) + 1
                        journal.end(key, Kind.done, tick=run.ticks.next_tick(), took=took, payload=payload)
                    else:
                        await self._deliver(scope, run, key, Kind.done, payload, took)
                    return value
                wait_s = self._wait_before_retry(error, attempt - postponed)
                if wait_s is not None:
                    postponed += isinstance(error, RetryLater)
                    retry_at = now_us() + int(wait_s * 1_000_000)
                    journal.forget(key)
                    journal.add(
                        Kind.attempt,
                        key,
                        self.name,
                        attempt=attempt,
                        took=took,
                        digest=args_digest,
                        args=args_text if failed == 0 else None,
                        payload=f'{{"error":{encode_error(error)},"retry_at":{retry_at},"postponed":{postponed}}}',
                    )
                    failed = attempt
                    await _wait_for_retry(run, key, error, retry_at)
                    continue
                if isinstance(error, LateThread):
                    error = TimeoutError(f"{key} took longer than {self.options.timeout_s} s")
                payload, seen = roundtrip_error(error, self.options.raises)
                seen.__traceback__ = trimmed(error.__traceback__)  # live, the line in the body is seen too
                await self._deliver(scope, run, key, Kind.failed, payload, took)
                raise remember_key(seen, key)
        finally:
            scope.in_call = False

    async def _deliver(self, scope: Scope, run: RunContext, key: str, kind: Kind, payload: str, took: int) -> None:
        journal = run.journal
        summary = journal.summary
        summary["steps"] = summary.get("steps", 0) + 1
        try:
            await deliver(scope, lambda tick: journal.end(key, kind, tick=tick, took=took, payload=payload))
        except asyncio.CancelledError:
            if not run.dead and journal.is_open(key):
                journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
            raise

    def _wait_before_retry(self, error: Exception, failures: int) -> float | None:
        if isinstance(error, RetryLater):
            return error.after
        if isinstance(error, HoldfastError) or not isinstance(error, self.options.retry_on):
            return None
        return self.options.retries._delay_s(failures) if failures <= self.options.retries.attempts else None


async def _wait_for_retry(run: RunContext, key: str, error: Exception, retry_at: int) -> None:
    if isinstance(error, LateThread):
        await asyncio.wait({error.future})
    if isinstance(error, RetryLater) and error.hold_queue:
        await run.host.hold_queue(run.queue, retry_at)
    await run.wait_until(key, retry_at)
