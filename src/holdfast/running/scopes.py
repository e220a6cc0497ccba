"""The branch that the current task is in: where its calls and tasks get their names (`branches` tells how)."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from holdfast.base.data import mutable
from holdfast.base.tracebacks import PACKAGE
from holdfast.errors import (
    EffectInDoubt,
    NestedCall,
    NotInRun,
    ResultNotStored,
    Undecodable,
    Unserialisable,
    UsageError,
)
from holdfast.running.current import SCOPE
from holdfast.running.places import Place

if TYPE_CHECKING:
    from holdfast.model import Partial
    from holdfast.running.context import RunContext
    from holdfast.running.outputs import AttemptOutputs
    from holdfast.store.contract import UserTransaction

#: What ends a run in a sealed place; NestedCall is a UsageError.
SEALED: Final = (EffectInDoubt, ResultNotStored, Unserialisable, Undecodable, UsageError)

_ASYNCIO = os.path.dirname(asyncio.__file__)


class StepInfo:
    """What the body of a step or effect can know about itself."""

    __slots__ = ("_idempotency_key", "_run", "attempt", "is_over", "key", "name", "outputs", "transaction", "undoes")

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
        self.outputs: AttemptOutputs | None = None  #: what it has put out, to be recorded with its outcome
        self.is_over = False  #: what is put out from here on is nobody's

    def attempt_outputs(self) -> AttemptOutputs:
        """Where to put what is to be recorded with its outcome; UsageError once that is known."""
        if self.is_over:
            raise UsageError(
                f"{self.key} (run {self._run.id}) has ended, and something that it began still puts something out. "
                "Wait for all that a body begins before it returns."
            )
        if self.outputs is None:
            self.outputs = self._run.new_outputs(self.attempt)
        return self.outputs

    def end(self) -> AttemptOutputs | None:
        """The attempt is over; what it has put out."""
        self.is_over = True
        return self.outputs

    @property
    def run_id(self) -> str:
        """The run that this body works for."""
        return self._run.id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, in every process and on every host; hand it to the target."""
        return self._idempotency_key or self._run.idempotency_key(self.key)

    @property
    def partial(self) -> Partial | None:
        """What a former attempt had written to its stream when it was cut off; None: there is nothing to go on from."""
        return self._run.streams.partial(self.key)

    def __repr__(self) -> str:
        return f"StepInfo({self.key!r}, attempt={self.attempt})"


class Scope:
    """One branch of a run (or the inside of a body): where its calls and tasks get their names."""

    __slots__ = (
        "arguments",
        "body",
        "branches",
        "calls",
        "cleans_up",
        "coro",
        "executed",
        "handling",
        "in_body",
        "in_call",
        "is_loose",
        "owed",
        "path",
        "planned",
        "reserved",
        "run",
        "saga",
        "sealed",
        "shield",
        "task",
        "was_told",
    )

    def __init__(self, run: RunContext, path: str, reserved: Reservation | None = None) -> None:
        self.run = run
        self.path = path
        self.reserved = reserved
        self.task: asyncio.Task[Any] | None = None
        self.calls: dict[str, int] = {}
        self.branches: dict[str, int] = {}
        self.planned: dict[Any, str] = {}  #: occurrences of coroutines whose tasks are about to be created
        self.arguments: dict[str, dict[str, Any]] = {}  #: of coroutines that are named by them
        self.coro: Any = None  #: while its task is being created
        self.body: StepInfo | None = None
        self.in_call = False  #: is its task in a durable call?
        self.in_body = False  #: and is a body, or a verification, of that call under way?
        self.executed = 0  #: bodies that have ended, in this execution
        self.is_loose = False  #: what its task does is to be looked at
        self.cleans_up = False  #: it undoes a saga, or was made by code that cleans up
        self.handling: type[BaseException] | None = None  #: what the code was handling when it made its last call
        self.owed: asyncio.CancelledError | None = None  #: kept by clean-up, to be raised if the code goes on
        self.saga: Any = None
        self.sealed = False  #: what no program can mend ends the run, and is raised to nobody
        self.was_told = False  #: that the run is cancelled; or it was made after that
        self.shield: Any = None  #: of a call that cleans up, while it is under way

    # its task

    def inherit(self, parent: Scope) -> None:
        """It was made by the code of another branch."""
        life = self.run.life
        self.saga = parent.saga
        self.sealed = parent.sealed
        self.was_told = life.cancelled
        self.cleans_up = parent.cleans_up or life.is_unwinding(life.handled())

    def share_counts(self, parent: Scope) -> None:
        """It is no branch: its calls and branches are its parent's."""
        self.calls, self.branches = parent.calls, parent.branches

    def creating(self, coro: Any) -> None:
        """Its task is about to be created; None: it was."""
        self.coro = coro

    def created(self, task: asyncio.Task[Any] | None) -> None:
        """This is its task; None: it is over."""
        self.task = task

    # what it is in

    def switch_saga(self, saga: Any) -> Any:
        """It is in this block; in which it was."""
        was, self.saga = self.saga, saga
        return was

    def switch_place(self, place: Place) -> Place:
        """Its calls are named as those of this place; where they were before."""
        was = Place(self.path, self.calls, self.branches, self.sealed)
        self.path, self.calls, self.branches, self.sealed = place
        return was

    def switch_shield(self, shield: Any) -> Any:
        """A call that cleans up is shielded by this; by what it was."""
        was, self.shield = self.shield, shield
        return was

    def switch_clean_up(self, on: bool) -> bool:
        """What it does now is clean-up, or not; whether it was."""
        was, self.cleans_up = self.cleans_up, on
        return was

    def enter_call(self) -> bool:
        """Its task is in a durable call; whether it was in one before."""
        was_in_call, self.in_call = self.in_call, True
        return was_in_call

    def leave_call(self, was_in_call: bool = False) -> None:
        """It has left the call: what it does now is to be looked at."""
        self.in_call = was_in_call
        if not (was_in_call or self.is_loose):
            self.run.activity.stillness.loosen(self)

    def enter_body(self, info: StepInfo) -> contextvars.Token[Scope | Lineless | None]:
        """A body of its call starts; what that calls is inside of it."""
        self.in_body = True
        inside = Scope(self.run, self.path)
        inside.body = info
        return _scope.set(inside)

    def leave_body(self, token: contextvars.Token[Scope | Lineless | None]) -> None:
        self.in_body = False
        _scope.reset(token)

    def count_executed(self) -> None:
        """A body has ended, well or not."""
        self.executed += 1

    def owe(self, error: asyncio.CancelledError | None) -> None:
        """Clean-up has kept a cancellation, which is raised if the code goes on; None: it was raised, or dropped."""
        self.owed = error

    def tell(self) -> None:
        """It hears that the run is cancelled."""
        self.was_told = True

    def begin_turn(self, path: str) -> None:
        """It is the main line, in a turn of its loop: its calls and branches are counted anew."""
        self.path = path
        self.calls, self.branches = {}, {}
        self.arguments.clear()

    # the keys of its calls

    def prefix(self) -> str:
        return f"{self.path}/" if self.path else ""

    def count(self, name: str) -> None:
        """A call of this name is made; one whose task was created before was counted then."""
        if self.reserved is None:
            self.calls[name] = self.calls.get(name, 0) + 1

    def make_call(self, name: str, explicit_key: str | None) -> None:
        """A call is made: it is counted, unless it is named, and what the code handles meanwhile is remembered."""
        self.handling = None if sys.exception() is None else self.run.life.handled()
        if explicit_key is None and self.reserved is None:
            self.calls[name] = self.calls.get(name, 0) + 1

    def expected_key(self, name: str) -> str:
        """The key of the call of this name that was counted last, if nothing else has it."""
        reserved = self.reserved
        if reserved is None:
            return f"{self.path}/{name}#{self.calls[name]}" if self.path else f"{name}#{self.calls[name]}"
        return f"{reserved.scope.prefix()}{name}#{reserved.occurrence}"

    def new_key(self, name: str) -> str:
        """The key of a call that the journal does not know."""
        entries = self.run.replay.entries
        key = self.expected_key(name)
        if key in entries:
            place = self if self.reserved is None else self.reserved.scope
            number = place.calls.get(name, 0)
            while key in entries:
                number += 1
                key = f"{place.prefix()}{name}#{number}"
            place.calls[name] = number
        return key


@mutable
class Reservation:
    """The place of a call whose task was created before it runs."""

    scope: Scope
    occurrence: str
    where: str = ""


class Lineless:
    """The scope of what has no place in a run: generator finalisers."""


_scope: contextvars.ContextVar[Scope | Lineless | None] = SCOPE


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
        scope.created(current)
    if current is None or scope.task is not current:
        raise UsageError(
            f"{verb} was called in a thread or task that Holdfast did not see being created (run {scope.run.id}), so "
            "its place in the run is unknown. Create tasks with asyncio (create_task, TaskGroup, gather) in the "
            "agent's own loop."
        )


def current_scope() -> Scope | Lineless | None:
    return _scope.get()


def scope_in(context: contextvars.Context | None) -> Scope | Lineless | None:
    return _scope.get() if context is None else context.get(_scope)


def set_scope(context: contextvars.Context | None, scope: Scope | Lineless | None) -> contextvars.Context:
    """A copy of the context (the current one, if None) with another scope."""
    context = contextvars.copy_context() if context is None else context.copy()
    context.run(_scope.set, scope)
    return context


def enter(scope: Scope) -> contextvars.Token[Scope | Lineless | None]:
    return _scope.set(scope)


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
