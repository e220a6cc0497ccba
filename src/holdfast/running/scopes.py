"""The branch that the current task is in: where its calls and tasks get their names (`branches` tells how)."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from holdfast.base.data import mutable
from holdfast.base.tracebacks import PACKAGE
from holdfast.errors import NestedCall, NotInRun, UsageError

if TYPE_CHECKING:
    from holdfast.running.context import RunContext
    from holdfast.store.contract import UserTransaction

_ASYNCIO = os.path.dirname(asyncio.__file__)


class StepInfo:
    """What the body of a step or effect can know about itself."""

    __slots__ = ("_idempotency_key", "_run", "attempt", "key", "name", "transaction", "undoes")

    def __init__(
        self,
        run: RunContext,
        name: str,
        key: str,
        attempt: int,
        idempotency_key: str | None = None,
        undoes: str | None = None,
        transaction: UserTransaction | None = None,
    ) -> None:
        self._run = run
        self.transaction = transaction  #: of an effect on the user's own tables
        self.undoes = undoes  #: inside an undo: the idempotency key of the call that is taken back
        self._idempotency_key = idempotency_key
        self.name = name
        self.key = key
        self.attempt = attempt

    @property
    def run_id(self) -> str:
        """The run that this body works for."""
        return self._run.id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, in every process and on every host; hand it to the target."""
        return self._idempotency_key or self._run.idempotency_key(self.key)

    def __repr__(self) -> str:
        return f"StepInfo({self.key!r}, attempt={self.attempt})"


class Scope:
    """One branch of a run (or the inside of a body): where its calls and tasks get their names."""

    __slots__ = (
        "_in_call",
        "arguments",
        "body",
        "branches",
        "calls",
        "cleans_up",
        "coro",
        "handling",
        "is_loose",
        "owed",
        "path",
        "planned",
        "reserved",
        "run",
        "saga",
        "shield",
        "task",
        "was_told",
    )

    def __init__(self, run: RunContext, path: str) -> None:
        self.run = run
        self.path = path
        self.task: asyncio.Task[Any] | None = None
        self.calls: dict[str, int] = {}
        self.branches: dict[str, int] = {}
        self.planned: dict[Any, str] = {}  #: occurrences of coroutines whose tasks are about to be created
        self.arguments: dict[str, dict[str, Any]] = {}  #: of coroutines that are named by them
        self.coro: Any = None  #: while its task is being created
        self.body: StepInfo | None = None
        self.reserved: Reservation | None = None
        self._in_call = False
        self.is_loose = False  #: what its task does is to be looked at
        self.cleans_up = False  #: it undoes a saga, or was made by code that cleans up
        self.handling: type[BaseException] | None = None  #: what the code was handling when it made its last call
        self.owed: asyncio.CancelledError | None = None  #: kept by clean-up, to be raised if the code goes on
        self.saga: Any = None
        self.was_told = False  #: that the run is cancelled; or it was made after that
        self.shield: Any = None  #: of a call that cleans up, while it is under way

    @property
    def in_call(self) -> bool:
        """Is its task in a durable call?"""
        return self._in_call

    @in_call.setter
    def in_call(self, value: bool) -> None:
        self._in_call = value
        if not (value or self.is_loose):
            self.run.stillness.loosen(self)

    def prefix(self) -> str:
        return f"{self.path}/" if self.path else ""


@mutable
class Reservation:
    """The place of a call whose task was created before it runs."""

    scope: Scope
    occurrence: str
    where: str = ""


class Lineless:
    """The scope of what has no place in a run: generator finalisers."""


_scope: contextvars.ContextVar[Scope | Lineless | None] = contextvars.ContextVar("holdfast_scope", default=None)


def scope_or_none() -> Scope | None:
    """The current scope, or None outside of any run. Durable calls where no place can be named raise."""
    scope = _scope.get()
    if scope is None:
        return None
    if type(scope) is not Scope:
        raise UsageError(
            "A durable call was made by a generator's finaliser, which has no place in a run. "
            "Close the generator in the agent itself, with `async with contextlib.aclosing(...)`."
        )
    return scope


def in_branch(verb: str) -> Scope:
    """The current branch, for a verb that makes sense only there."""
    scope = scope_or_none()
    if scope is None:
        raise NotInRun(f"{verb} works inside a run only: call it from an agent (or what an agent calls).")
    check_branch(scope, verb)
    return scope


def check_branch(scope: Scope, verb: str) -> None:
    """Raise unless a durable call can be made here."""
    if scope.body is not None:
        raise NestedCall(
            f"{verb} was called inside the body of {scope.body.name} (run {scope.run.id}). A body is one indivisible "
            "thing: move the call into the agent, before or after."
        )
    try:
        current = asyncio.current_task()
    except RuntimeError:
        current = None
    if scope.task is None:
        scope.task = current
    if current is None or scope.task is not current:
        raise UsageError(
            f"{verb} was called in a thread or task that Holdfast did not see being created (run {scope.run.id}), so "
            "its place in the run is unknown. Create tasks with asyncio (create_task, TaskGroup, gather) in the "
            "agent's own loop."
        )


def body_scope(scope: Scope, info: StepInfo) -> Scope:
    inside = Scope(scope.run, scope.path)
    inside.body = info
    return inside


def current_scope() -> Scope | Lineless | None:
    return _scope.get()


def scope_in(context: contextvars.Context | None) -> Scope | Lineless | None:
    return _scope.get() if context is None else context.get(_scope)


def set_scope(context: contextvars.Context | None, scope: Scope | Lineless | None) -> contextvars.Context:
    """A copy of the context (the current one, if None) with another scope."""
    context = contextvars.copy_context() if context is None else context.copy()
    context.run(_scope.set, scope)
    return context


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no run."""
    return set_scope(None, None)


def enter(scope: Scope) -> contextvars.Token[Scope | Lineless | None]:
    return _scope.set(scope)


def leave(token: contextvars.Token[Scope | Lineless | None]) -> None:
    _scope.reset(token)


def where(scope: Scope) -> str:
    return (scope.reserved.where if scope.reserved is not None else "") or caller()


def caller() -> str:
    """file:line of the user's code that made the current call, or created the task that is this call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ASYNCIO):
            if frame.f_code.co_name == "_run":  # the event loop: whoever started that did not make this call
                return ""
        elif not name.startswith((PACKAGE, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
