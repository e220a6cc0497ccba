"""What the tasks of a run are doing apart from durable calls, known without looking at all of them again and again.

A branch is looked at when it may have changed: when its task was made, when it has left a durable call, and when what
it waits for has come. If it waits for something of its own (a queue, a `gather`, a socket), the future that it waits
for tells when that is over; until then nobody asks. So a turn of a run with ten thousand branches costs as much as
what happened in it.

A future tells in the turn in which the task goes on, and what the task does then may wake another in the next turn. So
the run stirs for one turn longer.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
from collections import deque
from collections.abc import Container, Iterator
from enum import Enum
from types import AsyncGeneratorType, CodeType
from typing import Any, Protocol

from holdfast.base.shields import Kept


class Quiet(Enum):
    """What the tasks of a run are doing, apart from durable calls."""

    busy = "busy"  #: one is about to run
    outside = "outside"  #: one waits for something that the run does not control
    settled = "settled"  #: all wait for durable calls or for each other


class BranchTask(Protocol):
    """A task of a run, and whether it is in a durable call."""

    task: asyncio.Task[Any] | None
    is_loose: bool  #: it is to be looked at

    @property
    def in_call(self) -> bool: ...


class Stillness:
    """Of the tasks of one run. `tasks` are those that live."""

    def __init__(self, tasks: Container[asyncio.Task[Any]]) -> None:
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self.context = contextvars.Context()  #: for callbacks, which need none: else each has a copy of its own
        self._loose: deque[BranchTask] = deque()
        self._outside: set[BranchTask] = set()
        self._stirring = 0

    def loosen(self, branch: BranchTask) -> None:
        """It may have changed what it does."""
        if not branch.is_loose:
            branch.is_loose = True
            self._loose.append(branch)

    def let_go(self) -> None:
        """The run is over; nobody is to be looked at."""
        self._loose.clear()
        self._outside.clear()

    def now(self) -> Quiet:
        """What the tasks are doing."""
        if self._stirring:
            return Quiet.busy
        loose = self._loose
        while loose:
            if not self._has_come_to_rest(loose[0]):
                return Quiet.busy
            loose.popleft().is_loose = False
        return Quiet.outside if self._outside else Quiet.settled

    def _has_come_to_rest(self, branch: BranchTask) -> bool:
        task = branch.task
        if branch.in_call or task is None or task not in self._tasks:
            return True
        waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
        if waiter is None or waiter.done() or _is_about_to_end(waiter):
            return False
        if waits_outside(task, waiter, self._tasks):
            self._outside.add(branch)
        waiter.add_done_callback(functools.partial(self._go_on, branch), context=self.context)
        for inner in _inner_gathers(waiter):
            inner.add_done_callback(self._stir, context=self.context)
        return True

    def _go_on(self, branch: BranchTask, waiter: object) -> None:
        self._outside.discard(branch)
        self.loosen(branch)
        self._stir(waiter)

    def _stir(self, _: object) -> None:
        self._stirring += 1
        self._loop.call_soon(self._calm, context=self.context)

    def _calm(self) -> None:
        self._stirring -= 1


# what tasks wait for

_INSIDE_CODES = frozenset(
    code
    for code in (
        getattr(asyncio.tasks, "_wait", None),
        asyncio.TaskGroup.__aexit__,
        asyncio.Queue.get,
        asyncio.Queue.put,
        asyncio.Queue.join,
        asyncio.Event.wait,
        asyncio.Lock.acquire,
        asyncio.Condition.wait,
        asyncio.Semaphore.acquire,
        asyncio.Barrier.wait,
    )
    if code is not None
    for code in (code.__code__,)
)


#: What awaits an async generator.
_ASKING = frozenset({"async_generator_asend", "async_generator_athrow"})


def waits_outside(task: asyncio.Task[Any], waiter: asyncio.Future[Any], own: Container[object]) -> bool:
    """Does a task wait for something that is neither a task of its run nor a primitive shared by them?"""
    if waiter in own or hasattr(waiter, "_children") or isinstance(waiter, Kept) or _shielded(waiter) in own:
        return False
    awaited: Any = task.get_coro()
    while awaited is not None:
        code = (
            getattr(awaited, "cr_code", None) or getattr(awaited, "gi_code", None) or getattr(awaited, "ag_code", None)
        )
        if code in _INSIDE_CODES or _is_group_of_anyio(code):
            return False
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
            or _generator_of(awaited)
        )
    return True


def _generator_of(awaited: object) -> object:
    """The async generator that is asked for its next value; what asks does not tell, but it refers to it."""
    if type(awaited).__name__ not in _ASKING:
        return None
    return next((each for each in gc.get_referents(awaited) if isinstance(each, AsyncGeneratorType)), None)


def _is_group_of_anyio(code: CodeType | None) -> bool:
    """Does a task wait for the tasks of its anyio group?"""
    return code is not None and code.co_qualname == "TaskGroup.__aexit__" and "anyio" in code.co_filename


def _shielded(waiter: Any) -> object:
    """What is behind an `asyncio.shield`, if that is what is waited for."""
    for callback, _ in getattr(waiter, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            return inspect.getclosurevars(callback).nonlocals.get("inner")
    return None


def _inner_gathers(waiter: Any) -> Iterator[Any]:
    """If it is a `gather`: those that are parts of it, at any depth. Each takes a turn to hear that it has ended."""
    left = [waiter]
    while left:
        for part in getattr(left.pop(), "_children", ()):
            if hasattr(part, "_children"):
                left.append(part)
                yield part


def _is_about_to_end(waiter: Any) -> bool:
    """Is it a `gather` whose parts have all ended, and which hears of it in the next turn?"""
    for gathered in (waiter, *_inner_gathers(waiter)):
        parts = getattr(gathered, "_children", ())
        if parts and not gathered.done() and all(part.done() for part in parts):
            return True
    return False
