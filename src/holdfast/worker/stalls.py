"""An event loop that does not turn: noticing it, and naming the code that blocks it.

Seen from another thread. What runs on the loop is found in the frames of the loop's thread; which run it works for, in
the context of the callback that the loop is executing.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import site
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from holdfast.base.data import data
from holdfast.base.telemetry import info, warn
from holdfast.base.tracebacks import PACKAGE
from holdfast.running.scopes import Scope, StepInfo, scope_in

_OWN = PACKAGE + os.sep
_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_LIBRARIES = tuple(place + os.sep for place in (os.path.dirname(os.__file__), *site.getsitepackages()))
_CALLBACK = asyncio.Handle._run.__code__


@data
class Stall:
    """What keeps an event loop from turning."""

    where: str  #: file:line of the user's code; of ours, if there is none of it
    function: str
    run_id: str = ""  #: "": it belongs to no run
    key: str = ""  #: of the step or effect; "": it is the agent's own code
    name: str = ""

    def fields(self) -> dict[str, object]:
        """For a log."""
        found = {"run": self.run_id, "call": self.key, "at": self.where, "function": self.function}
        return {name: value for name, value in found.items() if value}


def blocking(frame: FrameType | None) -> Stall | None:
    """What the thread of a loop is doing, from its innermost frame; None if the loop itself waits or is not running."""
    stack: list[FrameType] = []
    callback: FrameType | None = None
    while frame is not None:
        if frame.f_code is _CALLBACK:
            callback = frame
            break
        stack.append(frame)
        frame = frame.f_back
    if callback is None:
        # Another kind of loop, which has no frames; or asyncio's, between two callbacks.
        outside = [number for number, each in enumerate(stack) if _is_in(each, _ASYNCIO)]
        if not stack or not outside or _is_in(stack[0], _ASYNCIO, selectors.__file__):
            return None
        stack = stack[: outside[0]]
    if not stack:
        return None
    place = _users(stack)
    where, function = f"{place.f_code.co_filename}:{place.f_lineno}", place.f_code.co_qualname
    scope, body = _scope_of(callback), _body_in(stack)
    body = scope.body if scope is not None and scope.body is not None else body
    if body is not None:
        return Stall(where, function, body.run_id, body.key, body.name)
    return Stall(where, function, "" if scope is None else scope.run.id)


def _users(stack: list[FrameType]) -> FrameType:
    """The frame to show: the innermost of the user's code, else the outermost that is not ours, else the innermost."""
    foreign = [
        each for each in stack if not _is_in(each, _OWN, _ASYNCIO) and not each.f_code.co_filename.startswith("<")
    ]
    for each in foreign:
        if not _is_in(each, *_LIBRARIES):
            return each
    # All of it is installed: the body of a step lies nearest to our frames, what it calls further in.
    return foreign[-1] if foreign else stack[0]


def _is_in(frame: FrameType, *places: str) -> bool:
    return frame.f_code.co_filename.startswith(places)


def _scope_of(callback: FrameType | None) -> Scope | None:
    handle = None if callback is None else callback.f_locals.get("self")
    scope = scope_in(handle._context) if isinstance(handle, asyncio.Handle) else None  # type: ignore[attr-defined]
    return scope if isinstance(scope, Scope) else None


def _body_in(stack: list[FrameType]) -> StepInfo | None:
    """From the frames of our own verbs, which hold it while a body runs."""
    for each in stack:
        if _is_in(each, _OWN):
            body = each.f_locals.get("info")
            if isinstance(body, StepInfo):
                return body
    return None


class StallWatch:
    """Counts how long a loop has been silent, and tells when that is too long.

    Time is counted from look to look, for no more than `most_us` each: a process that was stopped as a whole accuses
    nobody.
    """

    def __init__(self, warn_after_s: float, most_us: int) -> None:
        self._warn_after_us = max(warn_after_s, 0.001) * 1_000_000
        self._most_us = most_us
        self._looked_us = 0
        self._beat_us = 0
        self._silent_us = 0
        self._next_us = self._warn_after_us
        self._told: Stall | None = None

    def look(self, now_us: int, beat_us: int, find: Callable[[], Stall | None]) -> float:
        """How many seconds the loop has been silent, given the time of its last sign of life."""
        if beat_us != self._beat_us:
            self._is_back()
            self._beat_us = beat_us
            self._silent_us = min(now_us - beat_us, self._most_us)
        else:
            self._silent_us += min(now_us - self._looked_us, self._most_us)
        self._looked_us = now_us
        if self._silent_us >= self._next_us:
            found = find()
            if found is not None:
                self._told = found
                warn("loop.blocked", **found.fields(), seconds=round(self._silent_us / 1e6, 1))
                while self._next_us <= self._silent_us:
                    self._next_us *= 2
        return self._silent_us / 1e6

    def _is_back(self) -> None:
        if self._told is not None:
            info("loop.unblocked", **self._told.fields(), seconds=round(self._silent_us / 1e6, 1))
        self._told = None
        self._next_us = self._warn_after_us
