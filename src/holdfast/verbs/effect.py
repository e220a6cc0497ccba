"""Effects: what changes the world and must not be repeated blindly.

Before the body runs, everything the run has said and the effect's own intent are on disk. A crash, a timeout or an
exception that proves nothing leaves the attempt in doubt; it is settled by `verify`, else by `on_doubt`, before another
attempt and before the agent sees anything. Every settlement is a record with its evidence.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, Never, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast import faults
from holdfast.branches import durable_function
from holdfast.calls import (
    Body,
    Duration,
    LateThread,
    Options,
    Retry,
    answer,
    as_retry,
    as_types,
    checked_name,
    deliver,
    elapsed_us,
    not_stored,
    refuse_result,
    remember_key,
    seconds,
)
from holdfast.clock import monotonic_us, now_us
from holdfast.codec import decode_error, encode_call, encode_error, encode_input, roundtrip_error
from holdfast.context import RunContext, Scope, StepInfo, check_branch, scope_or_none
from holdfast.errors import EffectInDoubt, EffectUndone, RetryLater, Undecodable, Unserialisable, UsageError
from holdfast.journal.recovery import Doubt, OnDoubt, Ruling, rule
from holdfast.journal.replay import Entry
from holdfast.model import Kind

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Verdict(Generic[T_co]):
    """Whether an effect in doubt happened; make one with `landed(result)` or `not_landed()`."""

    has_landed: bool
    result: T_co | None = None


def landed(result: T) -> Verdict[T]:
    """It happened, with this result. Return it from `verify`, or pass it to `InDoubt.resolve`.

    Example: `return hf.landed(message_id)`
    """
    return Verdict(has_landed=True, result=result)


def not_landed() -> Verdict[Never]:
    """It did not happen; a new attempt is safe. Return it from `verify`, or pass it to `InDoubt.resolve`.

    Example: `return hf.not_landed()`
    """
    return Verdict(has_landed=False)


class BoundEffect(Protocol[P, T_co]):
    """An effect that is a method, taken from its object."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co: ...


class EffectMethod(Protocol[S_contra, P, T_co]):
    """An effect that can be a method: its first argument is the object, or the class."""

    async def __call__(self, owner: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...


class Effect(Protocol[P, R]):
    """An async function that changes the world; interrupted calls are settled, never repeated blindly."""

    __name__: str

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    # In a class it is a method. An option variant of it is a function again, so a bound one has no options.
    @overload
    def __get__(self: EffectMethod[type[S], Q, T], instance: S | None, owner: type[S], /) -> BoundEffect[Q, T]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Effect[P, R]: ...
    @overload
    def __get__(self: EffectMethod[S, Q, T], instance: S, owner: type | None = None, /) -> BoundEffect[Q, T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> Effect[P, R]: ...

    def with_options(
        self, *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
    ) -> Effect[P, R]:
        """The same effect with other options; `key=` names one call explicitly, once per run.

        Example: `await pay.with_options(key=f"invoice-{number}")(amount)`
        """
        ...

    @overload
    def verify(self, fn: Callable[P, Verdict[R]], /) -> Callable[P, Verdict[R]]: ...
    @overload
    def verify(self, fn: Callable[P, Coroutine[Any, Any, Verdict[R]]], /) -> Callable[P, Coroutine[Any, Any, Verdict[R]]]:
        """Declare how to find out whether a call that was cut off happened.

        Example:
            @send_email.verify
            async def find_sent(to: str, body: str) -> hf.Verdict[str]:
                sent = await mailer.find(key=hf.this_step().idempotency_key)
                return hf.landed(sent) if sent else hf.not_landed()
        """
        ...

    @overload
    def undo(self, fn: Callable[Concatenate[R | None, P], None], /) -> Callable[Concatenate[R | None, P], None]: ...
    @overload
    def undo(
        self, fn: Callable[Concatenate[R | None, P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[R | None, P], Coroutine[Any, Any, None]]:
        """Declare how to take a call back: for sagas and `on_doubt="undo"`. It must be safe to repeat.

        The first argument is the effect's result, or None if it is in doubt whether there is one.

        Example:
            @book_hotel.undo
            async def cancel_hotel(booking: str | None, city: str) -> None:
                await hotels.cancel(booking, key=hf.this_step().undoes)
        """
        ...


class EffectDecorator(Protocol):
    """What `effect(...)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Effect[P, R]: ...


@overload
def effect(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effect[P, R]: ...
@overload
def effect(fn: Callable[P, R], /) -> Effect[P, R]: ...
@overload
def effect(
    *,
    name: str | None = None,
    retries: int | Retry = 0,
    timeout: Duration | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
    raises: type[Exception] | tuple[type[Exception], ...] = (),
    on_doubt: OnDoubt = "ask",
    settle: Duration = 5,
) -> EffectDecorator: ...
def effect(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int | Retry = 0,
    timeout: Duration | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
    raises: type[Exception] | tuple[type[Exception], ...] = (),
    on_doubt: OnDoubt = "ask",
    settle: Duration = 5,
) -> Any:
    """Make a function an effect: it changes the world and is never repeated blindly.

    After a crash a completed effect answers from the journal. One that was cut off is in doubt: `verify` says whether
    it happened, else `on_doubt` decides: "ask" a person, "retry" under the same idempotency key, "undo" it and fail,
    or "fail". Only exceptions in `raises=` and `retry_on=` are proof that nothing happened; any other, timeouts
    included, leaves the attempt in doubt too. `settle` is how long after the end of the former attempt its target may
    still act (0 for local targets): `not_landed()` counts only after that.

    Example:
        @hf.effect
        async def send_email(to: str, body: str) -> str:
            return await mailer.send(to, body, key=hf.this_step().idempotency_key)
    """

    def decorate(fn: Callable[..., Any]) -> Any:
        if on_doubt not in ("ask", "retry", "undo", "fail"):
            raise UsageError(f'on_doubt= takes "ask", "retry", "undo" or "fail"; got {on_doubt!r}.')
        options = Options(
            name=checked_name(name, fn),
            retries=as_retry(retries),
            timeout_s=None if timeout is None else seconds(timeout),
            retry_on=as_types(retry_on, "retry_on"),
            raises=as_types(raises, "raises"),
        )
        return EffectDefinition(Body(fn), options, Rules(on_doubt, int(seconds(settle) * 1_000_000))).function()

    return decorate if fn is None else decorate(fn)


@dataclass(slots=True)
class Rules:
    """How an effect in doubt is settled; shared by all option variants of the effect."""

    on_doubt: OnDoubt
    settle_us: int
    verify: Body | None = None
    undo: EffectDefinition | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an effect, while it is being performed."""

    scope: Scope
    run: RunContext
    key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    args_text: str
    args_digest: str
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: `kind` and `payload` are what is recorded, `value` or `error` what the agent gets."""

    kind: Kind
    payload: str
    took: int
    attempt: int
    value: Any = None
    error: BaseException | None = None


class EffectDefinition:
    """An effect with its options."""

    def __init__(self, body: Body, options: Options, rules: Rules, undoes: str | None = None) -> None:
        self.body = body
        self.options = options
        self.rules = rules
        self.undoes = undoes  #: the idempotency key of the call that this one takes back
        self.name: str = options.name
        self.explicit_key: str | None = options.explicit_key

    def function(self) -> Effect[..., Any]:
        function = durable_function(self, self.body.fn)

        def with_options(
            *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
        ) -> Effect[..., Any]:
            changed = self.options.changed(key=key, retries=retries, timeout=timeout)
            return EffectDefinition(self.body, changed, self.rules).function()

        function.__dict__.update(with_options=with_options, verify=self._set_verify, undo=self._set_undo, definition=self)
        return cast("Effect[..., Any]", function)

    def _set_verify(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self.rules.verify = Body(fn)
        return fn

    def _set_undo(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        options = Options(f"{self.name}.undo", Retry(3), None, (Exception,), ())
        self.rules.undo = EffectDefinition(Body(fn), options, Rules("retry", 0))
        return fn

    # one call

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = scope_or_none()
        if scope is None:
            return await self.body.plain(args, kwargs)
        check_branch(scope, self.name)
        run = scope.run
        if run.dead:
            await run.never()
        if self.rules.on_doubt == "undo" and self.rules.undo is None:
            raise UsageError(f'{self.name} says on_doubt="undo" and has no undo: declare one with @{self.name}.undo.')
        refuse_result(run, self.name, self.body)
        encode = encode_call if self.rules.undo is None else encode_input
        args_text, args_digest = encode(self.body.fn, args, kwargs)
        run.journal.check_size(args_text, f"what {self.name} is called with")
        entry = run.claim(scope, self.name, args_digest, self.explicit_key)
        if entry is not None and entry.outcome is not None:
            return await self._answer(scope, entry, args, kwargs)
        if entry is None:
            scope.in_call = True
            try:
                await run.refuse_left_over(scope, self.name, args_digest)
            finally:
                scope.in_call = False
        key = entry.key if entry is not None else run.new_key(scope, self.name, self.explicit_key)
        call = Call(scope, run, key, args, kwargs, args_text, args_digest, run.idempotency_key(key))
        ended = await self._shielded(call, entry)
        if ended.error is not None:
            raise ended.error
        return ended.value

    async def _answer(self, scope: Scope, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """From the journal; a saga must know of it all the same."""
        try:
            value = await answer(scope, entry, self.body.result_coder(), self.options.raises)
        except EffectInDoubt:
            self._tell_saga(scope, entry.key, None, args, kwargs)
            raise
        self._tell_saga(scope, entry.key, value, args, kwargs)
        return value

    async def _shielded(self, call: Call, entry: Entry | None) -> Ended:
        """Perform the call in a task of its own: a cancellation arrives after its outcome."""
        scope, run = call.scope, call.run
        gate: asyncio.Future[None] = run.loop.create_future()
        ended: list[Ended | BaseException] = []

        async def perform() -> None:
            try:
                ended.append(await self._perform(call, entry))
            except BaseException as error:
                ended.append(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                if not gate.done():
                    gate.set_result(None)

        scope.in_call = True
        task = asyncio.Task(perform(), loop=run.loop, context=contextvars.copy_context())
        cancelled = False
        try:
            while not ended:
                try:
                    await gate
                except asyncio.CancelledError:
                    if run.dead:
                        task.cancel()
                        raise
                    cancelled = True
                    gate = run.loop.create_future()
        finally:
            scope.in_call = False
        if cancelled:
            raise asyncio.CancelledError
        outcome = ended[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _perform(self, call: Call, entry: Entry | None) -> Ended:
        run, key = call.run, call.key
        attempt = entry.attempt if entry is not None else 0
        postponed = entry.postponed if entry is not None else 0
        ended: Ended | None = None
        if entry is not None and entry.intent is not None:
            ended = await self._settle(call, attempt, run.doubt(entry.intent), settled=entry.given)
        elif entry is not None and entry.ready_at:
            await asyncio.sleep(max(0.0, (entry.ready_at - now_us()) / 1_000_000))
        while ended is None:
            attempt += 1
            ended, wait_s, postponed = await self._attempt(call, attempt, postponed)
            if ended is None and wait_s > 0:
                await asyncio.sleep(wait_s)
        summary = run.journal.summary
        summary["effects"] = summary.get("effects", 0) + 1

        def record(tick: int) -> None:
            run.journal.add(
                ended.kind, key, self.name, attempt=ended.attempt, tick=tick, took=ended.took, digest=call.args_digest, payload=ended.payload
            )
            if ended.kind != Kind.failed or isinstance(ended.error, EffectInDoubt):
                self._tell_saga(call.scope, key, ended.value, call.args, call.kwargs)

        await deliver(call.scope, record, shielded=True)
        faults.point("effect.after_outcome")
        return ended

    async def _attempt(self, call: Call, attempt: int, postponed: int) -> tuple[Ended | None, float, int]:
        """Intent, body, and what follows from how the body ended; None: another attempt, after so many seconds."""
        run, journal, key = call.run, call.run.journal, call.key
        faults.point("effect.before_intent")
        journal.add(
            Kind.intent,
            key,
            self.name,
            attempt=attempt,
            digest=call.args_digest,
            args=call.args_text if attempt == 1 else None,
            payload=json.dumps({"idempotency_key": call.idempotency_key}),
        )
        await journal.barrier(inline=run.may_commit_inline)
        if not run.host.has_lease():
            await run.host.wait_lease()
        faults.point("effect.after_intent")
        began = monotonic_us()
        value, error = await self._run_body(call, attempt)
        took = elapsed_us(began)
        run.executed += 1
        faults.point("effect.after_body")
        if error is None:
            return self._stored(call, attempt, took, value), 0, postponed
        is_later = isinstance(error, RetryLater)
        if not is_later and not isinstance(error, (*self.options.retry_on, *self.options.raises)):
            cause = "timeout" if isinstance(error, TimeoutError) else "exception"
            doubt = Doubt(cause, is_over=True, since_us=now_us())
            failures = attempt - postponed
            return await self._settle(call, attempt, doubt, original=error, may_repeat=failures <= self.options.retries.attempts), 0, postponed
        failures = attempt - postponed
        may_repeat = isinstance(error, self.options.retry_on) and failures <= self.options.retries.attempts
        if not is_later and not may_repeat:
            payload, seen = roundtrip_error(error, (*self.options.raises, *self.options.retry_on))
            return Ended(Kind.failed, payload, took, attempt, error=remember_key(seen, key)), 0, postponed
        postponed += is_later
        wait_s = error.after if isinstance(error, RetryLater) else self.options.retries.delay_s(failures)
        retry_at = now_us() + int(wait_s * 1_000_000)
        payload = f'{{"error":{encode_error(error)},"retry_at":{retry_at},"postponed":{postponed}}}'
        journal.add(Kind.attempt, key, self.name, attempt=attempt, took=took, digest=call.args_digest, payload=payload)
        return None, wait_s, postponed

    async def _run_body(self, call: Call, attempt: int) -> tuple[Any, Exception | None]:
        run = call.run
        info = StepInfo(run, self.name, call.key, attempt, call.idempotency_key, self.undoes)
        run.bodies += 1
        try:
            return await self.body.run(call.scope, info, call.args, call.kwargs, self.options.timeout_s), None
        except LateThread as late:
            # The thread lives on: what it says in the end is the truth, however late.
            await asyncio.wait({late.future})
            try:
                return late.future.result(), None
            except Exception as error:
                return None, error
        except Exception as error:
            return None, error
        finally:
            run.bodies -= 1

    def _stored(self, call: Call, attempt: int, took: int, value: Any) -> Ended:
        """It happened. If its result cannot be stored, that is what the agent hears; it is never done again."""
        try:
            payload, value = self.body.result_coder().roundtrip(value, what=f"the result of {call.key}")
            call.run.journal.check_size(payload, f"the result of {call.key}")
        except Unserialisable as error:
            try:
                shown = repr(value)[:1000]
            except Exception as broken:
                shown = f"<repr failed: {type(broken).__name__}>"
            payload = json.dumps({"repr": shown, "error": str(error)})
            seen = remember_key(not_stored(call.key, call.run.id), call.key)
            seen.add_note(str(error))
            return Ended(Kind.unstored, payload, took, attempt, error=seen)
        return Ended(Kind.done, payload, took, attempt, value=value)

    # in doubt

    async def _settle(
        self,
        call: Call,
        attempt: int,
        doubt: Doubt,
        *,
        original: Exception | None = None,
        may_repeat: bool = True,
        settled: dict[str, Any] | None = None,
    ) -> Ended | None:
        """Find out what became of an attempt. None: it did not happen (or may be repeated), a new attempt follows.

        `settled`: what a person said before a crash kept it from being acted on.
        """
        evidence: dict[str, Any] = {"cause": doubt.cause}
        if original is not None:
            evidence["error"] = f"{type(original).__name__}: {_text(original)}"
        given = self._fitting(call, attempt, call.run.take_verdict(call.key) or settled, evidence)
        while given is None:
            verdict, value = await self._verify(call, attempt, evidence)
            ruling = rule(doubt, verdict=verdict, on_doubt=self.rules.on_doubt, settle_us=self.rules.settle_us, now_us=now_us())
            faults.point("settle.before_record")
            match ruling:
                case Ruling.verify_later:
                    call.run.bodies += 1
                    try:
                        await asyncio.sleep(max(0.0, doubt.since_us + self.rules.settle_us - now_us()) / 1_000_000 + 0.001)
                    finally:
                        call.run.bodies -= 1
                case Ruling.landed:
                    ended = self._stored(call, attempt, 0, value)
                    self._record_settled(call, attempt, "landed", "verify", evidence)
                    return ended
                case Ruling.again if verdict == "not_landed":
                    self._record_settled(call, attempt, "not_landed", "verify", evidence)
                    return None if may_repeat else self._failed(call, attempt, original)
                case Ruling.again if may_repeat:
                    self._record_settled(call, attempt, "retry", "on_doubt", evidence)
                    return None
                case Ruling.again:
                    evidence["attempts"] = "used up"
                    self._record_settled(call, attempt, "fail", "on_doubt", evidence)
                    return self._in_doubt(call, attempt, evidence)
                case Ruling.fail:
                    self._record_settled(call, attempt, "fail", "on_doubt", evidence)
                    return self._in_doubt(call, attempt, evidence)
                case Ruling.undo:
                    self._record_settled(call, attempt, "undo", "on_doubt", evidence)
                    return await self._undo_now(call, attempt)
                case Ruling.ask:
                    said = await call.run.hold(call.key, {"name": self.name, "attempt": attempt, **evidence})
                    given = self._fitting(call, attempt, said, evidence)
        return self._resolved(call, attempt, given, evidence)

    async def _verify(self, call: Call, attempt: int, evidence: dict[str, Any]) -> tuple[Literal["landed", "not_landed"] | None, Any]:
        verify = self.rules.verify
        if verify is None:
            return None, None
        info = StepInfo(call.run, self.name, call.key, attempt, call.idempotency_key)
        call.run.bodies += 1
        try:
            verdict = await verify.run(call.scope, info, call.args, call.kwargs, self.options.timeout_s)
        except Exception as error:
            evidence["verify_error"] = f"{type(error).__name__}: {_text(error)}"
            return None, None
        finally:
            call.run.bodies -= 1
        if not isinstance(verdict, Verdict):
            evidence["verify_error"] = f"verify returned {type(verdict).__name__}, not hf.landed(…) or hf.not_landed()"
            return None, None
        evidence["verify"] = "landed" if verdict.has_landed else "not_landed"
        return ("landed", verdict.result) if verdict.has_landed else ("not_landed", None)

    def _fitting(
        self, call: Call, attempt: int, given: dict[str, Any] | None, evidence: dict[str, Any]
    ) -> dict[str, Any] | None:
        """What a person said, unless the result they gave does not fit the effect's type: then they are asked again."""
        if given is not None and given["verdict"] == "landed":
            try:
                self.body.result_coder().loads(given["value"], what=f"the result given for {call.key}")
            except Undecodable as error:
                evidence["refused"] = str(error)
                self._record_settled(call, attempt, "refused", "person", evidence, given)
                return None
        return given

    def _resolved(self, call: Call, attempt: int, given: dict[str, Any], evidence: dict[str, Any]) -> Ended | None:
        """Act on a person's verdict."""
        self._record_settled(call, attempt, given["verdict"], "person", evidence, given)
        match given["verdict"]:
            case "landed":
                value = self.body.result_coder().loads(given["value"], what=f"the result given for {call.key}")
                return self._stored(call, attempt, 0, value)
            case "not_landed":
                return None
            case _:
                error = decode_error(given["error"], self.options.raises)
                return Ended(Kind.failed, given["error"], 0, attempt, error=remember_key(error, call.key))

    def _record_settled(
        self, call: Call, attempt: int, verdict: str, by: str, evidence: dict[str, Any], given: dict[str, Any] | None = None
    ) -> None:
        call.run.record_verdict(call.key, self.name, attempt, verdict, by, evidence, given)
        faults.point("settle.after_record")

    def _failed(self, call: Call, attempt: int, original: Exception | None) -> Ended:
        """It did not happen, and there are no attempts left: the agent gets what the body raised."""
        assert original is not None
        payload, seen = roundtrip_error(original, self.options.raises)
        return Ended(Kind.failed, payload, 0, attempt, error=remember_key(seen, call.key))

    def _in_doubt(self, call: Call, attempt: int, evidence: dict[str, Any]) -> Ended:
        error = EffectInDoubt(
            f"Run {call.run.id}: {call.key} was cut off ({evidence.get('error', evidence['cause'])}) and may or may not have happened.",
            error_type="EffectInDoubt",
            error_message=str(evidence.get("error", "")),
        )
        return Ended(Kind.failed, encode_error(error), 0, attempt, error=remember_key(error, call.key))

    async def _undo_now(self, call: Call, attempt: int) -> Ended:
        """Take back what may have happened. The call then fails: its idempotency key is used up."""
        undo = self.rules.undo
        assert undo is not None
        key = f"{call.key}.undo"
        known = call.run.replay.entries.get(key)
        if known is None or known.outcome is None:
            args = (None, *call.args)
            text, digest = encode_call(undo.body.fn, args, call.kwargs)
            undo_call = Call(call.scope, call.run, key, args, call.kwargs, text, digest, call.run.idempotency_key(key))
            await undo.taking_back(call.idempotency_key)._perform(undo_call, known)
        error = EffectUndone(f"Run {call.run.id}: {call.key} was cut off; whatever may have happened was undone.", error_type="EffectUndone")
        return Ended(Kind.failed, encode_error(error), 0, attempt, error=remember_key(error, call.key))

    def taking_back(self, idempotency_key: str) -> EffectDefinition:
        """This undo, for one call."""
        return EffectDefinition(self.body, self.options, self.rules, idempotency_key)

    def _tell_saga(self, scope: Scope, key: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if scope.saga is not None and self.rules.undo is not None:
            undo = self.rules.undo.taking_back(scope.run.idempotency_key(key))
            scope.saga.add(key, lambda: undo.call((value, *args), kwargs))


def _text(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception as broken:
        return f"<str failed: {type(broken).__name__}>"
