"""The task factory that names the branches of a run.

A branch is named when its task is *created*, from its parent's path, the coroutine's name and how many of that name the
parent has created. Naming it at its first durable call would let a plain `await` before that call hand one branch
another's data. A task that is itself a durable call (`gather(search(a), search(b))`) is not a branch: it takes its key
in the parent's scope, at creation too.

`asyncio.as_completed` creates its tasks from a set, in arbitrary order. What it was given as a list is named in the
list's order; otherwise by its arguments, which therefore must tell one from the other. `asyncio.wait_for` runs its
coroutine as part of the caller from Python 3.12 on; the task that 3.11 makes for it is no branch either.

The finalisers of generators run whenever the garbage collector comes by: they have no place in any run.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, CoroutineType, FrameType, TracebackType
from typing import Any, TypeAlias, TypeVar

from holdfast.codec import encode_call
from holdfast.errors import UsageError
from holdfast.running.durable import DURABLE_CODE, DecoratedFunction
from holdfast.running.own_waits import watch
from holdfast.running.raising import raised
from holdfast.running.scopes import Lineless, Reservation, Scope, caller, current_scope, scope_in, set_scope

T = TypeVar("T")

_ASYNCIO = os.path.dirname(asyncio.__file__)
_ANYIO = f"{os.sep}anyio{os.sep}"
_FRAMES = 12
_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit)  # the loop, or (the last) whatever awaits the task
_FINALISER = "async_generator_athrow"


def _codes(*functions: Any) -> frozenset[CodeType]:
    return frozenset(f.__code__ for f in functions if hasattr(f, "__code__"))


_EAGER = _codes(getattr(asyncio, "eager_task_factory", None))
_WAIT_FOR = _codes(asyncio.wait_for)
_AS_COMPLETED = _codes(
    asyncio.as_completed,
    getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "__init__", None),
)
_CREATORS = _WAIT_FOR | _AS_COMPLETED
_GATHER = _codes(asyncio.gather)
Durable: TypeAlias = tuple[str, str | None]  #: name and explicit key of a durable call


def _creator() -> FrameType | None:
    """The frame of `wait_for` or `as_completed`, if that is what creates the task, with nothing in between.

    The code of a frame or coroutine is asked for once: with an audit hook, as a store in SQLite has one, that costs.
    """
    frame: FrameType | None = sys._getframe(3)
    was_in_asyncio = False
    for _ in range(_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        if code in _CREATORS:
            return frame
        if code in _GATHER:
            return None
        is_in_asyncio = code.co_filename.startswith(_ASYNCIO)
        if was_in_asyncio and not is_in_asyncio:
            return None
        was_in_asyncio = is_in_asyncio
        frame = frame.f_back
    return None


def _describe(coro: Any) -> Durable | None:
    """Name and explicit key of the durable call that a coroutine is, or None."""
    if getattr(coro, "cr_code", None) is DURABLE_CODE:
        definition: DecoratedFunction = coro.cr_frame.f_locals["definition"]
        return definition.name, definition.explicit_key
    name = getattr(coro, "_durable_name", None)
    return (name(), None) if name is not None else None


def _child_scope(parent: Scope, coro: Any, call: Durable | None) -> Scope:
    creator = _creator()
    run = parent.run
    if call is not None:
        reserved = None
        if call[1] is None:
            where = caller() if run.replay.unclaimed else ""
            reserved = Reservation(parent, _occurrence(parent, coro, call, creator), where)
        scope = Scope(run, parent.path, reserved)
    elif creator is not None and creator.f_code in _WAIT_FOR:
        scope = Scope(run, parent.path)
        scope.share_counts(parent)
    else:
        scope = Scope(run, f"{parent.prefix()}{_name(coro)}~{_occurrence(parent, coro, call, creator)}")
        run.replay.reappeared.add(scope.path)
    scope.inherit(parent)
    return scope


def _name(coro: Any) -> str:
    return str(getattr(coro, "__name__", type(coro).__name__))


def _occurrence(parent: Scope, coro: Any, call: Durable | None, creator: FrameType | None) -> str:
    """Which of its name the coroutine is, among those that its parent made."""
    if creator is None or creator.f_code not in _AS_COMPLETED:
        return _count(parent, coro, call)
    if coro not in parent.planned:
        given = creator.f_locals.get("aws", creator.f_locals.get("fs"))
        if isinstance(given, list | tuple):
            calls = {each: _describe(each) for each in given if isinstance(each, Coroutine)}
            parent.planned = {
                each: _count(parent, each, its) for each, its in calls.items() if its is None or its[1] is None
            }
    planned = parent.planned.pop(coro, None)
    return planned or _count_by_arguments(parent, coro, call)


def _count(parent: Scope, coro: Any, call: Durable | None, mark: str = "") -> str:
    counts, name = (parent.branches, _name(coro)) if call is None else (parent.calls, call[0])
    number = counts[f"{name}{mark}"] = counts.get(f"{name}{mark}", 0) + 1
    if not mark:
        return str(number)
    return mark if number == 1 else f"{mark}.{number}"


def _count_by_arguments(parent: Scope, coro: Any, call: Durable | None) -> str:
    frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
    values = dict(frame.f_locals) if frame is not None else getattr(coro, "_durable_arguments", dict)()
    mark = f"@{encode_call(_count_by_arguments, (), values)[1][:8]}"
    if values != parent.arguments.setdefault(f"{_name(coro)}{mark}", values):
        raise UsageError(
            f"Run {parent.run.id}: as_completed() was given several {_name(coro)}(…) that differ only in what cannot "
            "be stored, in no certain order. Give it a list, so that they can be told apart after a crash."
        )
    return _count(parent, coro, call, mark)


class _Contained(Coroutine[Any, Any, T]):
    """The code of a task of a run. What would end the event loop, with everybody's runs, is the task's own failure."""

    __slots__ = ("__name__", "__qualname__", "_coro")

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self.__name__ = _name(coro)
        self.__qualname__ = getattr(coro, "__qualname__", self.__name__)

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except _ENDS as error:
            raise raised(error) from None

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        try:
            return self._coro.throw(kind if value is None else value)
        except _ENDS as error:
            raise raised(error) from None

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coro.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)  # cr_frame, cr_await: what tools look at


class _CleaningUp(_Contained[T]):
    """The code of a branch that clean-up made: it is begun, also if it is cancelled before."""

    __slots__ = ("_has_begun", "_is_over")

    def __init__(self, coro: Coroutine[Any, Any, T], is_over: Callable[[], bool]) -> None:
        super().__init__(coro)
        self._has_begun = False
        self._is_over = is_over

    def send(self, value: Any, /) -> Any:
        self._has_begun = True
        return super().send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        if not self._has_begun and isinstance(kind, asyncio.CancelledError) and not self._is_over():
            return self.send(None)
        return super().throw(kind, value, traceback)


class _CleaningTask(asyncio.Task[Any]):
    """The task of a branch that clean-up made.

    What cancels whoever awaits it cancels this one, and what the branch does keeps that. So whoever awaits it is not
    cut off either in the turn in which it hears that this one has ended: it may have more to clean up.
    """

    _was_told = False
    _is_over: Callable[[], bool]

    @classmethod
    def of(cls, is_over: Callable[[], bool], coro: Coroutine[Any, Any, Any], **options: Any) -> _CleaningTask:
        """`is_over`: is the execution over?"""
        task = cls(coro, loop=asyncio.get_running_loop(), **options)
        task._is_over = is_over
        task.add_done_callback(task._tell)
        return task

    def _tell(self, _: object) -> None:
        self.get_loop().call_soon(self._told)  # by then all have heard of it

    def _told(self) -> None:
        self._was_told = True

    def cancel(self, msg: Any = None) -> bool:
        is_being_told = self.done() and not self._was_told and not self._is_over()
        return is_being_told or super().cancel(msg)


def _is_of_anyio(coro: Any) -> bool:
    """Does a task group of anyio make the task? It must know the task before that runs."""
    code = getattr(coro, "cr_code", None)
    return code is not None and _ANYIO in code.co_filename


def _contained(coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    return _Contained(coro) if isinstance(coro, CoroutineType) else coro


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop name the branches of runs; a factory that is there already goes on making the tasks."""
    watch(loop)
    inner = loop.get_task_factory()
    if getattr(inner, "is_holdfast", False):
        return
    is_eager = inner is not None and getattr(inner, "__code__", None) in _EAGER

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        *,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Future[Any]:
        if type(coro).__name__ == _FINALISER:
            return _make(loop, coro, set_scope(context, Lineless()), options)
        given = scope_in(context)
        if type(given) is Scope and given.coro is coro:  # another factory lies between this one and itself
            return _make(loop, coro, context, options)
        # The branch is a child of whoever creates it, even in a context that knows nothing of the run.
        parent = current_scope()
        if parent is None:
            parent = given
        if type(parent) is not Scope:
            return _make(loop, coro, context, options)
        if parent.body is not None or parent.run.life.dead:  # no branch, but a part of the run all the same
            return _make(loop, _contained(coro), set_scope(context, parent), options)
        run = parent.run
        call = _describe(coro)
        scope = _child_scope(parent, coro, call)
        if scope.cleans_up:
            coro = _CleaningUp(coro, run.life.is_dead)
        elif call is None:  # those record what they raise
            coro = _contained(coro)
        scope.creating(coro)
        run.activity.begin_line()  # before the task is made: an eager one runs at once
        try:
            inside = set_scope(context, scope)
            if scope.cleans_up and inner is None:
                task: asyncio.Future[Any] = _CleaningTask.of(run.life.is_dead, coro, context=inside, **options)
            else:
                task = _make(loop, coro, inside, options)
        except BaseException:
            run.activity.end_line()
            raise
        scope.creating(None)
        if isinstance(task, asyncio.Task) and not task.done():
            scope.created(task)
            run.adopt(task, scope)
        else:
            run.activity.add_executed(scope)
            run.activity.end_line()
        return task

    def _make(
        loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None, options: dict[str, Any]
    ) -> asyncio.Future[Any]:
        if inner is None or (is_eager and _is_of_anyio(coro)):
            return asyncio.Task(coro, loop=loop, context=context, **options)
        if context is not None:
            options["context"] = context
        return inner(loop, coro, **options)

    factory.is_holdfast = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)  # type: ignore[arg-type]
