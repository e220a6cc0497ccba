"""The run that somebody acts on."""

from __future__ import annotations

from holdfast.errors import RunNotFound
from holdfast.journal.tombstones import refuse_elsewhere
from holdfast.model import RunId, RunRow
from holdfast.store.contract import Store


async def existing(store: Store, run_id: RunId) -> RunRow:
    """The run, to be acted on: RunNotFound, or RunMoved if it lives in another store."""
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_elsewhere(row)
    return row
