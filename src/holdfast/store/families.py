"""What a family of runs has used of a budget, by its rows. A row that is damaged holds up nobody but itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.model import FINAL, RunId
from holdfast.model.budgets import BUDGET, Budget, FamilyUse, Used

#: Of an owner whose row cannot be read: nobody can say what is left.
_UNKNOWN: Final = Budget(steps=0)


def family_use_of(summary: str | None, used: Used, *, runs: int, live: int) -> FamilyUse:
    """By the summary of the run that has the budget, and what the others have used."""
    try:
        limit = Budget.read(_mapping(summary).get(BUDGET)) if summary is not None else None
    except ValueError:
        limit = _UNKNOWN
    return FamilyUse(limit, used, runs, live)


def sums_of(values: Sequence[Any]) -> FamilyUse:
    """What the database has summed."""
    summary, tokens, cost, steps, runs, live = values
    return family_use_of(summary, Used(int(tokens), float(cost), int(steps)), runs=runs, live=live)


def summed(family: Iterable[Sequence[Any]], owner: RunId, asks: RunId) -> FamilyUse:
    """The same, of its rows: id, summary and status of each. What cannot be read has used nothing."""
    budget, used, runs, live = None, Used(), 0, 0
    for run_id, summary, status in family:
        if run_id == owner:
            budget = summary
        if run_id != asks:
            with suppress(ValueError, TypeError, OverflowError):
                used += Used.of(_mapping(summary))
            runs += 1
            live += status not in FINAL
    return family_use_of(budget, used, runs=runs, live=live)


def _mapping(text: str) -> Mapping[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
