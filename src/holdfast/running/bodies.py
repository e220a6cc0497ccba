"""The functions of users that are the bodies of steps and effects, and how one is run as part of a call."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import opcode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from holdfast.codec import Coder, coder_for, result_annotation
from holdfast.errors import Unserialisable, UsageError
from holdfast.running.scopes import Scope, StepInfo

if TYPE_CHECKING:
    from holdfast.running.context import RunContext

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)

_SEND = opcode.opmap["SEND"]  # every await, `async for` and `async with` compiles to it


class BoundCall(Protocol[P, R_co]):
    """A step or effect that is a method, taken from its object."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class CallMethod(Protocol[S_contra, P, R_co]):
    """A step or effect that can be a method: its first argument is the object, or the class."""

    async def __call__(self, owner: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Body:
    """A user's function, run as the body of a call."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise UsageError(f"The decorator takes a function, not {fn!r}.")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise UsageError(f"{fn.__name__} is a generator; a step or effect returns one value. Return a list.")
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.where = f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}" if hasattr(fn, "__code__") else ""
        #: an async function without an `await` runs to its end in one go
        self.never_suspends = self.is_async and hasattr(fn, "__code__") and _SEND not in fn.__code__.co_code[::2]

    @functools.cached_property
    def coder(self) -> Coder[Any]:
        """Of its result."""
        return coder_for(result_annotation(self.fn))

    def check_result(self, run_id: str, name: str) -> None:
        """Refuse a call whose result could never be stored, before anything happens."""
        problem = self.coder.problem
        if problem is not None:
            raise Unserialisable(f"Run {run_id}: the result of {name} ({self.where}) cannot be stored: {problem}")

    def read_given(self, text: str, *, what: str) -> Any:
        """The result that a person gave for a call in doubt."""
        return self.coder.loads(text, what=what)

    def from_outside(self, result: Any) -> Any:
        """What the code gets for a result that `verify` found."""
        return result

    async def plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Outside of a run, or inside a body: an ordinary call."""
        if self.is_async:
            return await self.fn(*args, **kwargs)
        return await asyncio.to_thread(self.fn, *args, **kwargs)

    async def run(
        self, scope: Scope, info: StepInfo, args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float | None
    ) -> Any:
        """Execute the body once, as part of a run; `def` in a thread."""
        token = scope.enter_body(info)
        try:
            if self.is_async:
                if timeout_s is None:
                    return await self.fn(*args, **kwargs)
                async with asyncio.timeout(timeout_s):
                    return await self.fn(*args, **kwargs)
            return await self._run_in_thread(scope.run, args, kwargs, timeout_s)
        finally:
            scope.leave_body(token)

    async def _run_in_thread(
        self, run: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float | None
    ) -> Any:
        work = functools.partial(contextvars.copy_context().run, _in_thread, self.fn, args, kwargs)
        future = run.life.loop.run_in_executor(run.host.threads, work)
        run.activity.begin_thread()
        future.add_done_callback(lambda _: run.activity.end_thread())
        done, _ = await asyncio.wait({future}, timeout=timeout_s)
        if done:
            return future.result()
        raise LateThread(future)


def _in_thread(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:  # a future cannot hold it, and would never end
        raise RuntimeError("the body raised StopIteration") from error


class LateThread(TimeoutError):
    """A `def` body did not end in time; its thread lives on."""

    __module__ = "holdfast.calls"  # stored with the attempt that it ended; journals know it by this name

    def __init__(self, future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.future = future
