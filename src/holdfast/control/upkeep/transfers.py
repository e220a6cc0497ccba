"""What becomes of runs that are taken from one store to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.model import RunRow, Status
from holdfast.model.reasons import Frozen, Moving


class Outcome(StrEnum):
    """What became of a run, or of a definition."""

    copied = "copied"
    moved = "moved"
    repaired = "repaired"  #: all of it was there, and is signed anew
    saved = "saved"  #: what can be read of it is there; it is damaged, and stays quarantined
    there = "there already"
    refused = "refused"  #: it may not be done; the detail says why
    conflict = "conflict"  #: the other store has something else under this name
    damaged = "damaged"  #: what is stored does not fit its hashes


@dataclass(frozen=True, slots=True)
class Transfer:
    """One run, and what became of it."""

    run_id: str
    agent: str
    status: Status
    outcome: Outcome
    detail: str = ""


class NotTaken(HoldfastError):
    """This run is not taken; nothing of it was changed by the step that raises this."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


def transfer_of(row: RunRow, outcome: Outcome) -> Transfer:
    status = row.reason.was.status if isinstance(row.reason, Moving | Frozen) else row.status
    return Transfer(row.id, row.agent, status, outcome)


def stopped(row: RunRow, why_not: NotTaken | CorruptJournal) -> Transfer:
    outcome = why_not.outcome if isinstance(why_not, NotTaken) else Outcome.damaged
    return Transfer(row.id, row.agent, row.status, outcome, str(why_not))
