"""What the methods that a caller holds are inside a run: looks, durable calls, or refused. Each coroutine says which.

A replay calls the agent's code again. A look may be repeated. A durable call is answered from the journal. Anything
else would act once more at each replay, so it is refused, with what to use instead. In the body of a step or effect,
which a replay does not call, and outside of runs, all of them are plain.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar, cast

from holdfast.errors import UsageError
from holdfast.running.scopes import scope_or_none

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
G = TypeVar("G", bound=Callable[..., AsyncIterator[Any]])

#: What to use instead of acts for which there is no durable call.
IN_AN_EFFECT = "do it in the body of an effect there"


class InRun(StrEnum):
    """What a method is inside a run."""

    look = "look"  #: it changes nothing; what it finds is not recorded
    durable = "durable"  #: a call of the run: recorded, and answered on replay
    refused = "refused"


def look(fn: F) -> F:
    """Declare that a method changes nothing."""
    return _declared(fn, InRun.look, "")


def durable(fn: F) -> F:
    """Declare that a method makes a durable call when it is called inside a run; the method itself sees to that."""
    return _declared(fn, InRun.durable, "")


def refused(instead: str) -> Callable[[F], F]:
    """Declare that a method acts, and is not for the code of a run; `instead` says what is."""
    return lambda fn: _declared(fn, InRun.refused, instead)


def refused_following(instead: str) -> Callable[[G], G]:
    """The same of a method that goes on telling: an async generator."""

    def decorate(fn: G) -> G:
        @functools.wraps(fn)
        async def entry(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            _check(self, fn.__name__, instead)
            async for each in fn(self, *args, **kwargs):
                yield each

        entry.__dict__["in_run"] = InRun.refused
        return cast("G", entry)

    return decorate


def is_in_run() -> bool:
    """Is this the code of a run, and not the body of one of its calls?"""
    scope = scope_or_none()
    return scope is not None and scope.body is None


def _declared(fn: F, what: InRun, instead: str) -> F:
    name = fn.__name__

    @functools.wraps(fn)
    async def entry(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self, name, instead)
        return await fn(self, *args, **kwargs)

    entry.__dict__["in_run"] = what
    return cast("F", entry)


def _check(held: Any, method: str, instead: str) -> None:
    name, home = f"{type(held).__name__}.{method}", held._store.home
    if home is not None:
        home.check(f"{name}()")
    if instead and is_in_run():
        raise UsageError(
            f"{name}() was called inside a run, where each replay would repeat it; {instead}. In the body of a "
            "step or effect it is a plain call."
        )
