"""Agents that an adapter makes of a framework's: they belong to the file that asks for them."""

from __future__ import annotations

import sys
from types import FrameType, FunctionType
from typing import Any

from holdfast.base.tracebacks import PACKAGE
from holdfast.errors import UsageError
from holdfast.verbs.agent import Agent, agent


def made_agent(fn: Any, *, name: str, returns: Any) -> Agent[..., Any]:
    """An agent of an async function that an adapter made, as if it stood in the file that called the adapter.

    That file is what is loaded when a run goes on in another process, and what is compared when code has changed.

    Example: `return ext.made_agent(run, name=bot.name, returns=bot.output_type)`
    """
    if not isinstance(fn, FunctionType):
        raise UsageError(f"ext.made_agent() takes a function, not {fn!r}.")
    fn.__annotations__["return"] = returns
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is not None:
        fn.__code__ = fn.__code__.replace(co_filename=frame.f_code.co_filename)
        fn.__module__ = str(frame.f_globals.get("__name__", fn.__module__))
    return agent(name=name)(fn)
