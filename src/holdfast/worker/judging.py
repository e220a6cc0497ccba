"""What becomes of a run that is to be taken up: decided from its row and its records, without looking at anything."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.base.data import brisk, data
from holdfast.base.hints import resume_hint
from holdfast.errors import UsageError
from holdfast.journal.blocks import source_in
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.model import FINAL, Kind, Record, RunRow, Status
from holdfast.model.reasons import Blocked
from holdfast.worker.claim_notes import is_wake_up
from holdfast.worker.refusals import crash_loop, refuse_undone


@data
class Request:
    """What somebody wants of a run: who, and why."""

    act: tuple[str, str] | None = None  #: it is to go on
    reopen: tuple[str, str] | None = None  #: also if it failed or was cancelled


#: A worker takes it up by itself.
NOBODY: Final = Request()


@brisk
class Judgement:
    """How a run is begun."""

    reopen: tuple[str, str] | None  #: it had ended: who opens it again, and why
    refusal: Blocked | None  #: it is claimed to be blocked, for this reason; its code is not called
    is_woken: bool  #: what it waited for has come, and nothing was cut off


def judge(
    row: RunRow, records: list[Record], *, agents: Collection[str], asked: Request, crash_limit: int
) -> Judgement | None:
    """How to begin a run whose row this was before it was claimed; None if there is nothing to do.

    One that must not be taken up raises why: it has moved, it took back what it did, nobody here knows its agent.
    """
    may_reopen = asked.reopen is not None and row.status is not Status.done
    if row.status is Status.quarantined or (row.status in FINAL and not may_reopen):
        return None
    refuse_elsewhere(row)
    if asked.reopen is not None:
        refuse_empty(row)
        refuse_undone(row, records)
    if row.agent not in agents:
        raise UsageError(
            f"Run {row.id} is of agent {row.agent!r}, which this process does not know. "
            f"Pass it to hf.connect(agents=[…]), or use `{resume_hint(row.id, source_in(records))}`."
        )
    reopen = _reopening(row, records, asked.reopen)
    is_loop = row.owner is not None and row.claims >= crash_limit
    return Judgement(
        reopen=reopen,
        refusal=crash_loop(row, records) if is_loop else None,
        is_woken=reopen is None and is_wake_up(row),
    )


def _reopening(row: RunRow, records: list[Record], asked: tuple[str, str] | None) -> tuple[str, str] | None:
    if row.status in FINAL:
        return asked
    # A retry that died between its claim and its first record: the journal still ends where the run did.
    last = next((r for r in reversed(records) if r.kind in (Kind.finished, Kind.reopened)), None)
    is_cut_off = last is not None and last.kind == Kind.finished
    return (asked or ("unknown", "a retry that was cut off")) if is_cut_off else None
