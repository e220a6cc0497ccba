"""Runs whose story is not here: pruned, or moved to another store. Their rows say so, under their digest.

why        status       meaning
pruned     final        what it did was removed
moving     blocked      it is shut here, with all it has, until another store has it; `was` is how it stood
moved      any          another store has it, what it did was removed here
arriving   blocked      it is here, with all it has, and shut until that is known; `was` is how it stood
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import RunMoved, RunPruned
from holdfast.journal.integrity import seal_row
from holdfast.model import RunRow

_EMPTY = frozenset({"pruned", "moved"})
_ELSEWHERE = frozenset({"moving", "moved", "arriving"})
_COUNTS = ("steps", "effects", "input_tokens", "output_tokens", "cost")


def why(row: RunRow) -> str:
    return str((row.reason or {}).get("why", ""))


def is_empty(row: RunRow) -> bool:
    """Is the row all that there is?"""
    return why(row) in _EMPTY


def is_elsewhere(row: RunRow) -> bool:
    """Does the run live in another store, or is it on its way?"""
    return why(row) in _ELSEWHERE


def tombstone(row: RunRow, reason: Mapping[str, Any]) -> RunRow:
    """What is left of a run: who it was, how and when it ended, how much it did."""
    summary = {name: row.summary[name] for name in _COUNTS if name in row.summary}
    return seal_row(replace(row, epoch=row.epoch + 1, reason=reason, summary=summary, wake_at=None, claims=0))


def refuse_empty(row: RunRow) -> None:
    """Raise RunPruned or RunMoved if what the run did is not here."""
    if why(row) == "pruned":
        raise RunPruned(
            f"Run {row.id} was pruned on {_day(row)}; it ended as {row.status}. What it did and returned is gone; a "
            "start under its id runs nothing.",
            status=row.status,
        )
    if is_empty(row):
        refuse_elsewhere(row)


def refuse_elsewhere(row: RunRow) -> None:
    """Raise RunMoved if the run lives in another store, or is on its way."""
    reason = row.reason or {}
    if not is_elsewhere(row):
        return
    to = str(reason.get("to", ""))
    match reason["why"]:
        case "moved":
            text = f"was moved to {to} on {_day(row)}; act on it there (--db, or HOLDFAST_URL)."
        case "moving":
            text = f"is being moved to {to}; if that was cut off, `holdfast copy --move` again finishes it."
        case _:
            text = f"is being moved here from {reason.get('from', '')}; if that was cut off, `holdfast copy --move` "
            text += "again finishes it."
    raise RunMoved(f"Run {row.id} {text}", to=to)


def told(row: RunRow) -> str:
    """What the row says of it, in a few words; empty for any other run."""
    reason = row.reason or {}
    match reason.get("why"):
        case "pruned":
            return f"pruned {_day(row)}"
        case "moved" | "moving":
            return f"{reason['why']} to {reason.get('to', '')}"
        case "arriving":
            return f"arriving from {reason.get('from', '')}"
        case _:
            return ""


def _day(row: RunRow) -> str:
    at = (row.reason or {}).get("at")
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d}" if isinstance(at, int) else "an unknown day"
