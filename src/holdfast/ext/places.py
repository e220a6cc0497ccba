"""Places: names for the calls of an adapter that no task of a framework takes part in.

The engine names a branch by the coroutine of its task. Those of a framework are its own affair: a release renames one,
and every run that waits would be asked for calls that it does not know. An adapter therefore enters a place, wherever
the framework calls it, and the calls made there have names that the adapter made.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from holdfast.app.extensions import Extension
from holdfast.codec import digest
from holdfast.errors import UsageError
from holdfast.running.places import Place
from holdfast.running.scopes import SEALED, Scope, check_branch, scope_or_none
from holdfast.running.sealing import stop_now

T = TypeVar("T")

_PLAIN: Final = re.compile(r"[^\w.:@=+-]")
_OURS: Final = ("key:", "hf:", "hf.", "@")
_LONGEST: Final = 80
_DOCUMENTS: Final = "ext:documents"


def active() -> bool:
    """Is this the code of a run, where durable calls can be made: neither outside of one, nor inside a body?

    Example: `if not ext.active(): return await plain(request)`
    """
    scope = scope_or_none()
    return scope is not None and scope.body is None


def local() -> dict[str, Any]:
    """What an adapter keeps for the time of one execution of a run, by its own name; nothing of it is stored.

    Example: `sessions = ext.local().setdefault("mcp", {})`
    """
    scope = scope_or_none()
    if scope is None:
        raise UsageError("ext.local() belongs to a run: call it from an agent, or what an agent calls.")
    return scope.run.places.local


def documents(name: str) -> Extension:
    """What `app.extension(name)` is, of the app that executes the current run.

    Example: `memory = ext.documents("memory")`
    """
    scope = scope_or_none()
    if scope is None:
        raise UsageError(f"ext.documents({name!r}) belongs to a run: outside of one there is app.extension({name!r}).")
    known: dict[str, Extension] = scope.run.places.local.setdefault(_DOCUMENTS, {})
    if name not in known:
        known[name] = Extension(scope.run.host.store, name)
    return known[name]


def from_thread(call: Coroutine[Any, Any, T]) -> T:
    """The result of a durable call that is made in a thread of the run, which has the context of the code it works for.

    Example: `value = ext.from_thread(look(fetch))`
    """
    scope = scope_or_none()
    try:
        is_here = scope is not None and asyncio.get_running_loop() is scope.run.life.loop
    except RuntimeError:
        is_here = False
    if scope is None or is_here:
        call.close()
        raise UsageError("ext.from_thread() was called on the thread of the run's loop, or in no run: await the call.")
    return asyncio.run_coroutine_threadsafe(call, scope.run.life.loop).result()


def turn() -> str:
    """What paths begin with in the current turn of a loop, which is a branch of its own: `@3/`; else nothing.

    Example: `counts = ext.local().setdefault(f"http{ext.turn()}", {})`
    """
    scope = scope_or_none()
    first = scope.path.partition("/")[0] if scope is not None else ""
    return f"{first}/" if first.startswith("@") else ""


def segment(text: str) -> str:
    """One part of a path, of any text: an id that a model made up, the name of a tool.

    Example: `ext.segment("call/7")` is `"call%2F7"`.
    """
    part = _PLAIN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), text) or "%"
    if part.startswith(_OURS):
        part = f"%{ord(part[0]):02X}{part[1:]}"
    return part if len(part) <= _LONGEST else f"{part[: _LONGEST - 13]}-{digest(text)[:12]}"


def occurrence(name: str) -> str:
    """The path of one run of an agent of a framework: the user's own branch, the name, and which of that name it is.

    To be called where the user's code calls the adapter, before the framework makes tasks of its own.

    Example: `path = ext.occurrence(agent.name)  # "bot:1"`
    """
    scope = scope_or_none()
    if scope is None or scope.body is not None:
        return f"{segment(name)}:1"
    mark = f"{segment(name)}:"
    number = scope.branches[mark] = scope.branches.get(mark, 0) + 1
    return f"{scope.prefix()}{mark}{number}"


class place:
    """Have the durable calls of a block named under a path, whatever tasks lie between it and the agent.

    A place that is entered again goes on counting. Two that are entered at the same time need different paths. In a
    `sealed` one, what a model must not hear of ends the run as blocked: EffectInDoubt, ResultNotStored, Unserialisable,
    Undecodable, UsageError. Outside of a run, and inside a body, it does nothing.

    Example:
        with ext.place(f"{path}/{ext.segment(call.id)}", sealed=True):
            return await send(to, text)     # bot:1/call_7/send#1
    """

    __slots__ = ("_path", "_scope", "_sealed", "_was")

    def __init__(self, path: str, *, sealed: bool = False) -> None:
        if not path or not path.isprintable() or "#" in path or path.startswith("key:"):
            raise UsageError(f"ext.place() takes a path of printable characters without '#'; got {path!r}.")
        self._path = path
        self._sealed = sealed
        self._scope: Scope | None = None
        self._was: Place | None = None

    def __enter__(self) -> None:
        scope = scope_or_none()
        if scope is None or scope.body is not None:
            return
        check_branch(scope, "ext.place()")
        run, path = scope.run, f"{turn()}{self._path}" if self._path[0] != "@" else self._path
        known = run.places.entered.get(path)
        if known is None:
            known = run.places.entered[path] = Place(path, {}, {})
            run.replay.reappeared.add(path)
        self._scope, self._was = scope, scope.switch_place(known._replace(sealed=self._sealed or scope.sealed))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope, was, self._scope = self._scope, self._was, None
        if scope is None or was is None:
            return
        scope.switch_place(was)
        if self._sealed and isinstance(error, SEALED) and not scope.run.life.dead:
            stop_now(scope, error)
            raise asyncio.CancelledError("this execution is over") from error
