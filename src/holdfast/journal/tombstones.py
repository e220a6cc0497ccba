"""Runs whose story is not here: pruned, or moved to another store. Their rows say so, under their digest.

`reasons.Pruned`, `Moved`, `Moving`, `Arriving` and `Frozen` are what they say.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_never

from holdfast.base.hints import hint
from holdfast.errors import RunMoved, RunPruned
from holdfast.journal.chain import revised
from holdfast.model import RunRow, reasons
from holdfast.model.reasons import Arriving, Frozen, Moved, Moving, Pruned

_COUNTS = ("steps", "effects", "input_tokens", "output_tokens", "cost")


def is_empty(row: RunRow) -> bool:
    """Is the row all that there is?"""
    return isinstance(row.reason, Pruned | Moved)


def is_elsewhere(row: RunRow) -> bool:
    """Does the run live in another store, or is it on its way? So does one of which this is a frozen copy."""
    return isinstance(row.reason, Moving | Moved | Arriving | Frozen)


def tombstone(row: RunRow, reason: Pruned | Moved) -> RunRow:
    """What is left of a run: who it was, how and when it ended, how much it did."""
    summary = {name: row.summary[name] for name in _COUNTS if name in row.summary}
    return revised(row, epoch=row.epoch + 1, reason=reason, summary=summary, wake_at=None, claims=0)


def refuse_empty(row: RunRow) -> None:
    """Raise RunPruned or RunMoved if what the run did is not here."""
    if isinstance(row.reason, Pruned):
        raise RunPruned(
            f"Run {row.id} was pruned on {_day(row.reason)}; it ended as {row.status}. What it did and returned is "
            "gone; a start under its id runs nothing.",
            status=row.status,
        )
    if is_empty(row):
        refuse_elsewhere(row)


def refuse_elsewhere(row: RunRow) -> None:
    """Raise RunMoved if the run lives in another store, or is on its way."""
    reason = row.reason
    if not isinstance(reason, Moving | Moved | Arriving | Frozen):
        return
    to = ""
    match reason:
        case Moved(to=to):
            text = f"was moved to {to} on {_day(reason)}; act on it there (--db, or HOLDFAST_URL)."
        case Moving(to=to):
            text = f"is being moved to {to}; if that was cut off, `holdfast copy --move` again finishes it."
        case Frozen(origin=to):
            text = f"is a frozen copy of a run in {to}, and never executed. `{hint('fork', row.id)}` makes one that is."
        case Arriving(origin=origin):
            text = f"is being moved here from {origin}; if that was cut off, `holdfast copy --move` again finishes it."
        case _:
            assert_never(reason)
    raise RunMoved(f"Run {row.id} {text}", to=to)


def told(row: RunRow) -> str:
    """What the row says of it, in a few words; empty for any other run."""
    match row.reason:
        case Pruned() as reason:
            return f"pruned {_day(reason)}"
        case Moved(to=to) | Moving(to=to) as reason:
            return f"{reasons.why(reason)} to {to}"
        case Arriving(origin=origin):
            return f"arriving from {origin}"
        case Frozen(origin=origin):
            return f"frozen copy from {origin}"
        case _:
            return ""


def _day(reason: Pruned | Moved) -> str:
    at = reason.at
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d}" if at is not None else "an unknown day"
