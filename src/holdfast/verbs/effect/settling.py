"""Finding out what became of an effect that was cut off, and acting on it.

The decision itself is pure (`journal.recovery.rule`). Here is what feeds it, `verify`, a person's word, the time that
passed, and what follows: a record of the settlement with its evidence, then an outcome or another attempt.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Protocol, TypeVar

from holdfast.base import faults
from holdfast.base.clock import now_us
from holdfast.base.data import brisk, data, mutable
from holdfast.base.tracebacks import trimmed, where_raised
from holdfast.codec import decode_error, encode_error, message_of, roundtrip_error
from holdfast.errors import EffectInDoubt, EffectUndone, StepError, Undecodable, Unserialisable
from holdfast.journal.evidence import how_it_ended, how_to_declare, how_verify_failed
from holdfast.journal.recovery import CANCELLED, Doubt, OnDoubt, Ruling, rule
from holdfast.model import Kind, Landing
from holdfast.running.bodies import Body
from holdfast.running.leftovers import record_verdict
from holdfast.running.options import Options
from holdfast.running.outcomes import drop, not_stored, remember_key
from holdfast.running.raising import raised
from holdfast.running.scopes import Scope, StepInfo

if TYPE_CHECKING:
    from holdfast.running.context import RunContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@data
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


# Looked up once: on Python 3.11 a look at a member of an enum takes as long as a small function.
_DONE = Kind.done


class DoubtfulCall(Protocol):
    """One call of an effect, while it is being performed."""

    scope: Scope
    run: RunContext
    key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    idempotency_key: str


@brisk
class EffectEnd:
    """How a call ended: `kind` and `payload` are what is recorded, `value` or `error` what the agent gets."""

    kind: Kind
    payload: str
    took: int
    attempt: int
    value: Any = None
    error: BaseException | None = None

    def told(self) -> Any:
        """What the agent gets."""
        if self.error is not None:
            raise self.error
        return self.value


def stored(
    call: DoubtfulCall, body: Body, attempt: int, took: int, value: Any, *, unkept: Exception | None = None
) -> EffectEnd:
    """It happened. If its result cannot be stored, that is what the agent hears; it is never done again.

    `unkept`: why something else that it has left could not be.
    """
    try:
        if unkept is not None:
            raise Unserialisable(str(unkept)) from unkept
        payload, value = body.coder.roundtrip(value, what=f"the result of {call.key}")
        if len(payload) > call.run.journal.value_limit:
            call.run.journal.check_size(payload, f"the result of {call.key}")
    except Unserialisable as error:
        payload = json.dumps({"repr": _shown(value), "error": str(error)})
        seen = remember_key(not_stored(call.key, call.run.id), call.key)
        seen.add_note(str(error))
        return EffectEnd(Kind.unstored, payload, took, attempt, error=seen)
    return EffectEnd(_DONE, payload, took, attempt, value=value)


def failed(call: DoubtfulCall, options: Options, attempt: int, took: int, error: Exception) -> EffectEnd:
    """It did not happen, and there are no attempts left: the agent gets what the body raised."""
    payload, seen = roundtrip_error(error, options.failures)
    seen.__traceback__ = trimmed(error.__traceback__)  # live, the agent's author sees the line in the body too
    return EffectEnd(Kind.failed, payload, took, attempt, error=remember_key(seen, call.key))


@mutable
class Settling:
    """What became of one attempt.

    `original` is what the body raised, if it did; `may_repeat`: another attempt is left; `take_back` runs the undo, and
    tells why it failed.
    """

    call: DoubtfulCall
    name: str
    body: Body
    options: Options
    verify: Body | None
    on_doubt: OnDoubt
    settle_us: int
    attempt: int
    doubt: Doubt
    take_back: Callable[[], Awaitable[BaseException | None]]
    original: Exception | None = None
    may_repeat: bool = True
    known: Mapping[str, Any] = field(default_factory=dict)  #: evidence, from before the run was taken up again
    landing: Landing | None = None  #: where the store itself knows what became of it

    async def settle(self, said: dict[str, Any] | None) -> EffectEnd | None:
        """The outcome; None: it did not happen (or may be repeated), and a new attempt follows.

        `said`: what a person said, and was recorded, before a crash kept it from being acted on.
        """
        run, key = self.call.run, self.call.key
        evidence: dict[str, Any] = {"cause": self.doubt.cause, **self.known}
        if self.original is not None:
            evidence |= _raised(self.original, self.body.where)
        if self.landing is not None:
            return await self._read_landed(self.landing, evidence)
        is_recorded = False
        if (given := self._fitting(run.inbox.take_verdict(key), evidence)) is None and said is not None:
            is_recorded = (given := self._fitting(said, evidence, is_recorded=True)) is not None
        while given is None:
            verdict, value = await self._verify(evidence)
            ruling = rule(
                self.doubt, verdict=verdict, on_doubt=self.on_doubt, settle_us=self.settle_us, now_us=now_us()
            )
            faults.point("settle.before_record")
            match ruling:
                case Ruling.verify_later:
                    await self._wait_settled()
                case Ruling.ask:
                    told = await run.waits.hold(key, {"name": self.name, "attempt": self.attempt, **evidence})
                    if told["verdict"] == CANCELLED:
                        return self._left(evidence)
                    given = self._fitting(told, evidence)
                case _:
                    return await self._act(ruling, verdict, value, evidence)
        if not is_recorded:
            self._record(given["verdict"], "person", evidence, given)
        return self._resolved(given)

    async def _read_landed(self, landing: Landing, evidence: dict[str, Any]) -> EffectEnd | None:
        """The changes are in the store's own database, which says whether they were made; nobody else can."""
        call = self.call
        found = await call.run.patiently(lambda: call.run.host.store.landed(landing))
        faults.point("settle.before_record")
        if found is None:
            return await self._act(Ruling.again, "not_landed", None, evidence, by="the store")
        value = self.body.coder.loads(found, what=f"the result of {call.key}")
        return await self._act(Ruling.landed, "landed", value, evidence, by="the store")

    async def _act(
        self, ruling: Ruling, verdict: str | None, value: Any, evidence: dict[str, Any], *, by: str = "verify"
    ) -> EffectEnd | None:
        """Record the ruling, and do what it says; `by`: whose verdict it is."""
        match ruling:
            case Ruling.landed:
                self._record("landed", by, evidence)
                return stored(self.call, self.body, self.attempt, 0, value)
            case Ruling.again if verdict == "not_landed":
                self._record("not_landed", by, evidence)
                if self.may_repeat or self.original is None:
                    return None
                return failed(self.call, self.options, self.attempt, 0, self.original)
            case Ruling.again if self.may_repeat:
                self._record("retry", "on_doubt", evidence)
                return None
            case Ruling.undo:
                self._record("undo", "on_doubt", evidence)
                if (error := await self.take_back()) is not None:
                    evidence["undo_error"] = _named(error)
                    return self._fail("on_doubt", evidence)
                return self._raised(
                    EffectUndone(
                        f"Run {self.call.run.id}: {self.call.key} was cut off; whatever may have happened was undone.",
                        error_type="EffectUndone",
                    )
                )
            case _:
                if ruling is Ruling.again:
                    evidence["attempts"] = "used up"
                return self._fail("on_doubt", evidence)

    def give_up(self) -> EffectEnd:
        """The run was cancelled before it was tried again; an attempt before may have done it."""
        return self._left({"cause": self.doubt.cause})

    def _left(self, evidence: dict[str, Any]) -> EffectEnd:
        self.call.run.activity.leave_in_doubt(self.call.key)
        return self._fail("cancel", evidence)

    def _fail(self, by: str, evidence: dict[str, Any]) -> EffectEnd:
        self._record("fail", by, evidence)
        undo = f"Its undo failed: {evidence['undo_error']}." if "undo_error" in evidence else ""
        about = f"Run {self.call.run.id}: {self.call.key} may or may not have happened: {how_it_ended(evidence)}."
        return self._raised(
            EffectInDoubt(
                " ".join(part for part in (about, how_verify_failed(evidence), undo, how_to_declare(evidence)) if part),
                error_type="EffectInDoubt",
                error_message=str(evidence.get("error", "")),
            )
        )

    def _raised(self, error: Exception) -> EffectEnd:
        return EffectEnd(Kind.failed, encode_error(error), 0, self.attempt, error=remember_key(error, self.call.key))

    async def _wait_settled(self) -> None:
        await self.call.run.waits.wait_until(self.call.key, self.doubt.since_us + self.settle_us + 1000)

    async def _verify(self, evidence: dict[str, Any]) -> tuple[Literal["landed", "not_landed"] | None, Any]:
        if self.verify is None:
            return None, None
        call = self.call
        info = StepInfo(call.run, self.name, call.key, self.attempt, call.idempotency_key)
        args, kwargs, workspaces = call.args, call.kwargs, call.run.outputs.workspaces
        try:
            given = None if workspaces is None else workspaces.given(args, kwargs)
            if given is not None:  # as the attempt found it; what is done to it is taken back
                await given.enter(info)
                args, kwargs = given.args, given.kwargs
            verdict = await self.verify.run(call.scope, info, args, kwargs, self.options.timeout_s)
            has_landed = isinstance(verdict, Verdict) and verdict.has_landed
            result = self.body.from_outside(verdict.result) if has_landed else None
        except BaseException as caught:
            error = raised(caught, is_over=call.run.life.dead)
            evidence["verify_error"] = _named(error)
            return None, None
        finally:
            drop(info)
        if not isinstance(verdict, Verdict):
            evidence["verify_error"] = f"verify returned {type(verdict).__name__}, not hf.landed(…) or hf.not_landed()"
            return None, None
        evidence["verify"] = "landed" if verdict.has_landed else "not_landed"
        return ("landed", result) if verdict.has_landed else ("not_landed", None)

    def _fitting(
        self, given: dict[str, Any] | None, evidence: dict[str, Any], *, is_recorded: bool = False
    ) -> dict[str, Any] | None:
        """What a person said, unless the result they gave does not fit the effect's type: then they are asked again.

        `is_recorded`: the mail that said it was acted on already; a refusal does not act on it a second time.
        """
        if given is None:
            return None
        problem = self._problem(given)
        if problem is None:
            return given
        evidence["refused"] = problem
        self._record("refused", "person", evidence, None if is_recorded else given)
        return None

    def _problem(self, given: dict[str, Any]) -> str | None:
        """Why what a person said cannot be acted on."""
        if given["attempt"] != self.attempt:
            return f"it was said of attempt {given['attempt']}"
        if given["verdict"] == "landed":
            try:
                self.body.read_given(given["value"], what=f"the result given for {self.call.key}")
            except Undecodable as error:
                return str(error)
        return None

    def _resolved(self, given: dict[str, Any]) -> EffectEnd | None:
        """What follows from a person's verdict."""
        match given["verdict"]:
            case "landed":
                value = self.body.read_given(given["value"], what=f"the result given for {self.call.key}")
                return stored(self.call, self.body, self.attempt, 0, value)
            case "not_landed":
                return None
            case _:
                error = decode_error(given["error"], self.options.failures)
                return EffectEnd(Kind.failed, given["error"], 0, self.attempt, error=remember_key(error, self.call.key))

    def _record(self, verdict: str, by: str, evidence: dict[str, Any], given: dict[str, Any] | None = None) -> None:
        run, key = self.call.run, self.call.key
        record_verdict(
            run, key, self.name, attempt=self.attempt, verdict=verdict, by=by, evidence=evidence, given=given
        )
        if verdict in ("not_landed", "retry"):
            run.activity.is_known(key)
            if verdict == "retry":
                run.activity.may_have_happened(key)
            else:
                run.activity.has_not_happened(key)
        faults.point("settle.after_record")


def _named(error: BaseException) -> str:
    """The exception with its type; for what is no `Exception`, the text has it already."""
    text = message_of(error)[:500]
    kind = type(error).__name__
    return text if type(error) is StepError else f"{kind}: {text}" if text else kind


def _raised(error: Exception, where: str) -> dict[str, str]:
    """What the body raised, as evidence; what is no `Exception`, and a timeout, is not to be declared a failure."""
    is_foreign = type(error) is StepError and error.__cause__ is not None
    at = where_raised(error.__cause__ if is_foreign and error.__cause__ is not None else error)
    said = {"error": _named(error), "at": at or where}
    return said if is_foreign or isinstance(error, TimeoutError) else {**said, "raised": type(error).__name__}


def _shown(value: object) -> str:
    try:
        return repr(value)[:1000]
    except BaseException as broken:
        return f"<repr failed: {type(broken).__name__}>"
