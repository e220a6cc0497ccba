"""What guards found outside since they were taken, and who has the run go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import NoteKind


class Outside:
    """As the journal of one run tells."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int, str]] = {}  #: by the name of the guard: the number of the record, the text
        self.accepts: dict[str, str] | None = None  #: who has the run go on with whatever changed

    def accept(self, note: Mapping[str, Any]) -> None:
        """Somebody had the run go on. If it was blocked because something changed outside, they accept that."""
        if note.get("accepts"):
            self.accepts = {"by": str(note.get("by")), "note": str(note.get("note", ""))}

    def take(self, seq: int, name: str, note: Mapping[str, Any]) -> None:
        """A note of the journal: what was found, or that the run was queued again."""
        if name == NoteKind.requeued:
            self.accept(note)
            return
        self.accepts = None
        if not note.get("asks"):
            found = {each["name"]: each["now"] for each in note["changes"] if each["now"] is not None}
            self.see(seq, found)

    def see(self, seq: int, found: Mapping[str, str]) -> None:
        """From this record on these texts count."""
        self.seen.update({name: (seq, text) for name, text in found.items()})
