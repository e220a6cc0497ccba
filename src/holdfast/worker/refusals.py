"""Why a run is not executed, or not again."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.model import FINAL, Kind, Record, RunRow
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked


def refuse_undone(row: RunRow, records: list[Record]) -> None:
    """What a saga took back cannot be done anew in the same run: the idempotency keys of its effects are used up."""
    intents = {record.key for record in records if record.kind == Kind.intent}
    undone = [
        record.key
        for record in records
        if record.kind == Kind.done and record.name.endswith(".undo") and record.key in intents
    ]
    if undone and row.status in FINAL:
        raise UsageError(
            f"Run {row.id} took back what it had done ({', '.join(undone[:5])}), so it cannot be retried: its effects "
            "would count as done. Start a new run."
        )


def crash_loop(row: RunRow, records: list[Record]) -> Blocked:
    last = next((r.key for r in reversed(records) if r.key), "")
    detail = (
        f"{row.claims} processes took this run and died without getting further; "
        f"the last call recorded is {last or 'none'}."
    )
    return Blocked(Trouble(Cause.crash_loop, detail=detail))
