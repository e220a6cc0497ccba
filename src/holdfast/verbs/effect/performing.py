"""One call of an effect: its intent, its attempts, its outcome.

The call goes on in a task of its own, where no cancellation reaches it: that arrives after its outcome. A body that
cannot be cut off, in a run that has one branch, needs no such task.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.shields import Shield
from holdfast.base.stepping import go_on
from holdfast.codec import decode_error, encode_call, encode_error
from holdfast.errors import EffectInDoubt, RetryLater, Undecodable, UsageError
from holdfast.journal.recovery import Doubt, OnDoubt
from holdfast.journal.replay import undo_key
from holdfast.model import Kind, Landing
from holdfast.running.bodies import LateThread
from holdfast.running.call import DurableCall
from holdfast.running.cleaning import raise_kept
from holdfast.running.outcomes import answer, drop
from holdfast.running.raising import raised
from holdfast.running.scopes import SEALED, Scope, StepInfo
from holdfast.running.sealing import reason_for
from holdfast.verbs.effect.beginnings import begun_with
from holdfast.verbs.effect.intents import doubt_of, intent_text
from holdfast.verbs.effect.rules import RuledEffect
from holdfast.verbs.effect.settling import EffectEnd, Settling, failed, stored
from holdfast.verbs.effect.transactions import transact

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.outputs import AttemptOutputs

#: A coroutine that was begun by hand, and what it waits for.
Begun: TypeAlias = tuple[Coroutine[Any, Any, EffectEnd], Any]
_INTENT, _FAILED = Kind.intent, Kind.failed  # looked up once: on Python 3.11 that takes a while


class EffectCall(DurableCall[Any]):
    """One call of an effect."""

    __slots__ = (
        "args",
        "args_text",
        "definition",
        "ended",
        "has_other_args",
        "idempotency_key",
        "kwargs",
        "outputs",
        "shield",
        "turn",
        "unkept",
    )

    is_outward = True
    passes_gate = False  # each attempt does, by itself: what is in doubt is settled first
    outlasts = False  # it shields itself, also where nothing is cleaned up

    def __init__(
        self,
        definition: RuledEffect,
        scope: Scope,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        args_text: str,
        args_digest: str,
    ) -> None:
        self.scope = scope  # as DurableCall does, without one more call for each effect
        self.run = scope.run
        self.name = definition.name
        self.digest = args_digest
        self.explicit_key = definition.explicit_key
        self.definition = definition
        self.args = args
        self.kwargs = kwargs
        self.args_text = args_text
        self.outputs: AttemptOutputs | None = None  #: what the attempt has put out that made it happen
        self.unkept: Exception | None = None  #: why that could not be stored
        self.has_other_args = False  #: than what is recorded of it: the next intent says which
        self.shield: Shield | None = None  #: of the agent's task, which waits for it

    def landing(self, attempt: int) -> Landing:
        """One attempt of it, if it changes the user's own tables."""
        return Landing(self.run.id, self.idempotency_key, attempt)

    # what is recorded of it

    async def go(self) -> Any:
        if self.entry is not None:
            recorded = await begun_with(self, self.entry)
            if recorded is not None:
                (self.args, self.kwargs), self.digest = recorded, self.entry.digest
                self.args_text = self.run.text(self.entry.args)
        return await super().go()

    async def answer(self, entry: Entry) -> Any:
        """From the journal; a saga must know of it all the same, at the same moment as when it was live."""
        outcome, run, coder = entry.outcome, self.run, self.definition.body.coder
        assert outcome is not None

        def tell_saga() -> None:
            value: Any = None
            if outcome.kind == Kind.failed:
                if not (entry.is_unsure or isinstance(decode_error(run.text(outcome.payload), ()), EffectInDoubt)):
                    return
            elif outcome.kind == Kind.done:
                with suppress(Undecodable):  # the answer itself blocks the run for it
                    value = coder.loads(run.text(outcome.payload))
            self._tell_saga(entry.key, value)

        has_undo = self.scope.saga is not None and self.definition.rules.undo is not None
        on_turn = tell_saga if has_undo else None
        return await answer(self.scope, entry, coder, self.definition.options.failures, on_turn=on_turn)

    # performing it

    async def execute(self) -> Any:
        """Perform it in a task of its own: a cancellation arrives after its outcome."""
        scope, run, entry, body = self.scope, self.run, self.entry, self.definition.body
        self.idempotency_key = run.idempotency_key(self.key, entry)
        self.has_other_args = entry is not None and run.text(entry.args) != self.args_text
        begun: Begun | None = None
        scope.enter_call()
        is_simple = entry is None and body.never_suspends and self.definition.options.timeout_s is None
        if is_simple and run.may_commit_inline:
            # Nothing of the user's can be cancelled in its middle: a task is made only if we have to wait ourselves.
            coroutine = self.perform()
            performed: EffectEnd | None = None
            try:
                begun = coroutine, coroutine.send(None)
            except StopIteration as end:
                performed = end.value
            except Exception:
                scope.leave_call(run.life.dead)
                raise
            if performed is not None:
                scope.leave_call()
                return performed.told()
        shield = self.shield = Shield(run.life.is_dead)
        context = contextvars.copy_context()
        task = asyncio.Task(self.perform() if begun is None else go_on(*begun), loop=run.life.loop, context=context)
        try:  # as `Shield.outlast` does, without two more coroutines for each effect that waits
            shield.begin(task, context)
            while not task.done():
                assert shield.gate is not None
                try:
                    await shield.gate
                except asyncio.CancelledError as error:
                    shield.caught(error)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            shield.end()
            shield.close()
            scope.leave_call()
        if shield.kept is not None:
            if not task.cancelled():
                task.exception()  # goes unheard, since the cancellation does not
            raise_kept(scope, shield)
        return task.result().told()

    async def perform(self) -> EffectEnd:
        """From what is recorded of it to its outcome: settle what is in doubt, then try as often as it may be."""
        run, key, entry = self.run, self.key, self.entry
        attempt = entry.attempt if entry is not None else 0
        postponed = entry.postponed if entry is not None else 0
        ended: EffectEnd | None = None
        if entry is not None and entry.is_unsure:
            run.activity.may_have_happened(key)
        if entry is not None and entry.intent is not None:
            run.activity.may_happen(key)
            ended = await self._settling(
                attempt, doubt_of(run, entry.intent), is_again=self._was_doubted(entry), known=entry.evidence
            ).settle(entry.given)
        elif entry is not None and entry.ready_at:
            await run.waits.wait_until(key, entry.ready_at)
        while ended is None:
            if run.gate.shut is not None or run.life.halted:
                try:
                    await run.gate.pass_(self.scope, takes_back=self.definition.undoes is not None)
                except asyncio.CancelledError:
                    if run.life.dead:
                        raise
                    ended = self._give_up(attempt)
                    if ended is None:
                        raise
                    break
            attempt += 1
            value, error, is_proof, took = await self._attempt(attempt)
            if error is None:
                ended = stored(self, self.definition.body, attempt, took, value, unkept=self.unkept)
            else:
                ended, wait_s, postponed = await self._after(
                    error, attempt, is_proof=is_proof, took=took, postponed=postponed
                )
                if ended is None and wait_s > 0:
                    await run.waits.wait_until(key, now_us() + int(wait_s * 1_000_000))
        if self.scope.sealed and isinstance(ended.error, EffectInDoubt) and not run.life.cancelled:
            # No outcome: a person is asked at the next resume.
            await run.block(reason_for(self.scope, ended.error, key))
        if run.activity.lines == 1:  # as `deliver` does, without a coroutine for each effect
            self._record(ended, run.ticks.next_tick())
            if run.journal.is_backlogged:
                await run.journal.wait_backlog()
        else:  # as `deliver` does, without what a call of its own holds while ten thousand wait
            if run.journal.is_backlogged:
                await run.journal.wait_backlog()
            self.ended, self.turn = ended, run.life.loop.create_future()
            run.ticks.complete(self._complete)
            await self.turn
        faults.point("effect.after_outcome")
        if self.shield is not None and run.activity.lines == 1:
            self.shield.open_early()  # with several branches a replay counts the turns
        return ended

    def _complete(self, tick: int) -> None:
        self._record(self.ended, tick)
        if not self.turn.done():
            self.turn.set_result(None)

    def _was_doubted(self, entry: Entry) -> bool:
        """Was it ruled to fail before, and does a person decide now?"""
        return entry.ended_in_doubt or (self.scope.sealed and entry.doubted is not None)

    def _give_up(self, attempt: int) -> EffectEnd | None:
        """The run was cancelled before it was tried, or tried again; None: it has not happened, and does not."""
        run, key = self.run, self.key
        if key in run.activity.unsure:
            doubt = Doubt("cancelled before it was tried again", is_over=True, since_us=now_us())
            return self._settling(attempt, doubt).give_up()
        # On replay it waits for this again.
        tick = run.ticks.tick
        run.journal.add(Kind.cancelled, key, self.name, attempt=attempt, tick=tick, digest=self.digest)
        run.activity.is_known(key)
        return None

    def _record(self, ended: EffectEnd, tick: int) -> None:
        """Its outcome, when it is its turn."""
        run, key, outputs, summary = self.run, self.key, self.outputs, self.run.journal.summary
        summary["effects"] = summary.get("effects", 0) + 1
        if outputs is not None:
            outputs.record(run.journal, key)
        run.journal.add(
            ended.kind,
            key,
            self.name,
            attempt=ended.attempt,
            tick=tick,
            took=ended.took,
            digest=self.digest,
            payload=ended.payload,
        )
        run.activity.is_known(key)
        if ended.kind != _FAILED or key in run.activity.unsure or isinstance(ended.error, EffectInDoubt):
            self._tell_saga(key, ended.value)

    def _tell_saga(self, key: str, value: Any) -> None:
        saga, undo = self.scope.saga, self.definition.rules.undo
        if saga is not None and undo is not None:
            taking_back = undo.taking_back(self.run.idempotency_key(key, self.entry))
            args, kwargs = (value, *self.args), self.kwargs
            saga._add(key, lambda: taking_back.call(args, kwargs))

    # one attempt

    async def _attempt(self, attempt: int) -> tuple[Any, Exception | None, bool, int]:
        """Intent and body: what that returned or raised, whether that proves anything, and how long it took (µs)."""
        run, journal, activity, key = self.run, self.run.journal, self.run.activity, self.key
        definition, scope, body = self.definition, self.scope, self.definition.body
        info = StepInfo(run, self.name, key, attempt, self.idempotency_key, definition.undoes)
        workspaces = run.outputs.workspaces
        given = None if workspaces is None else workspaces.given(self.args, self.kwargs)
        if given is not None:
            try:
                await given.enter(info)
            except BaseException:
                drop(info)
                raise
        faults.point("effect.before_intent")
        journal.add(
            _INTENT,
            key,
            self.name,
            attempt=attempt,
            digest=self.digest,
            args=self.args_text if attempt == 1 or self.has_other_args else None,
            payload=intent_text(self, self.definition.undoes, has_undo=definition.rules.undo is not None),
        )
        activity.may_happen(key)
        activity.begin_work()  # as `activity.busy()` does, without what a context manager costs each effect
        host = run.host
        lapses = host.lapses
        try:
            if (inline := run.may_commit_inline) or journal.thawed is not None:
                await journal.barrier(inline=inline)
            elif (waiter := journal.formed()) is not None:
                await waiter
            # A lease that was renewed too late is there again, and the run may be somebody else's since the commit.
            if not host.has_lease() or host.lapses != lapses:
                await run.wait_lease()
        finally:
            activity.end_work()
        faults.point("effect.after_intent")
        began = monotonic_us()
        value: Any = None
        error: Exception | None = None
        activity.begin_effect()
        args, kwargs = (self.args, self.kwargs) if given is None else (given.args, given.kwargs)
        try:
            if definition.rules.is_transaction:
                info.transaction = transaction = run.host.store.transaction(self.landing(attempt))
                run_body = partial(self._run_body, info, args, kwargs)
                value, error, is_proof = await transact(self, definition, transaction, run_body)
            else:
                if body.is_async and definition.options.timeout_s is None:
                    token = scope.enter_body(info)  # as `_run_body` does, without one more coroutine
                    try:
                        value = await body.fn(*args, **kwargs)
                    except BaseException as caught:
                        error = raised(caught, is_over=run.life.dead)
                    finally:
                        scope.leave_body(token)
                else:
                    value, error = await self._run_body(info, args, kwargs)
                # A call of ours that cannot be made is a mistake in the code, and no doubt about the world.
                is_proof = error is not None and isinstance(error, (*definition.options.failures, UsageError))
        finally:
            activity.end_effect()
        took = monotonic_us() - began
        scope.count_executed()
        if given is not None:
            self.unkept = await given.end(info, error)
        if error is None and self.unkept is None:
            self.outputs = info.end()
        else:
            drop(info)
        faults.point("effect.after_body")
        return value, error, is_proof, took

    async def _run_body(
        self, info: StepInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Exception | None]:
        run, definition = self.run, self.definition
        try:
            timeout_s = definition.options.timeout_s
            return await definition.body.run(self.scope, info, args, kwargs, timeout_s), None
        except LateThread as late:
            # The thread lives on: what it says in the end is the truth, however late.
            with run.activity.busy():
                await asyncio.wait({late.future})
            try:
                return late.future.result(), None
            except BaseException as error:
                return None, raised(error, is_over=run.life.dead)
        except BaseException as error:
            return None, raised(error, is_over=run.life.dead)

    async def _after(
        self, error: Exception, attempt: int, *, is_proof: bool, took: int, postponed: int
    ) -> tuple[EffectEnd | None, float, int]:
        """What follows from what the body raised; None: another attempt, after so many seconds."""
        run, journal, options = self.run, self.run.journal, self.definition.options
        is_later = isinstance(error, RetryLater)
        if is_proof and self.scope.sealed and isinstance(error, SEALED):
            self._note_failure(error, attempt, took=took, retry_at=now_us(), postponed=postponed)
            await run.block(reason_for(self.scope, error, self.key))  # once it is mended, it is tried again
        failures = attempt - postponed
        has_more = failures <= options.retries.attempts
        if not is_later and not is_proof:
            cause = "timeout" if isinstance(error, TimeoutError) else "exception"
            doubt = Doubt(cause, is_over=True, since_us=now_us())
            if run.life.dead:
                await run.life.never()  # it stays in doubt, for whoever takes the run up
            await asyncio.sleep(0)  # `verify` is to run in the call's own task
            settling = self._settling(attempt, doubt, original=error, may_repeat=has_more)
            return await settling.settle(None), 0, postponed
        if not is_later and not (has_more and self._may_repeat(error)):
            return failed(self, options, attempt, took, error), 0, postponed
        postponed += is_later
        wait_s = error.after if isinstance(error, RetryLater) else options.retries._delay_s(failures)
        retry_at = now_us() + int(wait_s * 1_000_000)
        self._note_failure(error, attempt, took=took, retry_at=retry_at, postponed=postponed)
        if isinstance(error, RetryLater) and error.hold_queue:
            await run.host.hold_queue(journal.row.queue, retry_at)
        return None, wait_s, postponed

    def _note_failure(self, error: Exception, attempt: int, *, took: int, retry_at: int, postponed: int) -> None:
        """An attempt that is known not to have happened; another one follows."""
        run = self.run
        payload = f'{{"error":{encode_error(error)},"retry_at":{retry_at},"postponed":{postponed}}}'
        run.journal.add(
            Kind.attempt, self.key, self.name, attempt=attempt, took=took, digest=self.digest, payload=payload
        )
        run.activity.is_known(self.key)

    def _may_repeat(self, error: Exception) -> bool:
        """Is a failure, of which it is known that nothing happened, one to try again after?"""
        options = self.definition.options
        is_declared = isinstance(error, options.raises)
        return isinstance(error, options.retry_on) or (self.definition.rules.is_transaction and not is_declared)

    # in doubt

    def _settling(
        self,
        attempt: int,
        doubt: Doubt,
        *,
        original: Exception | None = None,
        may_repeat: bool = True,
        is_again: bool = False,
        known: Mapping[str, Any] | None = None,
    ) -> Settling:
        definition, rules = self.definition, self.definition.rules
        # What failed in doubt once is not to fail for ever: when somebody retries the run, a person is asked.
        on_doubt: OnDoubt = "ask" if is_again and rules.on_doubt == "fail" else rules.on_doubt
        return Settling(
            call=self,
            name=self.name,
            body=definition.body,
            options=definition.options,
            verify=rules.verify,
            on_doubt=on_doubt,
            settle_us=rules.settle_us,
            attempt=attempt,
            doubt=doubt,
            take_back=self._undo_now,
            original=original,
            may_repeat=may_repeat,
            known=known or {},
            landing=self.landing(attempt) if rules.is_transaction else None,
        )

    async def _undo_now(self) -> BaseException | None:
        """Take back what may have happened; why that failed. The call then fails: its idempotency key is used up."""
        run, undo = self.run, self.definition.rules.undo
        assert undo is not None
        key = undo_key(self.key)
        known = run.replay.entries.get(key)
        if known is not None and known.outcome is not None and not known.was_cancelled:
            is_done = known.outcome.kind != Kind.failed
            return None if is_done else decode_error(run.text(known.outcome.payload), ())
        args = (None, *self.args)
        text, digest = encode_call(undo.body.fn, args, self.kwargs)
        taking_back = undo.taking_back(self.idempotency_key)
        call = EffectCall(taking_back, self.scope, args, self.kwargs, args_text=text, args_digest=digest)
        return (await call.perform_as(key, known)).error

    def perform_as(self, key: str, known: Entry | None) -> Coroutine[Any, Any, EffectEnd]:
        """Perform a call that the code does not make itself, and of which this is recorded."""
        self.key, self.entry = key, known
        self.idempotency_key = self.run.idempotency_key(key, known)
        return self.perform()
