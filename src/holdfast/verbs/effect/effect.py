"""Effects: what changes the world and must not be repeated blindly.

Before the body runs, everything the run has said and the effect's own intent are on disk. A crash, a timeout or an
exception that proves nothing leaves the attempt in doubt; it is settled by `verify`, else by `on_doubt`, before another
attempt and before the agent sees anything. Every settlement is a record with its evidence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast, overload

from holdfast.base.clock import in_seconds
from holdfast.codec import encode_call, encode_input
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.journal.recovery import OnDoubt
from holdfast.running.bodies import Body
from holdfast.running.durable import durable_function
from holdfast.running.options import Options, Retry
from holdfast.running.scopes import check_branch, scope_or_none
from holdfast.verbs.effect.performing import EffectCall
from holdfast.verbs.effect.rules import Rules
from holdfast.verbs.effect.signatures import Effect, EffectDecorator
from holdfast.verbs.effect.transactions import uses_transaction

P = ParamSpec("P")
R = TypeVar("R")


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
        self._check_takes("verify", fn)
        return fn

    def _set_undo(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        options = Options(f"{self.name}.undo", Retry(3), None, (Exception,), ())
        self.rules.undo = EffectDefinition(Body(fn), options, Rules("retry", 0, uses_transaction(fn)))
        self._check_takes("undo", fn, "result")
        return fn

    def _check_takes(self, role: str, fn: Callable[..., Any], *first: str) -> None:
        """Refuse at once what could not be called: else it would be found out after a crash, and by nobody before."""
        try:
            own, other = inspect.signature(self.body.fn), inspect.signature(fn)
        except (TypeError, ValueError):  # of what is not written in Python
            return
        given = own.parameters.values()
        by_place = [each.name for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
        try:
            other.bind(*first, *by_place, **by_name)
        except TypeError as error:
            taken = ", ".join([*first, *map(str, given)])
            raise UsageError(
                f"@{self.name}.{role}: {getattr(fn, '__name__', role)} takes {other}, "
                f"and it is called with ({taken}): {error}."
            ) from None

    def taking_back(self, idempotency_key: str) -> EffectDefinition:
        """This undo, for one call."""
        return EffectDefinition(self.body, self.options, self.rules, idempotency_key)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """One call, to be awaited at once."""
        scope = scope_or_none()
        if scope is None:
            return self.body.plain(args, kwargs)
        check_branch(scope, self.name)
        run = scope.run
        if self.rules.on_doubt == "undo" and self.rules.undo is None:
            raise UsageError(f'{self.name} says on_doubt="undo" and has no undo: declare one with @{self.name}.undo.')
        if not self._is_checked:
            self.body.check_result(run.id, self.name)
            self._is_checked = True
        if self.rules.undo is None:
            args_text, args_digest = encode_call(self.body.fn, args, kwargs, recent=run.journal.recent)
        else:
            args_text, args_digest = encode_input(self.body.fn, args, kwargs)
        if len(args_text) > run.journal.value_limit:
            run.journal.check_size(args_text, f"what {self.name} is called with")
        return EffectCall(self, scope, args, kwargs, args_text=args_text, args_digest=args_digest).make()
