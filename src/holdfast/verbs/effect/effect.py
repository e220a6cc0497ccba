"""Effects: what changes the world and must not be repeated blindly.

Before the body runs, everything the run has said and the effect's own intent are on disk. A crash, a timeout or an
exception that proves nothing leaves the attempt in doubt; it is settled by `verify`, else by `on_doubt`, before another
attempt and before the agent sees anything. Every settlement is a record with its evidence.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from holdfast.base import faults
from holdfast.base.by_hand import go_on
from holdfast.base.clock import in_seconds, monotonic_us, now_us
from holdfast.base.data import mutable
from holdfast.base.shields import Shield
from holdfast.codec import decode_error, decode_input, encode_call, encode_error, encode_input, with_defaults_of
from holdfast.durations import Duration
from holdfast.errors import EffectInDoubt, RetryLater, StoreError, Undecodable, Unserialisable, UsageError
from holdfast.journal.mismatches import mismatch
from holdfast.journal.recovery import Doubt, OnDoubt
from holdfast.journal.replay import undo_key
from holdfast.model import Kind
from holdfast.running.branches import durable_function
from holdfast.running.calls import (
    Body,
    LateThread,
    Options,
    Retry,
    answer,
    deliver,
    elapsed_us,
    raise_kept,
    refuse_result,
)
from holdfast.running.pending import until_cancelled
from holdfast.running.raising import raised
from holdfast.running.scopes import Scope, StepInfo, check_branch, scope_or_none, where
from holdfast.verbs.effect.settling import EffectCall, Ended, Settling, failed, stored
from holdfast.verbs.effect.signatures import Effect, EffectDecorator
from holdfast.verbs.effect.transactions import uses_transaction

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.store.contract import UserTransaction

_LOST_S = 0.2  # from a lost connection to the next attempt

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Begun: TypeAlias = tuple[Coroutine[Any, Any, Ended], Any]  #: a coroutine that was begun by hand, and what it waits for
S = TypeVar("S")
T = TypeVar("T")


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
    transaction: bool | None = None,
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
    transaction: bool | None = None,
) -> Any:
    """Make a function an effect: it changes the world and is never repeated blindly.

    After a crash a completed effect answers from the journal. One that was cut off is in doubt: `verify` says whether
    it happened, else `on_doubt` decides: "ask" a person, "retry" under the same idempotency key, "undo" it and fail,
    or "fail". Only exceptions in `raises=` and `retry_on=` are proof that nothing happened; any other, timeouts
    included, leaves the attempt in doubt too. `settle` is how long after the end of the former attempt its target may
    still act (0 for local targets): `not_landed()` counts only after that. `transaction`: it calls
    `hf.transaction()`, perhaps in a function of its own; by default that is seen from its code.

    Example:
        @hf.effect
        async def send_email(to: str, body: str) -> str:
            return await mailer.send(to, body, key=hf.this_step().idempotency_key)
    """

    def decorate(fn: Callable[..., Any]) -> Any:
        if on_doubt not in ("ask", "retry", "undo", "fail"):
            raise UsageError(f'on_doubt= takes "ask", "retry", "undo" or "fail"; got {on_doubt!r}.')
        options = Options.checked(fn, name=name, retries=retries, timeout=timeout, retry_on=retry_on, raises=raises)
        is_transaction = uses_transaction(fn) if transaction is None else transaction
        rules = Rules(on_doubt, int(in_seconds(settle, "settle=") * 1_000_000), is_transaction)
        return EffectDefinition(Body(fn), options, rules).function()

    return decorate if fn is None else decorate(fn)


@mutable
class Rules:
    """How an effect in doubt is settled; shared by all option variants of the effect."""

    on_doubt: OnDoubt
    settle_us: int
    is_transaction: bool = False  #: it changes the user's own tables, next to the runs
    is_closure: bool = False  #: it acts on what it closes over, which recorded arguments would not change
    verify: Body | None = None
    undo: EffectDefinition | None = None


class EffectDefinition:
    """An effect with its options."""

    def __init__(self, body: Body, options: Options, rules: Rules, undoes: str | None = None) -> None:
        self.body = body
        self.options = options
        self.rules = rules
        self.undoes = undoes  #: the idempotency key of the call that this one takes back
        self.name: str = options.name
        self.explicit_key: str | None = options.explicit_key
        self._is_checked = False

    def function(self) -> Effect[..., Any]:
        function = durable_function(self, self.body.fn)

        def with_options(
            *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
        ) -> Effect[..., Any]:
            changed = self.options.changed(key=key, retries=retries, timeout=timeout)
            return EffectDefinition(self.body, changed, self.rules).function()

        function.__dict__.update(
            with_options=with_options, verify=self._set_verify, undo=self._set_undo, _definition=self
        )
        return cast("Effect[..., Any]", function)

    def _set_verify(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self.rules.verify = Body(fn)
        return fn

    def _set_undo(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        options = Options(f"{self.name}.undo", Retry(3), None, (Exception,), ())
        self.rules.undo = EffectDefinition(Body(fn), options, Rules("retry", 0, uses_transaction(fn)))
        return fn

    # one call

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = scope_or_none()
        if scope is None:
            return await self.body.plain(args, kwargs)
        check_branch(scope, self.name)
        run = scope.run
        if run.halted:
            await run.check(scope)
        if self.rules.on_doubt == "undo" and self.rules.undo is None:
            raise UsageError(f'{self.name} says on_doubt="undo" and has no undo: declare one with @{self.name}.undo.')
        if not self._is_checked:
            refuse_result(run, self.name, self.body)
            self._is_checked = True
        encode = encode_call if self.rules.undo is None else encode_input
        args_text, args_digest = encode(self.body.fn, args, kwargs)
        if len(args_text) > run.journal.value_limit:
            run.journal.check_size(args_text, f"what {self.name} is called with")
        entry = run.claim(scope, self.name, args_digest, self.explicit_key)
        if entry is not None and (entry.digest != args_digest or self._has_other_defaults(scope, entry, args_text)):
            given = (args, kwargs) if entry.digest == args_digest else None
            recorded = await self._recorded(scope, entry, given)
            if recorded is not None:
                (args, kwargs), args_text, args_digest = recorded, run.text(entry.args), entry.digest
        if entry is not None and entry.outcome is not None:
            if not entry.was_cancelled:
                return await self._answer(scope, entry, args, kwargs)
            await until_cancelled(scope, entry)
        if entry is None and run.may_have_left_over:
            scope.in_call = True
            try:
                await run.refuse_left_over(scope, self.name, args_digest)
            finally:
                scope.in_call = False
        key = entry.key if entry is not None else run.new_key(scope, self.name, self.explicit_key)
        is_other = entry is not None and run.text(entry.args) != args_text
        call = EffectCall(scope, run, key, args, kwargs, args_text, args_digest, run.idempotency_key(key), is_other)
        ended = await self._shielded(call, entry)
        if ended.error is not None:
            raise ended.error
        return ended.value

    def _is_open(self, scope: Scope, entry: Entry) -> bool:
        """May something be done with the arguments of a recorded call: settling, another attempt, an undo?"""
        if entry.args is None:
            return False  # it was cancelled before it began
        return entry.outcome is None or (self.rules.undo is not None and scope.saga is not None)

    def _has_other_defaults(self, scope: Scope, entry: Entry, args_text: str) -> bool:
        return self._is_open(scope, entry) and scope.run.text(entry.args) != args_text

    async def _recorded(
        self, scope: Scope, entry: Entry, given: tuple[tuple[Any, ...], dict[str, Any]] | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """What a call was begun with, if the code calls it with something else now; None if that does not matter.

        It is settled, tried again and undone with that. If it cannot be read, nobody may act on the call. `given`: what
        it is called with, if that is the same and only a default may be another.
        """
        if not self._is_open(scope, entry):
            return None
        run = scope.run
        if not self.rules.is_closure:
            try:
                if given is not None:
                    return with_defaults_of(self.body.fn, *given, run.text(entry.args))
                return decode_input(self.body.fn, run.text(entry.args))
            except (Undecodable, UsageError):
                pass
        if entry.outcome is not None:
            return None  # its answer stands; only its undo gets other arguments
        if entry.given is not None or entry.key in run.verdicts:
            return None  # a person has said what became of it
        await run.block(
            mismatch(
                asked=f"{entry.key} with other arguments",
                where=where(scope),
                recorded=[entry],
                attempted=run.replay.attempted.get(entry.branch, []),
            )
        )
        raise AssertionError("a blocked run goes on")

    async def _answer(self, scope: Scope, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """From the journal; a saga must know of it all the same, at the same moment as when it was live."""
        outcome, run, coder = entry.outcome, scope.run, self.body.result_coder()
        assert outcome is not None

        def tell_saga() -> None:
            value: Any = None
            if outcome.kind == Kind.failed:
                if not (entry.is_unsure or isinstance(decode_error(run.text(outcome.payload), ()), EffectInDoubt)):
                    return
            elif outcome.kind == Kind.done:
                with suppress(Undecodable):  # the answer itself blocks the run for it
                    value = coder.loads(run.text(outcome.payload))
            self._tell_saga(scope, entry.key, value, args, kwargs)

        has_undo = scope.saga is not None and self.rules.undo is not None
        return await answer(scope, entry, coder, self.options.failures, on_turn=tell_saga if has_undo else None)

    async def _shielded(self, call: EffectCall, entry: Entry | None) -> Ended:
        """Perform the call in a task of its own: a cancellation arrives after its outcome."""
        scope, run = call.scope, call.run
        begun: Begun | None = None
        scope.in_call = True
        is_simple = entry is None and self.body.never_suspends and self.options.timeout_s is None
        if is_simple and run.may_commit_inline:
            # Nothing of the user's can be cancelled in its middle, so a task is made only if we have to wait ourselves.
            coroutine = self._perform(call, entry)
            try:
                begun = coroutine, coroutine.send(None)
            except StopIteration as end:
                scope.in_call = False
                performed: Ended = end.value
                return performed
            except Exception:
                scope.in_call = run.dead
                raise
        ended: list[Ended | BaseException] = []
        shield = Shield(run.is_dead)
        work = self._perform_apart(call, entry, begun, ended, shield)
        context = contextvars.copy_context()
        task = asyncio.Task(work, loop=run.loop, context=context)
        try:  # as `Shield.outlast` does, without one more coroutine for each effect that waits
            await shield.wait(task, context)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            shield.close()
            scope.in_call = False
        raise_kept(scope, shield)
        return result(ended[0])

    async def _perform_apart(
        self,
        call: EffectCall,
        entry: Entry | None,
        begun: Begun | None,
        ended: list[Ended | BaseException],
        shield: Shield,
    ) -> None:
        """Perform the call, or the rest of it, and put into `ended` how it ended."""
        try:
            ended.append(await (self._perform(call, entry) if begun is None else go_on(*begun)))
            if call.run.lines == 1:
                shield.open()  # a turn earlier than the loop would: with several branches a replay counts the turns
        except BaseException as error:
            ended.append(error)
            if call.run.dead or not isinstance(error, Exception):
                raise

    async def _perform(self, call: EffectCall, entry: Entry | None) -> Ended:
        run, key = call.run, call.key
        attempt = entry.attempt if entry is not None else 0
        postponed = entry.postponed if entry is not None else 0
        ended: Ended | None = None
        if entry is not None and entry.is_unsure:
            run.unsure.add(key)
        if entry is not None and entry.intent is not None:
            run.intents.add(key)
            ended = await self._settle(
                call,
                attempt,
                run.doubt(entry.intent),
                said=entry.given,
                is_again=entry.ended_in_doubt,
                known=entry.evidence,
            )
        elif entry is not None and entry.ready_at:
            await run.wait_until(key, entry.ready_at)
        while ended is None:
            if run.gate is not None or run.halted:
                try:
                    await run.pass_gate(call.scope, takes_back=self.undoes is not None)
                except asyncio.CancelledError:
                    if run.dead:
                        raise
                    if key not in run.unsure:  # it has not happened, and does not: on replay it waits for this again
                        run.journal.add(
                            Kind.cancelled,
                            key,
                            self.name,
                            attempt=attempt,
                            tick=run.ticks.tick,
                            digest=call.args_digest,
                        )
                        run.intents.discard(key)
                        raise
                    doubt = Doubt("cancelled before it was tried again", is_over=True, since_us=now_us())
                    ended = self._settling(call, attempt, doubt).give_up()
                    break
            attempt += 1
            ended, wait_s, postponed = await self._attempt(call, attempt, postponed)
            if ended is None and wait_s > 0:
                await run.wait_until(key, now_us() + int(wait_s * 1_000_000))
        summary = run.journal.summary
        summary["effects"] = summary.get("effects", 0) + 1
        if run.lines == 1:  # as `deliver` does, without a coroutine for each effect
            self._record(call, ended, run.ticks.next_tick())
            if run.journal.backlogged:
                await run.journal.wait_backlog()
        else:
            await deliver(call.scope, partial(self._record, call, ended), shielded=True)
        faults.point("effect.after_outcome")
        return ended

    def _record(self, call: EffectCall, ended: Ended, tick: int) -> None:
        """Its outcome, when it is its turn."""
        run, key = call.run, call.key
        run.journal.add(
            ended.kind,
            key,
            self.name,
            attempt=ended.attempt,
            tick=tick,
            took=ended.took,
            digest=call.args_digest,
            payload=ended.payload,
        )
        run.intents.discard(key)
        if ended.kind != Kind.failed or key in run.unsure or isinstance(ended.error, EffectInDoubt):
            self._tell_saga(call.scope, key, ended.value, call.args, call.kwargs)

    async def _attempt(self, call: EffectCall, attempt: int, postponed: int) -> tuple[Ended | None, float, int]:
        """Intent, body, and what follows from how the body ended; None: another attempt, after so many seconds."""
        run, journal, key = call.run, call.run.journal, call.key
        faults.point("effect.before_intent")
        journal.add(
            Kind.intent,
            key,
            self.name,
            attempt=attempt,
            digest=call.args_digest,
            args=call.args_text if attempt == 1 or call.has_other_args else None,
            payload=self._intent(call),
        )
        run.intents.add(key)
        run.bodies += 1  # what `run.busy()` does, without what a context manager costs each effect
        try:
            await journal.barrier(inline=run.may_commit_inline)
            if not run.host.has_lease():
                await run.wait_lease()
        finally:
            run.bodies -= 1
        faults.point("effect.after_intent")
        began = monotonic_us()
        run.acting += 1
        try:
            if self.rules.is_transaction:
                value, error, is_proof = await self._transact(call, attempt)
            else:
                value, error = await self._run_body(call, attempt, None)
                is_proof = isinstance(error, self.options.failures)
        finally:
            run.acting -= 1
        took = elapsed_us(began)
        run.receipt.executed += 1
        faults.point("effect.after_body")
        if error is None:
            return stored(call, self.body, attempt, took, value), 0, postponed
        is_later = isinstance(error, RetryLater)
        failures = attempt - postponed
        has_more = failures <= self.options.retries.attempts
        if not is_later and not is_proof:
            cause = "timeout" if isinstance(error, TimeoutError) else "exception"
            doubt = Doubt(cause, is_over=True, since_us=now_us())
            if run.dead:
                await run.never()  # it stays in doubt, for whoever takes the run up
            await asyncio.sleep(0)  # `verify` is to run in the call's own task
            return await self._settle(call, attempt, doubt, original=error, may_repeat=has_more), 0, postponed
        if not is_later and not (has_more and self._may_repeat(error)):
            return failed(call, self.options, attempt, took, error), 0, postponed
        postponed += is_later
        wait_s = error.after if isinstance(error, RetryLater) else self.options.retries._delay_s(failures)
        retry_at = now_us() + int(wait_s * 1_000_000)
        payload = f'{{"error":{encode_error(error)},"retry_at":{retry_at},"postponed":{postponed}}}'
        journal.add(Kind.attempt, key, self.name, attempt=attempt, took=took, digest=call.args_digest, payload=payload)
        run.intents.discard(key)
        if isinstance(error, RetryLater) and error.hold_queue:
            await run.host.hold_queue(run.queue, retry_at)
        return None, wait_s, postponed

    def _intent(self, call: EffectCall) -> str:
        """What an intent says besides what every record does: enough to see from it who is to undo whom."""
        if self.rules.undo is None and self.undoes is None:
            return f'{{"idempotency_key":"{call.idempotency_key}"}}'
        said = {"idempotency_key": call.idempotency_key}
        if self.undoes is not None:
            said["undoes"] = self.undoes
        else:
            said["saga"] = call.scope.saga.key if call.scope.saga is not None else ""
        return json.dumps(said)

    def _may_repeat(self, error: Exception) -> bool:
        """Is a failure, of which it is known that nothing happened, one to try again after?"""
        is_declared = isinstance(error, self.options.raises)
        return isinstance(error, self.options.retry_on) or (self.rules.is_transaction and not is_declared)

    async def _transact(self, call: EffectCall, attempt: int) -> tuple[Any, Exception | None, bool]:
        """Run the body in a transaction: what it returned or raised, and whether that proves that nothing happened."""
        transaction = call.run.host.store.transaction(call.landing(attempt))
        try:
            value, error = await self._run_body(call, attempt, transaction)
            if error is not None:
                await transaction.roll_back()
                if transaction.was_lost and not isinstance(error, self.options.failures):
                    later = RetryLater(_LOST_S)  # the body is not to blame, and nothing has happened
                    later.__cause__ = error
                    return None, later, True
                return None, error, True
            if not transaction.has_begun:
                return value, None, True
            return await self._land(call, transaction, value)
        except BaseException:
            transaction.spoil()
            raise

    async def _land(
        self, call: EffectCall, transaction: UserTransaction, value: Any
    ) -> tuple[Any, Exception | None, bool]:
        """Commit what the body did, with its result."""
        try:
            payload, _ = self.body.result_coder().roundtrip(value, what=f"the result of {call.key}")
            call.run.journal.check_size(payload, f"the result of {call.key}")
        except Unserialisable as error:
            await transaction.roll_back()
            return None, error, True
        try:
            if await transaction.land(payload):
                return value, None, True
        except StoreError as error:
            return None, error, False
        return None, StoreError(f"Run {call.run.id}: {call.key} was tried again elsewhere meanwhile."), False

    async def _run_body(
        self, call: EffectCall, attempt: int, transaction: UserTransaction | None
    ) -> tuple[Any, Exception | None]:
        run = call.run
        info = StepInfo(run, self.name, call.key, attempt, call.idempotency_key, self.undoes, transaction)
        run.bodies += 1
        try:
            return await self.body.run(call.scope, info, call.args, call.kwargs, self.options.timeout_s), None
        except LateThread as late:
            # The thread lives on: what it says in the end is the truth, however late.
            await asyncio.wait({late.future})
            try:
                return late.future.result(), None
            except BaseException as error:
                return None, raised(error, is_over=run.dead)
        except BaseException as error:
            return None, raised(error, is_over=run.dead)
        finally:
            run.bodies -= 1

    # in doubt

    async def _settle(
        self,
        call: EffectCall,
        attempt: int,
        doubt: Doubt,
        *,
        said: dict[str, Any] | None = None,
        original: Exception | None = None,
        may_repeat: bool = True,
        is_again: bool = False,
        known: Mapping[str, Any] | None = None,
    ) -> Ended | None:
        settling = self._settling(call, attempt, doubt, original=original, may_repeat=may_repeat, is_again=is_again)
        settling.known = known or {}
        return await settling.settle(said)

    def _settling(
        self,
        call: EffectCall,
        attempt: int,
        doubt: Doubt,
        *,
        original: Exception | None = None,
        may_repeat: bool = True,
        is_again: bool = False,
    ) -> Settling:
        # What failed in doubt once is not to fail for ever: when somebody retries the run, a person is asked.
        on_doubt: OnDoubt = "ask" if is_again and self.rules.on_doubt == "fail" else self.rules.on_doubt
        return Settling(
            call=call,
            name=self.name,
            body=self.body,
            options=self.options,
            verify=self.rules.verify,
            on_doubt=on_doubt,
            settle_us=self.rules.settle_us,
            attempt=attempt,
            doubt=doubt,
            take_back=lambda: self._undo_now(call),
            original=original,
            may_repeat=may_repeat,
            landing=call.landing(attempt) if self.rules.is_transaction else None,
        )

    async def _undo_now(self, call: EffectCall) -> BaseException | None:
        """Take back what may have happened; why that failed. The call then fails: its idempotency key is used up."""
        undo = self.rules.undo
        assert undo is not None
        key = undo_key(call.key)
        known = call.run.replay.entries.get(key)
        if known is not None and known.outcome is not None and not known.was_cancelled:
            is_done = known.outcome.kind != Kind.failed
            return None if is_done else decode_error(call.run.text(known.outcome.payload), ())
        args = (None, *call.args)
        text, digest = encode_call(undo.body.fn, args, call.kwargs)
        taken_back = EffectCall(
            call.scope, call.run, key, args, call.kwargs, text, digest, call.run.idempotency_key(key)
        )
        return (await undo.taking_back(call.idempotency_key)._perform(taken_back, known)).error

    def taking_back(self, idempotency_key: str) -> EffectDefinition:
        """This undo, for one call."""
        return EffectDefinition(self.body, self.options, self.rules, idempotency_key)

    def _tell_saga(self, scope: Scope, key: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if scope.saga is not None and self.rules.undo is not None:
            undo = self.rules.undo.taking_back(scope.run.idempotency_key(key))
            scope.saga._add(key, lambda: undo.call((value, *args), kwargs))


def result(ended: Ended | BaseException) -> Ended:
    if isinstance(ended, BaseException):
        raise ended
    return ended
