"""The diagnosis of a run whose code asks for what its journal does not have, to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.model import RunRow, Status, reasons
from holdfast.model.diagnoses import Left, Mismatch
from holdfast.model.reasons import Blocked

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry


def mismatch(
    *, asked: str, where: str, recorded: Iterable[Entry], attempted: Sequence[str], detail: str | None = None
) -> Blocked:
    """The diagnosis of a run that cannot go on with this code: what it asked for, and what the journal has."""
    left = tuple(Left(e.key, e.name, e.seq, (e.args or "")[:200], e.is_open_effect) for e in recorded)
    return Blocked(Mismatch(asked, where, left, tuple(attempted), detail))


def is_left_over(row: RunRow, entry: Entry) -> bool:
    """Is the run blocked because its code no longer makes this call, of which it is not known whether it happened?"""
    if row.status is not Status.blocked or entry.intent is None or entry.outcome is not None or entry.given is not None:
        return False
    return any(left.key == entry.key for left in reasons.recorded_of(row.reason))
