"""What a run ended with, and the states that a reducer went through."""

from __future__ import annotations

from typing import Any

from holdfast.codec import Coder, coder_for
from holdfast.history.lookup import journal_of
from holdfast.journal.blobs import stored_text
from holdfast.journal.integrity import check_records, check_row
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import Kind, RunId, RunRow
from holdfast.store.contract import Store


async def end_of(store: Store, run_id: RunId) -> tuple[RunRow, str]:
    """The row of a run that has ended, and what it ended with, as JSON text; CorruptJournal if it is damaged."""
    loaded = await store.load_many([run_id])  # what a resume reads has the end
    row, records = loaded[0][:2] if loaded else await journal_of(store, run_id)
    refuse_empty(row)
    check_row(row)
    check_records(row, records)
    end = next(r for r in reversed(records) if r.kind == Kind.finished)
    return row, await stored_text(store, run_id, end.payload)


async def states_of(store: Store, run_id: RunId) -> list[Any]:
    """The states that a reducer went through, the first one included, as plain values."""
    row, records = await journal_of(store, run_id)
    check_records(row, records)
    coder: Coder[Any] = coder_for(Any)
    first = coder.loads(await stored_text(store, run_id, records[0].args), what="the input")
    states = list(first.values())[:1] if isinstance(first, dict) else []
    for record in records:
        if record.kind == Kind.done and record.name == row.agent:
            text = await stored_text(store, run_id, record.payload)
            states.append(coder.loads(text, what=record.key)[0])
    return states
