"""Which run is meant, and what the store has of it."""

from __future__ import annotations

from holdfast.errors import AmbiguousId, RunNotFound
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import Record, RunFilter, RunId, RunRow, token_parts
from holdfast.store.contract import Store


async def find(store: Store, given: str) -> RunRow:
    """The run that an id, a token (`run@thread`), a unique prefix of an id, or `@last` names."""
    if given == "@last":
        newest = await store.runs(RunFilter(limit=1))
        if not newest:
            raise RunNotFound(f"There are no runs in {store.url} yet.")
        return newest[0]
    wanted, thread_id = token_parts(given, "app.find()")
    row = await store.run(wanted) if wanted else None
    if row is None and wanted:
        fitting = await store.runs(RunFilter(id_prefix=wanted, limit=6))
        if len(fitting) > 1:
            shown = ", ".join(r.id for r in fitting[:5])
            raise AmbiguousId(
                f"{wanted!r} fits several runs: {shown}{' …' if len(fitting) > 5 else ''}. Give more of the id."
            )
        row = fitting[0] if fitting else None
    if row is None:
        raise RunNotFound(f"There is no run {wanted!r} in {store.url}. `holdfast runs` lists what there is.")
    if thread_id and row.thread_id != thread_id:
        raise RunNotFound(f"Run {row.id} belongs to thread {row.thread_id}, not {thread_id!r}.")
    return row


async def row_of(store: Store, run_id: RunId) -> RunRow:
    """The row of a run; RunNotFound if there is none."""
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    return row


async def journal_of(store: Store, run_id: RunId) -> tuple[RunRow, list[Record]]:
    """The row of a run and its records, of one moment; RunPruned or RunMoved if what it did is not here."""
    loaded = await store.load(run_id)
    if loaded is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_empty(loaded[0])
    return loaded


async def is_lost(store: Store, row: RunRow) -> bool:
    """Does the run look owned, and its owner is dead or nobody knows it?"""
    if row.owner is None:
        return False
    if row.owner in await store.dead_workers():
        return True
    return all(worker.id != row.owner for worker in await store.workers())
