"""Where a run stands: its row, for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.errors import CorruptJournal
from holdfast.history.facts import Facts
from holdfast.journal.integrity import check_row
from holdfast.journal.tombstones import told
from holdfast.journal.verification import quarantine_reason
from holdfast.model import SCHEDULED_AT, TAGS, RunRow, Status, reasons
from holdfast.model.budgets import BUDGET


@data
class RunInfo(Facts):
    """Where a run stands.

    Example: `print((await run.info()).now)`
    """

    id: str
    thread_id: str
    token: str
    agent: str
    status: Status
    now: str  #: what it is doing or waiting for, in a few words
    parent_id: str | None
    created_at: datetime
    updated_at: datetime
    steps: int
    effects: int
    input_tokens: int
    output_tokens: int
    cost: float
    reason: Mapping[str, Any] | None
    epoch: int  #: how often the run was taken up
    records: int
    is_lost: bool  #: the process that had it died; any worker may take it up
    progress: Mapping[str, Any] | None
    tags: Mapping[str, str]  #: that it was started with
    scheduled_at: datetime | None  #: the time of the schedule that it is the run of
    budget: Mapping[str, float] | None  #: what it may use, with all that comes of it: tokens, cost, steps


def info_of(row: RunRow, *, is_lost: bool = False) -> RunInfo:
    """The row, for people."""
    summary = row.summary
    progress = summary.get("progress")
    is_lost = is_lost and not row.status.is_final
    return RunInfo(
        id=row.id,
        thread_id=row.thread_id,
        token=f"{row.id}@{row.thread_id}",
        agent=row.agent,
        status=row.status,
        now=_now(row, progress, is_lost),
        parent_id=row.parent_id,
        created_at=as_time(row.created_at),
        updated_at=as_time(row.updated_at),
        steps=int(summary.get("steps", 0)),
        effects=int(summary.get("effects", 0)),
        input_tokens=int(summary.get("input_tokens", 0)),
        output_tokens=int(summary.get("output_tokens", 0)),
        cost=float(summary.get("cost", 0.0)),
        reason=None if row.reason is None else reasons.plain(row.reason),
        epoch=row.epoch,
        records=row.head_seq,
        is_lost=is_lost,
        progress=progress,
        tags=dict(summary.get(TAGS, {})),
        scheduled_at=None if (due := summary.get(SCHEDULED_AT)) is None else as_time(due),
        budget=summary.get(BUDGET),
    )


def _now(row: RunRow, progress: Mapping[str, Any] | None, is_lost: bool) -> str:
    reason = row.reason
    if is_lost:
        return "cut off, recoverable"
    if gone := told(row):
        return gone
    match row.status:
        case Status.in_doubt:
            doubts = reasons.doubts_of(reason)
            return ", ".join(f"{wait.key} ({wait.shown.get('cause', 'unknown')})" for wait in doubts)
        case Status.blocked:
            return ": ".join(filter(None, (reasons.why(reason) or "unknown", reasons.asked_of(reason))))
        case Status.quarantined:
            return quarantine_reason(row)
        case Status.waiting | Status.sleeping | Status.paused:
            return reasons.detail_of(reason) or reasons.why(reason)
        case Status.queued if word := reasons.why(reason):
            return word
        case Status.running | Status.queued if progress is not None:
            return progress_text(progress)
        case _:
            return str(row.summary.get("now", ""))


def is_sound(row: RunRow) -> bool:
    """Does the row fit its digest? Cheap enough for a list; `verify` looks at everything."""
    if row.status is Status.quarantined:
        return False
    try:
        check_row(row)
    except CorruptJournal:
        return False
    return True


def progress_text(progress: Mapping[str, Any]) -> str:
    """`3/10 reading pages`"""
    total = progress.get("total")
    share = f"{_number(progress.get('done', 0))}{'' if total is None else '/' + _number(total)}"
    return f"{share} {progress.get('note', '')}".strip()


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
