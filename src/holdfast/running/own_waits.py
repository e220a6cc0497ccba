"""What the code of a run waits for by itself, without a durable call: timers of the event loop, and things outside.

Whose timer it is, is known when it is set: the loop's `call_at` and `call_later` are told to look at the scope that
they are called in. (A look into the loop's own list would have to be repeated for each run; not every loop has one.)
Timers that are set inside a body are the body's: a body keeps its run in memory, and what it leaves behind, such as the
idle timer of a client's connections, is nothing that the run waits for.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from holdfast.base.telemetry import warn
from holdfast.base.tracebacks import PACKAGE
from holdfast.journal.stillness import waits_outside
from holdfast.running.life import Branch
from holdfast.running.scopes import Scope, current_scope, scope_in

_LIBRARY = os.path.dirname(asyncio.__file__)


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Have runs know of the timers that their code sets."""
    if getattr(loop.call_at, "is_holdfast", False):
        return
    try:
        for name in ("call_at", "call_later"):
            setattr(loop, name, _noting(getattr(loop, name)))
    except AttributeError:
        warn("loop.timers_not_seen", loop=type(loop).__name__, so="runs do not wait for timers of their own code")


def _noting(set_timer: Callable[..., asyncio.TimerHandle]) -> Callable[..., asyncio.TimerHandle]:
    @functools.wraps(set_timer)
    def noting(
        when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = set_timer(when, callback, *args, context=context)
        # It is of whoever sets it, even in a context that knows nothing of the run.
        scope = scope_in(context) or current_scope()
        if type(scope) is Scope and scope.body is None and _is_of_the_code(scope, callback):
            scope.run.activity.own_timers.add(handle, scope.path)
        return handle

    noting.is_holdfast = True  # type: ignore[attr-defined]
    return noting


def _is_of_the_code(scope: Scope, callback: Callable[..., object]) -> bool:
    """Not ours, nor of a task that only happens to work in the context of the run, as a driver's."""
    if scope.run.life.dead or str(getattr(callback, "__module__", "")).startswith("holdfast."):
        return False
    task = asyncio.current_task(scope.run.life.loop)
    # An eager task runs before whoever creates it has it.
    return task is None or task in scope.run.activity.tasks or scope.coro is not None


def places_outside(tasks: Mapping[asyncio.Task[Any], Branch]) -> dict[str, str]:
    """The branches that wait for something outside, and where in their code."""
    return {
        scope.path: where_it_waits(task)
        for task, scope in tasks.items()
        if not scope.in_call
        and (waiter := getattr(task, "_fut_waiter", None)) is not None
        and waits_outside(task, waiter, tasks)
    }


def where_it_waits(task: asyncio.Task[Any]) -> str:
    """file:line of the user's code in which a task stands."""
    found = ""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame: FrameType | None = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith((PACKAGE, _LIBRARY, "<")):
            found = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return found
