"""What keeps a run in memory although all of its durable calls wait.

A timer of the code's own is lost with the process' memory, so a run that has one does not leave it. What a branch
awaits outside, a socket or a thread, is waited for as well, but not for ever: nobody knows whether it comes. Both are
told to people, in the log and once in the journal of each run, when they matter: the run stays in memory for long; it
leaves without having got what it awaits; or it was taken up anew, and so was a timer that had been under way.
"""

from __future__ import annotations

import json

from holdfast.base.telemetry import warn
from holdfast.journal.stillness import Quiet
from holdfast.model import Kind, NoteKind
from holdfast.model.notes import OwnWait
from holdfast.running.context import RunContext
from holdfast.running.own_waits import places_outside, where_it_waits

_PAUSED_S = 2.0


class Keeping:
    """Looks at what one run waits for besides its durable calls."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._told: set[str] = set()

    def is_kept(self, as_of: float, idle_s: float) -> bool:
        """Must the run stay in memory? Nothing happened in it for `idle_s`; the look was due at `as_of`."""
        run = self._run
        is_outside = run.activity.quiet() is not Quiet.settled
        if run.gate.paused:  # somebody wants it to stop; what it waits for by itself begins anew
            return is_outside and idle_s < min(_PAUSED_S, run.host.settings.outside_s)
        if timers := run.activity.own_timers.pending(as_of):
            branches = sorted({branch for _, branch in timers})
            since = [wait.key for wait in run.waits if wait.key in run.replay.entries]
            if since:
                self._tell(NoteKind.own_timer, "began anew", branches, waits=since)
            elif idle_s > run.host.settings.outside_s:
                self._tell(NoteKind.own_timer, "keeps the run in memory", branches, waits=run.waits.keys)
            return True
        if run.ticks.cancels.has_overdue(as_of):
            return True
        return is_outside and idle_s < run.host.settings.outside_s

    @property
    def has_own(self) -> bool:
        """Does its code wait for something by itself, which only begins again when the run is taken up?"""
        run = self._run
        return run.activity.quiet() is Quiet.outside or bool(run.activity.own_timers.pending(run.life.loop.time()))

    def leaves(self) -> None:
        """The run is about to leave memory."""
        if self._run.activity.quiet() is Quiet.outside:
            self._tell(NoteKind.outside, "left memory", sorted(places_outside(self._run.activity.tasks)))

    def _tell(self, what: NoteKind, why: str, branches: list[str], *, waits: list[str] | None = None) -> None:
        """Once in the journal of a run, and once in the log of each process that has it."""
        run = self._run
        if what in self._told:
            return
        self._told.add(what)
        at = {where_it_waits(task) for task, scope in run.activity.tasks.items() if scope.path in branches}
        where = sorted(place for place in at if place)
        if what not in run.replay.told:
            note = OwnWait(why, branches, where, waits).plain()
            run.journal.add(Kind.noted, "", what, payload=json.dumps(note))
        warn(f"run.{what.replace(' ', '_')}", run=run.id, why=why, where=", ".join(where), so=_ADVICE[what])


_ADVICE = {
    NoteKind.own_timer: "a plain timer is not durable: use hf.timeout, hf.sleep or timeout= of the call that waits",
    NoteKind.outside: "what a branch awaits outside of a step is begun anew when the run goes on: put it into a step",
}
