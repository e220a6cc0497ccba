"""Turns: a loop whose state is stored at its head, so that a resume begins with the last turn, however many there were.

A free call that stores a state would be a trap: live, the code goes on behind it; after a crash it starts at the top,
and whatever stands between is lost or done again. In a loop nothing can stand there. So a checkpoint is written at the
head of the one loop of a run, and nowhere else; and nothing may be open there that another turn has to know of.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.base import faults
from holdfast.base.telemetry import warn
from holdfast.codec import Coder, coder_for, said_by
from holdfast.codec.states import (
    shape_digest,
    shape_of,
    shape_of_stored,
    state_problem,
    state_type,
    unknown_fields,
)
from holdfast.errors import CarriedLocal, HoldfastError, Undecodable, Unserialisable, UsageError
from holdfast.journal.checkpoints import Past, turn_path
from holdfast.journal.mismatches import mismatch
from holdfast.journal.trees import WORKSPACES
from holdfast.model import Kind, NoteKind
from holdfast.model.budgets import BUDGET
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.gate import HANDLER
from holdfast.running.leftovers import without_settled
from holdfast.running.scopes import Scope, caller, in_branch

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.running.context import RunContext

S = TypeVar("S")

_VERB = "hf.turns()"
#: Values that a local variable may carry from turn to turn, unnoticed.
_PLAIN = (int, float, str, bytes, bool, type(None), tuple)
_LOOKED = 100  # turns of an execution in which locals are compared


def turns(
    initial: S, type: TypeForm[S] | None = None, *, migrate: Callable[[Any], Any] | None = None
) -> AsyncIterator[S]:
    """The run's one loop: `async for` over its turns, each of which begins with the state as it is stored.

    Before the loop is once; in the loop is a turn; what is in the state stays, what is not is forgotten. After a crash
    the code starts at the top, what is before the loop answers from the journal, and the loop begins with the last
    turn: turn 100,000 resumes like turn 1. The state is changed in place. It is a dataclass, a pydantic model, a dict
    or a list; `type` says what it is made of, if its own class does not.

    `migrate` is asked when the stored state has another shape than the type that the code has now: it gets the state as
    plain data and returns it as it is to be. Without it, missing fields take their defaults.

    Example:
        async for chat in hf.turns(Chat()):
            chat.messages.append(await hf.receive(said))
    """
    if migrate is not None and not callable(migrate):
        raise UsageError(f"hf.turns(migrate=) takes a function of the stored state; got {migrate!r}.")
    problem = state_problem(initial)
    if problem is not None:
        raise UsageError(
            f"hf.turns() takes a state that its turns change in place; {problem} ({caller()}). Use a dataclass, a "
            'pydantic model, a dict or a list; for a single value, a dict like {"total": 0}.'
        )
    annotation = state_type(initial) if type is None else type
    return Turns(initial, annotation, coder=coder_for(annotation), migrate=migrate)


class Turns(Generic[S]):
    """The turns of one run, in one execution."""

    def __init__(
        self, initial: S, annotation: object, *, coder: Coder[S], migrate: Callable[[Any], Any] | None
    ) -> None:
        self._state = initial  # what the code has, and changes
        self._annotation = annotation
        self._coder = coder
        self._migrate = migrate
        self._shape = shape_digest(annotation)
        self._locals: dict[str, Any] | None = {}
        self._looked = 0

    def __aiter__(self) -> AsyncIterator[S]:
        scope = in_branch(_VERB)
        if scope.run.turning.has_loop:
            raise UsageError(
                f"Run {scope.run.id}: hf.turns() is used a second time ({caller()}). A run has one loop of turns: its "
                "state is what a resume begins with. Put a second loop into an agent of its own, and await that."
            )
        scope.run.turning.begin_loop()
        if self._coder.problem is not None:
            raise UsageError(f"hf.turns() cannot store its state ({caller()}): {self._coder.problem}")
        return self

    def __anext__(self) -> Coroutine[Any, Any, S]:
        """The next turn. No coroutine itself: the frame that loops is the one that asks."""
        if self._locals is not None:
            self._look_at(sys._getframe(1).f_locals)
        return self._next()

    async def _next(self) -> S:
        scope = in_branch(_VERB)
        run = scope.run
        _refuse_elsewhere(scope)
        if run.life.halted:
            await run.life.check(scope, run.life.handled())
        run.ticks.touch()
        if run.replay.is_closed:
            return await self._take_up(scope)
        replay, journal = run.replay, run.journal
        if replay.unclaimed or run.gate.shut is not None or not run.ticks.is_replayed or journal.is_backlogged:
            scope.enter_call()
            try:
                await _pass_head(scope)
            finally:
                scope.leave_call()
            _refuse_elsewhere(scope)
        return self._begin(scope)

    # the head of a turn

    def _begin(self, scope: Scope) -> S:
        """Store the state, and begin with what is stored: nothing else reaches a turn, live or later."""
        run = scope.run
        replay, inbox, turn = run.replay, run.inbox, run.replay.turn + 1
        what = "the state"
        try:
            text, state = self._coder.roundtrip(self._state, what=what)
            run.journal.check_size(text, what)
        except Unserialisable as error:
            raise Unserialisable(f"{error} ({caller()})", path=error.path, type_name=error.type_name) from None
        past = Past(
            mail=inbox.seen,
            unread=inbox.untaken,
            patches=replay.patches.in_loop,
            code=replay.code,
            tick=run.ticks.begin_turn(),
            told=tuple(sorted(replay.told)),
            cancel=replay.cancel,
            plan=run.plan.plain(),
            outside=run.guards.texts or None,
            workspaces=run.journal.summary.get(WORKSPACES),
            budget=run.journal.summary.get(BUDGET),
        )
        faults.point("turn.before")
        run.journal.checkpoint(turn, state=text, shape=self._shape, past=past.text(), mail=inbox.seen)
        replay.begin_turn(turn)
        inbox.begin_turn()
        faults.point("turn.after")
        return self._enter(scope, turn, text=text, state=state)

    def _enter(self, scope: Scope, turn: int, *, text: str, state: S) -> S:
        scope.begin_turn(turn_path(turn))
        scope.run.turning.begin_turn(turn, lambda: self._coder.loads(text, what="the state"))
        self._state = state
        return state

    # after a crash

    async def _take_up(self, scope: Scope) -> S:
        """The loop had begun: go on with the last checkpoint. What the journal has of its turn follows."""
        run = scope.run
        replay, checkpoint = run.replay, run.replay.checkpoint
        assert checkpoint is not None
        text = run.text(checkpoint.args)
        run.know_state(checkpoint.args, text)
        if checkpoint.args_digest != self._shape:
            try:
                text = self._fitted(run, text)
            except HoldfastError as error:
                await run.block(Blocked(Trouble(Cause.state, asked=caller(), detail=str(error))))
        try:
            state = self._coder.loads(text, what="the state")
        except Undecodable as error:
            await run.block(Blocked(Trouble(Cause.state, asked=caller(), detail=self._misfit(text, error))))
            raise  # unreachable: a run that is blocked does not go on
        replay.enter_loop()
        run.plan.restore(replay.plan)
        return self._enter(scope, replay.turn, text=text, state=state)

    def _fitted(self, run: RunContext, text: str) -> str:
        """The state of another shape, as one of this."""
        plain: Coder[Any] = coder_for(Any)
        if self._migrate is not None:
            try:
                found = self._migrate(plain.loads(text))
            except Exception as error:
                raise Undecodable(
                    f"The state of the last checkpoint has another shape, and migrate= raised {said_by(error)}"
                ) from error
            try:
                return self._coder.dumps(found, what="the state")
            except HoldfastError:
                text = plain.dumps(found, what="what migrate= returned")
        try:
            read = self._coder.dumps(self._coder.loads(text, what="the state"), what="the state")
        except Undecodable as error:
            raise Undecodable(self._misfit(text, error)) from None
        if unknown := unknown_fields(json.loads(text), json.loads(read)):
            warn("run.state_has_unknown_fields", run=run.id, fields=unknown)
            run.journal.add(Kind.noted, "", NoteKind.state, payload=json.dumps({"unknown": unknown}))
        return read

    def _misfit(self, text: str, error: Undecodable) -> str:
        stored = shape_of_stored(json.loads(text))
        return (
            f"{error} Stored is {stored}; the code has {shape_of(self._annotation) or 'anything'}. Give hf.turns() a "
            "migrate= that makes the one of the other, or restore the type."
        )

    # what is not in the state

    def _look_at(self, found: dict[str, Any]) -> None:
        """Warn, once, of plain local variables that a turn has changed: a resume does not know them."""
        plain = {name: value for name, value in found.items() if isinstance(value, _PLAIN)}
        self._looked += 1
        if self._looked == 1:
            self._locals = plain
            return
        before = self._locals or {}
        carried = [name for name, value in before.items() if name in found and not _is_same(found[name], value)]
        if carried:
            names = ", ".join(sorted(carried))
            warnings.warn(
                f"{names}: changed in a turn of hf.turns(), and not in its state. A resume begins with what it was "
                f"before the loop. Keep it in the state ({caller()}).",
                CarriedLocal,
                stacklevel=3,
            )
        if carried or self._looked > _LOOKED:
            self._locals = None


def has_more_before_loop() -> bool:
    """Has the journal calls from before the loop that the code has not made again?"""
    replay = in_branch(_VERB).run.replay
    return any(not entry.claimed and not entry.first.turn for entry in replay.entries.values())


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _refuse_elsewhere(scope: Scope) -> None:
    """Raise where a turn cannot begin: something would be open that another turn has to know of."""
    run = scope.run
    if scope is not run.turning.main:
        raise UsageError(
            f"Run {run.id}: hf.turns() is used in a task ({caller()}). The loop of a run belongs to the agent itself: "
            "use it there, without create_task, gather or wait_for."
        )
    alive = [branch.path for task, branch in run.activity.tasks.items() if branch is not scope and not task.done()]
    if alive and (others := [path for path in alive if not path.startswith(HANDLER)]):
        raise UsageError(
            f"Run {run.id}: a turn ends while {', '.join(sorted(others))} is under way ({caller()}). What a task does "
            "would be part of two turns: await or cancel it before the turn ends."
        )
    if scope.saga is not None or run.activity.sagas:
        raise UsageError(
            f"Run {run.id}: hf.turns() is used inside a saga ({caller()}). What is to be undone must be known at each "
            "resume: put the saga into the turn."
        )


async def _pass_head(scope: Scope) -> None:
    """Return when a turn may begin: all that was recorded is told, and a pause, an interrupt or a drain is over."""
    run = scope.run
    if run.replay.unclaimed or not run.ticks.is_replayed:
        await run.ticks.wait_replayed(lambda: True)
        if left := without_settled(run, run.replay.open_intents()):
            attempted = run.replay.attempted.get(scope.path, [])
            await run.block(mismatch(asked="the next turn", where=caller(), recorded=left, attempted=attempted))
    if run.journal.is_backlogged:
        await run.journal.wait_backlog()
        if run.journal.is_backlogged:  # little, but for long: nobody has let the loop turn
            await run.journal.barrier()
    if run.gate.shut is not None:
        await run.gate.pass_(scope)
