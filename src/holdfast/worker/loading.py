"""Reading a run to execute it: all that it has, checked. One that is not what was written is quarantined, alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from holdfast.base.data import brisk
from holdfast.base.telemetry import warn
from holdfast.errors import CorruptJournal, RunNotFound, StoreError
from holdfast.journal.blobs import Texts, blob_in, read_texts
from holdfast.journal.checkpoints import Past, checkpoint_in
from holdfast.journal.integrity import check_records, check_row
from holdfast.journal.tombstones import is_empty
from holdfast.model import Loaded, Mail, Record, RunId, RunRow, Status
from holdfast.store.contract import Store


@brisk
class LoadedRun:
    """A run with all that it has."""

    row: RunRow
    records: list[Record]
    blobs: Texts  #: its large values
    mail: Sequence[Mail] = ()


class Loading:
    """Reads and checks the runs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def row(self, run_id: RunId) -> RunRow:
        row = await self._store.run(run_id)
        if row is None:
            raise RunNotFound(f"There is no run {run_id} in {self._store.url}.")
        return row

    async def whole(self, run_id: RunId) -> LoadedRun:
        """A run that nobody has claimed yet; CorruptJournal if anything of it is not what was written."""
        found = await self._store.load_many([run_id])
        if not found:
            if await self._store.load(run_id) is None:  # raises what keeps it from being read
                raise RunNotFound(f"There is no run {run_id} in {self._store.url}.")
            raise CorruptJournal(f"Run {run_id} cannot be read.", run_id=run_id)
        row, records, mail = found[0]
        if row.status is Status.quarantined or is_empty(row):
            return LoadedRun(row, records, Texts(), mail)
        check_row(row)
        return await self._checked(row, records, mail)

    async def claimed(self, run_id: RunId, loaded: Loaded | None) -> LoadedRun:
        """A run that was just claimed here, from what was read of it. Its row was checked before this process itself
        wrote it; CorruptJournal if the rest is not what was written.
        """
        if loaded is None:
            await self.whole(run_id)  # raises what keeps it from being read
            raise CorruptJournal(f"Run {run_id} cannot be read.", run_id=run_id)
        return await self._checked(*loaded)

    async def sound(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """Those of the rows that are what was written; the runs of the others are quarantined."""
        found: list[RunRow] = []
        for row in rows:
            try:
                check_row(row)
            except CorruptJournal as error:
                await self.quarantine(row.id, error)
            else:
                found.append(row)
        return found

    @asynccontextmanager
    async def quarantining(self, run_id: RunId) -> AsyncIterator[None]:
        """A run whose data turns out to be corrupt is quarantined, and whoever asked for it hears so."""
        try:
            yield
        except CorruptJournal as error:
            await self.quarantine(run_id, error)
            raise

    async def quarantine(self, run_id: RunId, error: CorruptJournal) -> None:
        warn("run.quarantined", run=run_id, error=str(error))
        with suppress(StoreError):
            await self._store.quarantine(run_id, str(error))

    async def _checked(self, row: RunRow, records: list[Record], mail: Sequence[Mail]) -> LoadedRun:
        check_records(row, records)
        checkpoint = checkpoint_in(records, row.turn) if row.turn else None
        if checkpoint is not None and (unread := Past.read(checkpoint).unread):
            mail = [*await self._store.mail_of_numbers(row.id, list(unread)), *mail]
        named = {name for r in records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}
        return LoadedRun(row, records, await read_texts(self._store, row.id, named), mail)
