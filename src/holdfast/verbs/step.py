"""Steps: what an agent asks of the world that is safe to repeat. What their calls do is in `step_calls`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.codec import encode_call
from holdfast.durations import Duration
from holdfast.running.bodies import Body, BoundCall, CallMethod
from holdfast.running.durable import durable_function
from holdfast.running.options import Options, Retry
from holdfast.running.scopes import check_branch, scope_or_none

if TYPE_CHECKING:
    from holdfast.verbs.step_calls import StepCall

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
        self._calls: type[StepCall] | None = None

    def function(self) -> Step[..., Any]:
        function = durable_function(self, self.body.fn)

        def with_options(
            *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
        ) -> Step[..., Any]:
            return StepDefinition(self.body, self.options.changed(key=key, retries=retries, timeout=timeout)).function()

        function.__dict__.update(with_options=with_options, _definition=self)
        return cast("Step[..., Any]", function)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """One call, to be awaited at once."""
        scope = scope_or_none()
        if scope is None or scope.body is not None:
            return self.body.plain(args, kwargs)
        check_branch(scope, self.name)
        run = scope.run
        if self._calls is None:  # the first one in a run: what executes is loaded by now
            from holdfast.verbs.step_calls import StepCall

            self.body.check_result(run.id, self.name)
            self._calls = StepCall
        args_text, args_digest = encode_call(self.body.fn, args, kwargs, recent=run.journal.recent)
        if len(args_text) > run.journal.value_limit:
            run.journal.check_size(args_text, f"what {self.name} is called with")
        return self._calls(self, scope, args, kwargs, args_text, args_digest).make()
