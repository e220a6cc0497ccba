"""Pausing a run that executes here: at its next durable boundary it stops, and its timers with it."""

from __future__ import annotations

import json
from typing import Any

from holdfast.model import Kind, NoteKind
from holdfast.running.context import RunContext


class Pausing:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self.told_by: tuple[str | None, str] = (None, "")  #: who paused it or had it go on, and why

    def ask(self, on: bool, body: dict[str, Any]) -> None:
        """Somebody asked for it to stop, or to go on."""
        run = self._run
        note = {"on": on, "by": body["by"], "note": body["note"], "mail": body["mail"]}
        if run.replay.cancel is not None:  # it can only end: nothing holds up its clean-up
            run.journal.add(Kind.noted, "", NoteKind.unheeded, payload=json.dumps(note))
            return
        run.journal.add(Kind.noted, "", NoteKind.paused, payload=json.dumps(note))
        self.told_by = body["by"], body["note"]
        if on:
            run.gate.pause()
        else:
            run.gate.resume()
