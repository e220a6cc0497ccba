"""Changes to the journal of a run that nobody executes: written here, since there is no owner to do it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base.clock import now_us
from holdfast.control.acting import act_in
from holdfast.control.mail import child_ended
from holdfast.journal.chain import draft, linked, revised
from holdfast.journal.integrity import check_row
from holdfast.model import UNBEGUN, Act, Append, Kind, NoteKind, Proof, RunRow, Status, WorkerId, following
from holdfast.model.budgets import BUDGET
from holdfast.model.reasons import Reason
from holdfast.store.contract import Store


def seized(row: RunRow, dead: Mapping[WorkerId, Proof]) -> dict[str, str]:
    """What is known of an owner that a run is taken from: whether it can still act decides what a cut-off effect is."""
    return {} if row.owner is None else {"seized": dead.get(row.owner, "")}


async def amend(
    store: Store,
    row: RunRow,
    notes: Sequence[tuple[Kind, str, dict[str, Any] | None]],
    *,
    status: Status,
    reason: Reason | None,
    wake_at: int | None,
    updated_at: int | None = None,
    seize: bool = False,
    cancels: bool = False,
    budget: Mapping[str, Any] | None = None,
    digest: str = "",
) -> RunRow | None:
    """Append to the journal of a run that nobody has, with a new status; None if it was changed in between.

    `seize`: also if somebody has it; a note says what is known of them (`seized`). `budget`: the limits that
    it has from now on. `digest`: by what the notes are found.
    """
    check_row(row)
    at, epoch = now_us(), row.epoch + 1
    records = linked(
        (
            draft(kind, name, at=at, args_digest=digest, payload=None if note is None else json.dumps(note))
            for kind, name, note in notes
        ),
        epoch=epoch,
        turn=row.turn,
        head_seq=row.head_seq,
        head_hash=row.head_hash,
    )
    outgoing = child_ended(row.parent_id, row.id, status) if status.is_final and row.parent_id is not None else None
    summary = row.summary
    if status.is_final:
        summary = {k: v for k, v in row.summary.items() if k not in ("progress", "held", "cancelling")}
    elif cancels:
        summary = {**row.summary, "cancelling": True}
    if budget is not None:
        summary = {**summary, BUDGET: budget}
    if notes and row.head_seq <= 1 and not status.is_final:
        summary = {**summary, UNBEGUN: True}
    changed = revised(
        row,
        status=following(row.status, status),
        reason=reason,
        wake_at=wake_at,
        epoch=epoch,
        head_seq=row.head_seq + len(records),
        head_hash=records[-1].hash if records else row.head_hash,
        updated_at=at if updated_at is None else updated_at,
        owner=None,
        claims=0,
        summary=summary,
    )
    append = Append(changed, row.head_seq, row.head_hash, records, mail=row.mail, outgoing=outgoing)
    return append.row if await store.amend(append, seize=seize, act=_act(row, notes)) else None


#: What a person did who has a note written.
_ACTS = {NoteKind.cancel: "cancel", NoteKind.requeued: "resume", NoteKind.artifact: "upload"}


def _act(row: RunRow, notes: Sequence[tuple[Kind, str, dict[str, Any] | None]]) -> Act | None:
    """Who does this, if a person does."""
    for kind, name, said in notes:
        if said is None or "via" not in said:
            continue
        if kind is Kind.reopened:
            return act_in({"by": name, **said}, "retry", row.id)
        what = _ACTS.get(NoteKind(name)) or ("pause" if said.get("on") else "resume")
        return act_in(said, what, row.id)
    return None
