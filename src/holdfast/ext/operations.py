"""Operations: durable calls whose body is made at run time, as frameworks make them.

An operation is declared once. Each call brings its body, a closure, which is let go of when the call is over: what is
recorded of a call is its place, its name and what is `shown` to people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeVar

from holdfast.base.clock import in_seconds
from holdfast.base.data import mutable
from holdfast.codec import MISSING, Coder, coder_for, digest, encode_call, roundtrip_error
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.ext.codecs import Codec, CodecCoder
from holdfast.ext.places import segment
from holdfast.journal.recovery import OnDoubt
from holdfast.journal.replay import Entry
from holdfast.running.bodies import Body
from holdfast.running.options import Options, Retry
from holdfast.running.scopes import SEALED, Scope, check_branch, scope_or_none
from holdfast.running.sealing import seal
from holdfast.verbs.effect.effect import EffectDefinition
from holdfast.verbs.effect.performing import EffectCall
from holdfast.verbs.effect.rules import Rules
from holdfast.verbs.step import StepDefinition
from holdfast.verbs.step_calls import StepCall

T = TypeVar("T")
Kind = Literal["step", "effect"]
Again = Literal["refuse", "answer"]

_SAID: Final = len('{"shown":')
_CALLS: Final = "ext:calls"


def _shown(shown: object) -> None:
    """Has the arguments of every operation, as people see them."""


class _Closure(Body):
    """The body of one call: what it was given, told of what is shown."""

    def __init__(self, fn: Callable[[], Any], coder: Coder[Any], *, is_async: bool) -> None:
        self.fn = lambda _shown: fn()
        self.is_async = is_async
        self.where = ""
        self.never_suspends = False
        self.coder = coder

    def read_given(self, text: str, *, what: str) -> Any:
        coder = self.coder
        return coder.read_outside(text, what=what) if isinstance(coder, CodecCoder) else coder.loads(text, what=what)

    def from_outside(self, result: Any) -> Any:
        return self.coder.from_outside(result) if isinstance(self.coder, CodecCoder) else result


class _StepCall(StepCall):
    """One call of an operation that may be repeated."""

    __slots__ = ()


class _EffectCall(EffectCall):
    """One call of an operation that is not repeated blindly."""

    __slots__ = ()

    async def _take_recorded(self, entry: Entry) -> None:
        """It is recognised by its place: what was shown of it then is of no account."""


@mutable
class _Made:
    """A call that was made under a key in this execution."""

    key: str
    event: asyncio.Event
    text: str | None = None
    error: BaseException | None = None
    is_cancelled: bool = False


class Operation:
    """A kind of call that an adapter makes: a step or an effect whose body is given with each call.

    `returns` (a type) or `codec` says how its result is stored. Options are those of `hf.step` and `hf.effect`.
    `verify` is called with what was `shown`, `undo` with the result (None: in doubt) and that.

    Example:
        mail = ext.Operation("mail", "effect", returns=str)
        with ext.place("bot:1/mail/call_7", sealed=True):
            await mail(lambda: tool(**arguments), shown=arguments)     # bot:1/mail/call_7/mail#1
    """

    def __init__(
        self,
        name: str,
        kind: Kind = "step",
        *,
        returns: Any = MISSING,
        codec: Codec[Any] | None = None,
        retries: int | Retry = 0,
        timeout: Duration | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] | None = None,
        raises: type[Exception] | tuple[type[Exception], ...] = (),
        on_doubt: OnDoubt = "ask",
        settle: Duration = 5,
        verify: Callable[[Any], Any] | None = None,
        undo: Callable[[Any, Any], Any] | None = None,
        is_async: bool = True,
    ) -> None:
        if kind not in ("step", "effect"):
            raise UsageError(f'An operation is a "step" or an "effect"; got {kind!r}.')
        if on_doubt == "undo" and undo is None:
            raise UsageError(f'{name} says on_doubt="undo" and has no undo=.')
        retried = retry_on if retry_on is not None else (Exception,) if kind == "step" else ()
        self._options = Options.checked(
            _shown, name=name, retries=retries, timeout=timeout, retry_on=retried, raises=raises
        )
        self._is_effect = kind == "effect"
        self._coder: Coder[Any] = CodecCoder(codec) if codec is not None else coder_for(returns)
        self._is_async = is_async
        self._rules = Rules(on_doubt, int(in_seconds(settle, "settle=") * 1_000_000), is_closure=True)
        if verify is not None:
            self._rules.verify = Body(verify)
        if undo is not None:
            taking_back = Options(f"{name}.undo", Retry(3), None, (Exception,), ())
            self._rules.undo = EffectDefinition(Body(undo), taking_back, Rules("retry", 0, is_closure=True))
        self.name = name

    async def __call__(
        self,
        fn: Callable[[], Awaitable[T]],
        *,
        key: str | None = None,
        again: Again = "refuse",
        shown: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> T:
        """Make the call, or answer as it was answered. Outside of a run `fn` is called, and nothing is recorded.

        `key` names it in its place, once; with `again="answer"` the same key, in the same execution, is the same call:
        it answers with its outcome, and joins the call that is under way. `fn` is a function without arguments.

        Example: `await mail(send, key=f"{attempt}.{count}", again="answer", shown={"to": to})`
        """
        try:
            scope = scope_or_none()
            if scope is None or (scope.body is not None and not self._is_effect):
                plain: T = await _Closure(fn, self._coder, is_async=self._is_async).plain((None,), {})
                return plain
            check_branch(scope, self.name)
            if again == "answer":
                if key is None:
                    raise UsageError(f'{self.name}: again="answer" needs key=.')
                answer: T = await self._once(scope, fn, key=key, shown=shown, timeout=timeout)
                return answer
            full = None if key is None else _full(scope, key)
            value: T = await self._call(scope, fn, key=full, shown=shown, timeout=timeout)
            return value
        except SEALED as error:
            await seal(error)
            raise

    def _call(
        self,
        scope: Scope,
        fn: Callable[[], Any],
        *,
        key: str | None,
        shown: Mapping[str, Any] | None,
        timeout: Duration | None,
    ) -> Coroutine[Any, Any, Any]:
        body = _Closure(fn, self._coder, is_async=self._is_async)
        options = self._options if timeout is None else self._options.changed(key=None, retries=None, timeout=timeout)
        told = shown or {}
        text = encode_call(_shown, (told,), {})[0][_SAID:-1]
        run = scope.run
        if len(text) > run.journal.value_limit:
            run.journal.check_size(text, f"what is shown of {self.name}")
        mark = "" if key is None else digest(key)
        if self._is_effect:
            effect = EffectDefinition(body, options, self._rules)
            effect.explicit_key = key
            return _EffectCall(effect, scope, (told,), {}, args_text=text, args_digest=mark).make()
        step = StepDefinition(body, options)
        step.explicit_key = key
        return _StepCall(step, scope, (told,), {}, text, mark).make()

    async def _once(
        self,
        scope: Scope,
        fn: Callable[[], Any],
        *,
        key: str,
        shown: Mapping[str, Any] | None,
        timeout: Duration | None,
    ) -> Any:
        """The call under this key, of which there is one; one that the code has cancelled is followed by another."""
        calls: dict[str, _Made] = scope.run.places.local.setdefault(_CALLS, {})
        full = _full(scope, key)
        made = calls.get(full)
        while made is not None and not made.is_cancelled:
            if made.event.is_set():
                return self._answer(made)
            await made.event.wait()
        life = 1 if made is None else int(made.key.rpartition("~")[2] if "~" in made.key else 1) + 1
        made = calls[full] = _Made(full if life == 1 else f"{full}~{life}", asyncio.Event())
        try:
            value = await self._call(scope, fn, key=made.key, shown=shown, timeout=timeout)
        except Exception as error:
            made.error = error
            raise
        except BaseException:
            made.is_cancelled = True
            raise
        else:
            made.text = self._coder.dumps(value)
            return value
        finally:
            made.event.set()

    def _answer(self, made: _Made) -> Any:
        if made.error is not None:
            raise roundtrip_error(made.error, self._options.failures)[1]
        return self._coder.loads(made.text or "null", what=f"the result of {made.key}")


def _full(scope: Scope, key: str) -> str:
    return f"{scope.prefix()}key:{segment(key)}"
