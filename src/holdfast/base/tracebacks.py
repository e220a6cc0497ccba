"""Tracebacks as the user sees them: lines of the code they wrote, not of what carried it here.

An exception on its way out of `hf.run` has passed some twenty frames of ours and of asyncio, which would stand between
the user's line that called and the user's line that raised. Frames of other libraries stay: the user calls them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from holdfast import errors
from holdfast.errors import HoldfastError, RunError

PACKAGE: Final = os.path.dirname(errors.__file__)  #: where our own code is
_STANDARD: Final = os.path.dirname(os.path.dirname(asyncio.__file__))
#: What carries the user's code.
_CARRIERS: Final = (
    PACKAGE,
    os.path.dirname(asyncio.__file__),
    os.path.dirname(concurrent.futures.__file__),
    functools.__file__,  # a cached property is looked up
)
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_MARK: Final = "_holdfast_out_of_run"


def where_raised(error: BaseException) -> str:
    """file:line of the last line that the user wrote and an exception came through; empty if there is none."""
    found = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_users(frame.f_code.co_filename)
    ]
    return found[-1] if found else ""


def _is_users(file: str) -> bool:
    """Is it neither ours, nor of Python, nor of an installed library?"""
    return not file.startswith(("<", PACKAGE, _STANDARD)) and not any(each in file for each in _INSTALLED)


def carries(line: str) -> bool:
    """Is it the line of a printed traceback that names a file of ours, or of asyncio?"""
    return any(f'File "{place}' in line for place in _CARRIERS)


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that only carry the user's code."""
    kept = [each for each in _frames(trace) if not each.tb_frame.f_code.co_filename.startswith(_CARRIERS)]
    chain: TracebackType | None = None
    for each in reversed(kept):
        chain = TracebackType(chain, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return chain


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def trim(error: BaseException) -> None:
    """Trim an exception and what led to it; what led to an error of ours without a line of the user's is not shown."""
    seen: set[int] = set()
    stack = [error]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = trimmed(each.__traceback__)
        if isinstance(each, BaseExceptionGroup):
            stack += each.exceptions
        before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if before is None:
            continue
        if where_raised(before) or isinstance(each, RunError):
            stack.append(before)
        elif isinstance(each, HoldfastError):
            each.__cause__ = None  # its message says it
            each.__suppress_context__ = True


def show_trimmed(error: BaseException) -> None:
    """Trim an exception that is about to leave `hf.run`, and have the frame that it leaves by not be shown either.

    That frame is added after the last line of ours is done; so whoever shows what nobody caught has to leave it out.
    A KeyboardInterrupt is shown as its text: it has no place in the code that is worth a look.
    """
    if not isinstance(error, HoldfastError | KeyboardInterrupt):
        return  # a mistake of ours: whoever mends it needs all of it
    trim(error)
    error.__dict__[_MARK] = True
    before = sys.excepthook
    if getattr(before, "is_holdfast", False):
        return

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if getattr(error, _MARK, False):
            if isinstance(error, KeyboardInterrupt):
                sys.stderr.write(f"{error}\n")
                return
            trace = error.__traceback__ = trimmed(trace)
        before(kind, error, trace)

    show.is_holdfast = True  # type: ignore[attr-defined]
    sys.excepthook = show
