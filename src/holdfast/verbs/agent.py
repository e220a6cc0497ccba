"""Agents: durable programs. Calling one makes a `Call`: what to run, with which input."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from holdfast.base.clock import in_seconds
from holdfast.base.data import data
from holdfast.base.source_code import code_of
from holdfast.codec import Coder, Input, bind_input, coder_for, decode_input, digest, result_annotation
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.running.forgotten import tell_run
from holdfast.running.options import checked_name

if TYPE_CHECKING:
    from holdfast.model.budgets import Budget

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class DeclaredSignal(Protocol):
    """A message that an agent takes: its name and the type of its value."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> Any: ...


@data
class MainLine:
    """Where a run stood when it was interrupted."""

    now: str  #: what it was doing
    calls: tuple[str, ...]  #: the keys of its last calls that ended, the latest last
    last: Any  #: what the latest of them returned
    progress: dict[str, Any] | None  #: what it last reported with `hf.progress`
    state: Any = None  #: with which its turn began (`hf.turns`), to be read; None before the loop


class Agent(Generic[P, R_co]):
    """A durable program: an `async` function whose steps and effects are recorded."""

    __name__: str

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R_co]],
        *,
        name: str | None = None,
        version: str | None = None,
        timeout_s: float | None = None,
        queue: str | None = None,
        signals: Iterable[DeclaredSignal] = (),
        budget: Budget | None = None,
        written: Callable[..., Any] | None = None,
    ) -> None:
        """`written`: what people wrote of it, if that is another function; its file is the one to be named."""
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(
                f"@hf.agent takes an async function; {getattr(fn, '__name__', fn)!r} is not one. Make it `async def`."
            )
        self.fn = fn
        self._written = fn if written is None else written
        self.name: str = checked_name(name, fn)
        self.version = version
        self._timeout_s = timeout_s
        self.queue = queue
        self.signals: dict[str, DeclaredSignal] = _declared(signals)
        self.budget = _checked_budget(budget)
        self._interrupted: Callable[..., Coroutine[Any, Any, Any]] | None = None
        functools.update_wrapper(self, fn)
        self.__code__, self.__defaults__, self.__kwdefaults__ = _code_of(fn)  # so `inspect` sees an async function

    def on_interrupt(self, fn: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Declare what happens when somebody interrupts a run with a message.

        The handler is an async function of the message, or of the message and a `MainLine` that says where the run
        stands. It runs as a branch of its own while the main line is held at its next durable call; what it returns is
        the reply. Then the main line goes on exactly where it was.

        Example:
            @newsletter.on_interrupt
            async def interrupted(message: str, main: hf.MainLine) -> str:
                return f"I am at {main.now}"
        """
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"on_interrupt takes an async function; {getattr(fn, '__name__', fn)!r} is not one.")
        self._interrupted = fn
        return fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        return Call(self, args, kwargs)

    @functools.cached_property
    def coder(self) -> Coder[R_co]:
        return coder_for(result_annotation(self.fn))

    @functools.cached_property
    def _source(self) -> str | None:
        """The file that the agent is in, for whoever wants to resume one of its runs."""
        try:
            return os.path.realpath(inspect.getfile(self._written))
        except TypeError:
            return None

    @functools.cached_property
    def _code(self) -> str:
        """What the code is, whatever its layout: a digest of its module and of what that imports of its project."""
        return digest(f"{self.version or ''}/{code_of(self._written)}")

    def __repr__(self) -> str:
        return f"<agent {self.name}>"


def _code_of(fn: Any) -> tuple[Any, Any, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn.__code__, fn.__defaults__, fn.__kwdefaults__


class Call(Coroutine[Any, Any, R_co]):
    """An agent with its input: what to run. `await` it inside a run; elsewhere pass it to `hf.run` or `app.start`."""

    def __init__(self, agent: Agent[..., R_co], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.agent = agent
        self.args = args
        self.kwargs: dict[str, Any] = dict(kwargs)
        self._coroutine: Coroutine[Any, Any, R_co] | None = None

    @functools.cached_property
    def input(self) -> Input:
        """What is stored of it, defaults included; raises if it cannot be stored."""
        return bind_input(self.agent.fn, self.args, self.kwargs)

    @classmethod
    def _decoded(cls: type[Call[R]], agent: Agent[..., R], text: str) -> Call[R]:
        args, kwargs = decode_input(agent.fn, text)
        return cls(agent, args, kwargs)

    @classmethod
    def _stored(cls: type[Call[R]], agent: Agent[..., R], given: Input) -> Call[R]:
        """A call to be started with what was stored, without being read."""
        call = cls(agent, (), {})
        call.input = given
        return call

    def _with_input(self, given: Input) -> Call[R_co]:
        """The same, to be started with what was stored."""
        return Call._stored(self.agent, given)

    @property
    def __name__(self) -> str:
        return self.agent.__name__

    def _durable_name(self) -> str:
        return self.agent.name

    def _durable_arguments(self) -> dict[str, Any]:
        return {"args": self.args, **self.kwargs}

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self._begun().__await__()

    def _begun(self) -> Coroutine[Any, Any, R_co]:
        from holdfast.verbs.child import await_child

        self._coroutine = await_child(self)
        return self._coroutine

    def __del__(self) -> None:
        is_used = self._coroutine is not None or "input" in self.__dict__
        if not is_used:  # neither awaited nor started
            tell_run(self.agent.__name__)

    # a coroutine as well, so that create_task and TaskGroup take it

    def send(self, value: Any, /) -> Any:
        return (self._coroutine or self._begun()).send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        return (self._coroutine or self._begun()).throw(kind if value is None else value)

    def close(self) -> None:
        (self._coroutine or self._begun()).close()

    def __repr__(self) -> str:
        return f"<call of {self.agent.name}>"


def check_call(given: object, verb: str) -> None:
    """UsageError if what a verb was given is no call of an agent."""
    if not isinstance(given, Call):
        example = f"{given.name}(…)" if isinstance(given, Agent) else "my_agent(1, 2)"
        raise UsageError(f"{verb} takes a call of an agent, like `{example}`; got {given!r}.")


class AgentDecorator(Protocol):
    """What `agent(...)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...


@overload
def agent(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    version: str | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    signals: Iterable[DeclaredSignal] = (),
    budget: Budget | None = None,
) -> AgentDecorator: ...
def agent(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    signals: Iterable[DeclaredSignal] = (),
    budget: Budget | None = None,
) -> Any:
    """Make an async function an agent: a program that survives its process.

    What it asks of the world goes through steps and effects; everything else it computes again on resume, so it should
    depend on nothing but its input and their results. `timeout` limits the whole run, crashes included. Runs wait on
    `queue`, if it is given, until a worker has room for them. `signals` declares what can be sent to a run: anything
    else, and values of another shape, are refused to their sender. `budget` limits what a run uses with all that comes
    of it: at the limit it is `blocked`, until somebody raises it with `resume(budget=)`.

    Example:
        @hf.agent
        async def newsletter(topic: str) -> str:
            return await send_email("list@example.org", await write(topic))
    """
    timeout_s = None if timeout is None else in_seconds(timeout, "timeout=")

    def decorate(fn: Callable[..., Any]) -> Agent[..., Any]:
        return Agent(fn, name=name, version=version, timeout_s=timeout_s, queue=queue, signals=signals, budget=budget)

    return decorate if fn is None else decorate(fn)


def _checked_budget(budget: Any) -> Budget | None:
    if budget is None:
        return None
    from holdfast.model.budgets import Budget

    if not isinstance(budget, Budget):
        raise UsageError(f"budget= takes a Budget, like hf.Budget(cost=5.0, steps=200); got {budget!r}.")
    return budget.checked("budget=")


def _declared(signals: Any) -> dict[str, DeclaredSignal]:
    """By name. One that is not in a list is taken, too."""
    given = list(signals) if isinstance(signals, Iterable) else [signals]
    if not all(hasattr(each, "name") and hasattr(each, "type") for each in given):
        raise UsageError(f'signals= takes signals, like [hf.Signal("approved", bool)]; got {signals!r}.')
    return {signal.name: signal for signal in given}
