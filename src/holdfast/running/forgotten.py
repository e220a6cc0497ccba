"""Calls that the code of a run makes and does not await. They never happen, so the run fails and says which, and where.

Python notices a coroutine that nobody awaited when it is dropped, and tells `warnings`; we hear of it there, in the run
whose code drops it. Where it was made is not known by then (to keep that for each call would cost more than the call),
so it is looked up in the source: a place that makes such a call without `await`, and gives it to nobody who would. A
call that was meant to be awaited, and was not because of an exception, has no such place; Python warns of it as ever.

What the garbage collector drops may be of any run, and is told to none.

A call that the agent returns (`return search(…)`) is not dropped: it is found in what could not be stored.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from threading import get_ident
from types import CodeType, CoroutineType, FrameType
from typing import Any

from holdfast.base.tracebacks import PACKAGE
from holdfast.running.durable import DURABLE_CODE
from holdfast.running.scopes import Scope, current_scope

_ASYNCIO = os.path.dirname(asyncio.__file__)
_VERBS = frozenset({"ask", "emit", "guard", "plan", "race", "receive", "resume", "sleep", "start"})
_DEPTH = 4  # how far into a value is looked for calls
_METHOD = "entry"  # what `acts` makes of a method
#: Who awaits what it is given, or keeps it for somebody who does.
_TAKERS = frozenset(
    "add add_done_callback append as_completed create_task ensure_future extend gather insert put put_nowait race run "
    "shield start start_soon wait wait_for".split()
)


class _Collecting:
    """Is the garbage collector at work, in this thread? Others go on meanwhile, and drop calls of their own."""

    thread = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.thread = get_ident() if phase == "start" else 0

    @property
    def here(self) -> bool:
        return self.thread == get_ident()


_collecting = _Collecting()


def install() -> None:
    """Have runs know of the coroutines that their code drops; done once per process."""
    if _collecting in gc.callbacks:
        return
    warned = getattr(warnings, "_warn_unawaited_coroutine", None)
    if warned is None:
        return

    def tell(coro: Any) -> None:
        if tell_run(_name_of(coro)):
            return
        if coro.cr_origin is not None:
            warned(coro)
        else:  # as Python says it: at the line that drops it, which is not this one
            said = f"coroutine '{coro.__qualname__}' was never awaited"
            warnings.warn(said, RuntimeWarning, stacklevel=2, source=coro)

    gc.callbacks.append(_collecting)
    warnings._warn_unawaited_coroutine = tell  # type: ignore[attr-defined]


def tell_run(name: str) -> bool:
    """Have the run fail whose code has just dropped a call of `name`; False if none has forgotten it."""
    scope = current_scope()
    if not name or _collecting.here or type(scope) is not Scope or scope.body is not None:
        return False
    run = scope.run
    if run.life.dead or run.life.cancelled or run.life.ending or scope.cleans_up:
        return False
    places = _places(name.rpartition(".")[2], run.host.agents[run.journal.row.agent].fn.__code__)
    if places:
        run.life.forget(_told(run.id, name, places))
    return bool(places)


def told_of_returned(run_id: str, value: Any, agent: Callable[..., Any]) -> str:
    """What to tell of calls in what an agent returned, which nobody awaits any more; empty if there are none."""
    calls = list(_calls_in(value))
    for each in calls:
        each.close()  # else Python warns of it too
    if not calls:
        return ""
    first: Any = calls[0]
    name = (_name_of(first) if isinstance(first, CoroutineType) else "") or str(first.__name__)
    code = getattr(agent, "__code__", None)  # a partial has none
    if code is None:
        return _told(run_id, name, [])
    in_agent = {line for _, _, line in code.co_lines() if line}
    made = _made(code.co_filename, name.rpartition(".")[2])
    lines = [call.lineno for call, parents in made if not isinstance(parents[call], ast.Await)]
    return _told(run_id, name, [f"{code.co_filename}:{line}" for line in lines if line in in_agent])


def _calls_in(value: Any, depth: int = 0) -> Iterator[Coroutine[Any, Any, Any]]:
    if isinstance(value, Coroutine):
        yield value
    elif depth < _DEPTH and isinstance(value, list | tuple | set | frozenset | Mapping):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _calls_in(each, depth + 1)


def _told(run_id: str, name: str, places: list[str]) -> str:
    where = f" ({' or '.join(places)})" if places else ""
    return f"Run {run_id}: {name}(…) was called and not awaited{where}, so it never happened. Write `await {name}(…)`."


def _name_of(coro: Any) -> str:
    """What users call it; empty if it is not one of our calls."""
    code = coro.cr_code
    if code is DURABLE_CODE:
        return str(coro.__name__)
    if not code.co_filename.startswith(PACKAGE):
        return ""
    if code.co_name == _METHOD:
        return str(coro.__qualname__)
    return f"hf.{code.co_name}" if code.co_name in _VERBS else ""


def _places(name: str, agent: CodeType) -> list[str]:
    """file:line of where the code calls `name` and nobody awaits that: the line that is being executed, if it is one.

    Else it was in a variable, and a function has ended: the agent itself, if no other code of the user's is left.
    """
    here = {frame.f_code.co_filename: frame.f_lineno for frame in reversed([*_frames()])}
    others = [getattr(module, "__file__", None) for module in list(sys.modules.values()) if name in vars(module)]
    in_agent = {line for _, _, line in agent.co_lines() if line}
    found: list[str] = []
    for file in dict.fromkeys([*reversed(here), agent.co_filename, *others]):
        if not isinstance(file, str) or file.startswith((PACKAGE, "<frozen")):
            continue
        made = list(_calls(file, name))
        calls = [(first, last, is_kept) for first, last, is_forgotten, is_kept in made if is_forgotten]
        for first, last, _ in calls:
            if first <= here.get(file, 0) <= last:
                return [f"{file}:{first}"]
        kept = [first for first, _, is_kept in calls if is_kept]
        if file == agent.co_filename and file not in here:
            # If the agent calls it at all, it is the agent's own: one that it meant to await is not forgotten.
            own = {first for first, *_ in made} & in_agent
            kept = [line for line in kept if line in in_agent] if own else kept
        found += [f"{file}:{line}" for line in kept]
    return found


def _frames() -> Iterator[FrameType]:
    """What is being executed; not who runs the loop."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "_run" and frame.f_code.co_filename.startswith(_ASYNCIO)):
        yield frame
        frame = frame.f_back


def _calls(file: str, name: str) -> Iterator[tuple[int, int, bool, bool]]:
    """First and last line of each call of a name in a file; does nobody await it, and does a variable keep it?"""
    for node, parents in _made(file, name):
        is_kept = isinstance(parents[node], ast.Assign | ast.AnnAssign)
        yield node.lineno, node.end_lineno or node.lineno, _is_forgotten(node, parents), is_kept


def _made(file: str, name: str) -> Iterator[tuple[ast.Call, dict[ast.AST, ast.AST]]]:
    """Each call of a name in a file, and in what everything there stands."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == name:
            yield node, parents


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr="with_options")):
            return name
        case _:
            return ""


def _is_forgotten(value: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Does nobody await it, nor get it who would?"""
    parent = parents[value]
    match parent:
        case ast.Await() | ast.Return() | ast.Lambda() | ast.Yield():
            return False
        case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.Starred():
            return False
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return False
        case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
            return False
        case ast.keyword():
            parent = parents[parent]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return not any(_is_kept(use, parents) for use in _uses(name, parent, parents))
        case ast.Assign() | ast.AnnAssign():
            return False
    return not (isinstance(parent, ast.Call) and value is not parent.func and _called(parent) in _TAKERS)


def _uses(name: str, node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.Name]:
    """Where the function that assigns a name reads it."""
    while not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef | ast.Module):
        node = parents[node]
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
            yield each


def _is_kept(use: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("close", "send", "throw")
    return not _is_forgotten(use, parents)
