"""The template of every durable call: place, answered?, admit, execute, record.

1. **Place**: the call is counted in its branch, and claims the record that it is, if the journal has one.
2. **Answered?** What is recorded of it is told again, at the tick at which it was; the call is over. One that the code
   once cancelled is held until the code cancels it again.
3. **Admit**: a run that was cancelled or is over refuses it; one that acts outward blocks if a recorded effect is left
   over that it might be; a pause, a closing process and an interrupt keep it back at the gate.
4. **Execute**: what the verb is about.
5. **Record**: its outcome is a record with a tick, and the code hears of it then (`outcomes.deliver`, `waiting`).

A verb is a `DurableCall` with an `execute`. Blocks (a timeout, a race, a saga) and values (the time) are no calls: what
they have in common with one is its place (`place`). They do nothing by themselves that a cancelled or paused run would
have to be kept from.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from holdfast.base.telemetry import warn
from holdfast.errors import UsageError
from holdfast.journal.mismatches import mismatch
from holdfast.model import Kind, NoteKind
from holdfast.running.cleaning import clean_up
from holdfast.running.gate import ReachedCall
from holdfast.running.leftovers import refuse_left_over
from holdfast.running.outcomes import answer
from holdfast.running.pending import until_cancelled
from holdfast.running.scopes import SEALED, Scope, where
from holdfast.running.sealing import seal

if TYPE_CHECKING:
    from holdfast.codec import Coder
    from holdfast.journal.replay import Entry

T = TypeVar("T")

_ASKED = 50  # calls of a branch that are listed if the run has to be blocked


def claim(scope: Scope, name: str, digest: str = "", key: str | None = None) -> Entry | None:
    """Count a call; the recorded call that it is, if the journal has it. `key`: the code names it itself."""
    run, replay = scope.run, scope.run.replay
    run.ticks.touch()
    scope.make_call(name, key)
    if key is not None:
        if key in run.turning.keys:
            raise UsageError(
                f"Run {run.id}: {name} was called with {key!r} a second time; a key= names one call of a run, or of a "
                "turn."
            )
        run.turning.keys.add(key)
    if not replay.unclaimed:
        return None
    branch = scope.path if scope.reserved is None else scope.reserved.scope.path
    asked = replay.attempted.setdefault(branch, [])
    if len(asked) < _ASKED:
        asked.append(f"{name}  {where(scope)}")
    if key is not None:
        entry, fits = replay.claim_explicit(key, digest)
    else:
        entry, fits = replay.claim(branch, name, digest, key=scope.expected_key(name))
    if entry is None and replay.is_closed:
        _report_new(scope, name)
    if entry is not None and not fits:
        run.journal.add(Kind.noted, entry.key, NoteKind.unstable, digest=digest)
    return entry


def _report_new(scope: Scope, name: str) -> None:
    """A step that is new before the loop, which had begun: its record is forgotten with the turn that it is made in."""
    run, at = scope.run, where(scope)
    warn("run.new_before_loop", run=run.id, call=name, where=at)
    note = json.dumps({"call": name, "where": at})
    run.journal.add(Kind.noted, "", NoteKind.new_before_loop, payload=note)


async def refuse_in_prologue(scope: Scope, name: str) -> None:
    """Block the run: something new is to be done, or waited for, before its loop, which had begun."""
    replay = scope.run.replay
    detail = (
        f"The run is in turn {replay.turn} of its loop, so what is before hf.turns() is over: something new there "
        "would be done again whenever the run is taken up. Move the call into the loop, or guard it with hf.patched()."
    )
    attempted = replay.attempted.get(scope.path, [])
    await scope.run.block(mismatch(asked=name, where=where(scope), recorded=[], attempted=attempted, detail=detail))


def place(scope: Scope, name: str, digest: str = "") -> tuple[str, Entry | None]:
    """The key of something that has a place among the calls and is none, and what is recorded of it."""
    entry = claim(scope, name, digest)
    return (scope.new_key(name), None) if entry is None else (entry.key, entry)


class DurableCall(Generic[T]):
    """One durable call, made by the task of its branch: `await SomeCall(scope, …).make()`.

    A subclass says what its calls are named and recognised by (`name`, `digest`, `explicit_key`), how a recorded
    outcome is read (`coder`, `raises`), and what it does (`execute`). While that is under way the branch is in a call:
    `scope.enter_call()` and `leave_call()`, or `waiting`. In what else verbs differ is said by three words:
    """

    __slots__ = ("digest", "entry", "explicit_key", "key", "name", "run", "scope")

    #: It acts outward: it must not be a recorded effect under another name, or with other arguments.
    is_outward: ClassVar[bool] = False
    #: It is kept back at the gate before it begins.
    passes_gate: ClassVar[bool] = True
    #: As a part of clean-up it goes on to its end, whoever cancels it.
    outlasts: ClassVar[bool] = True
    #: It may be repeated by each resume, if it is new before a loop that had begun.
    is_repeatable: ClassVar[bool] = False

    def __init__(self, scope: Scope, name: str, digest: str = "", *, explicit_key: str | None = None) -> None:
        self.scope = scope
        self.run = scope.run
        self.name = name
        self.digest = digest
        self.explicit_key = explicit_key
        self.entry: Entry | None = None  #: what is recorded of it
        self.key = ""  #: once it is admitted

    @property
    def coder(self) -> Coder[T]:
        """Reads the result that is recorded."""
        raise NotImplementedError

    @property
    def raises(self) -> tuple[type[BaseException], ...]:
        """What comes back as itself, if that is recorded."""
        return ()

    async def execute(self) -> T:
        """Do it, and record the outcome under `key`; `entry` is what a former execution began, if it did."""
        raise NotImplementedError

    def make(self) -> Coroutine[Any, Any, T]:
        """The call, to be awaited at once.

        No coroutine by itself: the usual call is recorded nowhere and admitted at once, and then `execute` is all.
        """
        if self.run.life.halted or self.scope.sealed:
            return self._ask_first()
        return self._place()

    async def _ask_first(self) -> T:
        life = self.run.life
        if life.halted:
            await life.check(self.scope, life.handled())
        try:
            return await self._place()
        except SEALED as error:
            await seal(error)
            raise

    def _place(self) -> Coroutine[Any, Any, T]:
        scope, run = self.scope, self.run
        if self.explicit_key is not None:
            self.explicit_key = run.turning.named(self.explicit_key)
        self.entry = entry = claim(scope, self.name, self.digest, self.explicit_key)
        if (scope.handling is not None or scope.cleans_up) and self.outlasts and run.life.is_clean_up(scope):
            return clean_up(scope, self.go())
        if (
            entry is not None
            or (run.gate.shut is not None and (self.passes_gate or run.gate.is_dry))
            or (self.passes_gate and run.replay.is_closed)
            or (self.is_outward and run.may_have_left_over)
        ):
            return self.go()
        self.key = self.explicit_key or scope.new_key(self.name)
        return self.execute()

    async def go(self) -> T:
        """Answer from the journal; else admit, and execute."""
        scope, run, entry = self.scope, self.run, self.entry
        if entry is not None and entry.outcome is not None:
            if not entry.was_cancelled:
                return await self.answer(entry)
            await self.hold(entry)
        if entry is None and run.replay.is_closed and not self.is_repeatable:
            await refuse_in_prologue(scope, self.name)
        if entry is None and self.is_outward and run.may_have_left_over:
            scope.enter_call()
            try:
                await refuse_left_over(scope, self.name, self.digest)
            finally:
                scope.leave_call()
        if run.gate.is_dry:
            await run.gate.stay(scope, ReachedCall(self.name, entry, where(scope)))
        if self.passes_gate and run.gate.shut is not None:
            await self.pass_gate()
        self.key = entry.key if entry is not None else self.explicit_key or scope.new_key(self.name)
        return await self.execute()

    # what a verb may add something to

    async def answer(self, entry: Entry) -> T:
        """What is recorded, told as it once was."""
        value: T = await answer(self.scope, entry, self.coder, self.raises)
        return value

    async def hold(self, entry: Entry) -> None:
        """The code once cancelled it: return if it is to be made after all."""
        await until_cancelled(self.scope, entry)

    async def pass_gate(self) -> None:
        """Return when it may begin."""
        await self.run.gate.pass_(self.scope, begins=self.is_outward)
