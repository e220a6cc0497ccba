"""Checking every stored byte of a run against its hashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from holdfast.base.data import data
from holdfast.errors import CorruptJournal, RunNotFound, StoreCorrupt, StoreError
from holdfast.journal.blobs import blob_in, stored_blobs, texts_of, values_in
from holdfast.journal.integrity import (
    PagedChain,
    check_mail,
    check_question,
    check_records,
    check_row,
)
from holdfast.journal.messages import CALLS, check_messages
from holdfast.journal.tombstones import is_empty
from holdfast.model import Record, RunId, RunRow, Status, Whole, reasons
from holdfast.store.contract import Store

_PAGE = 2000
_BLOBS_AT_ONCE = 20
_MOST_QUESTIONS = 10_000


@data
class Verification:
    """What checking every stored byte of a run found."""

    run_id: str
    is_ok: bool
    records: int
    blobs: int
    problem: str | None = None
    seq: int | None = None
    is_empty: bool = False  #: it was pruned, or moved to another store: its row is all there is

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        return asdict(self)


def quarantine_reason(row: RunRow) -> str:
    """Why a run is out of service."""
    return reasons.detail_of(row.reason) or "its stored data failed verification"


def check_whole(whole: Whole) -> None:
    """Raise CorruptJournal unless all of a run is what was written, and is in service."""
    row = whole.row
    if row.status is Status.quarantined:
        raise CorruptJournal(reasons.detail_of(row.reason) or f"Run {row.id} is quarantined.", run_id=row.id)
    check_row(row)
    if is_empty(row):
        return
    check_records(row, whole.records)
    named = {name for r in whole.records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}
    texts_of(row.id, {**values_in(whole.mail, named), **whole.blobs}, named | whole.blobs.keys())
    for mail in whole.mail:
        check_mail(mail)
    for question in whole.questions:
        check_question(question)


async def check_in_pages(store: Store, row: RunRow, see: Callable[[Sequence[Record]], None]) -> None:
    """The same as `check_whole`, for a run that is not in memory, and need not be; `see` is shown each page."""
    if row.status is Status.quarantined:
        raise CorruptJournal(quarantine_reason(row), run_id=row.id)
    await _Looking(store, row.id, see).look(row)
    for question in await store.questions(run_id=row.id, only_open=False, limit=_MOST_QUESTIONS):
        check_question(question)


async def verify(store: Store, run_id: str) -> Verification:
    """Check every stored byte of a run against its hashes; changes nothing, and reports damage instead of raising.

    It is read in pages, so what that takes does not grow with the run. What is appended meanwhile is not looked at.
    """
    wanted = RunId(run_id)
    said: list[Record] = []
    looking = _Looking(store, wanted, lambda page: said.extend(r for r in page if r.name.startswith(CALLS)))
    try:
        row = await store.run(wanted)
        if row is None:
            raise RunNotFound(f"There is no run {run_id} in {store.url}.")
        if is_empty(row) and row.status is not Status.quarantined:
            check_row(row)
            return Verification(run_id, True, 0, 0, is_empty=True)
        await looking.look(row)
        await check_messages(store, row, said)
    except (CorruptJournal, StoreCorrupt) as error:
        if await _was_emptied(store, wanted):  # while it was read
            return Verification(run_id, True, 0, 0, is_empty=True)
        seq = looking.seq
        if isinstance(error, CorruptJournal) and error.seq is not None:
            seq = error.seq
        return Verification(run_id, False, looking.records, len(looking.blobs), str(error), seq)
    if row.status is Status.quarantined:
        return Verification(run_id, False, looking.records, len(looking.blobs), quarantine_reason(row))
    return Verification(run_id, True, looking.records, len(looking.blobs))


class _Looking:
    """What was looked at so far."""

    def __init__(self, store: Store, run_id: RunId, see: Callable[[Sequence[Record]], None]) -> None:
        self._store = store
        self._run_id = run_id
        self._see = see
        self.records = 0
        self.blobs: set[str] = set()
        self.seq: int | None = None  #: of the record whose values are looked at

    async def look(self, row: RunRow) -> None:
        store, run_id, chain = self._store, self._run_id, PagedChain(row)
        while page := await store.records(run_id, after=chain.seq, limit=_PAGE):
            known = [record for record in page if record.seq <= row.head_seq]
            self.records += len(known)
            chain.check(known)
            await self._look_at_blobs(known)
            self._see(known)
            if len(known) < len(page):
                await self._check_went_on(row, page[len(known)])
            if len(page) < _PAGE or not known:
                break
        chain.end()
        if row.status is not Status.quarantined:
            check_row(row)
        number = 0
        while mails := await store.mail(run_id, after=number, limit=_PAGE):
            for mail in mails:
                check_mail(mail)
            number = mails[-1].number

    async def _look_at_blobs(self, records: Sequence[Record]) -> None:
        texts = ((r.seq, text) for r in records for text in (r.payload, r.args))
        named = {digest: seq for seq, text in texts if (digest := blob_in(text)) is not None}
        names = sorted(named.keys() - self.blobs, key=named.__getitem__)  # neighbours are often made of the same texts
        for start in range(0, len(names), _BLOBS_AT_ONCE):
            some = names[start : start + _BLOBS_AT_ONCE]
            self.seq = named[some[0]]
            found = await stored_blobs(self._store, self._run_id, some)
            for name in some:
                self.seq = named[name]
                texts_of(self._run_id, found, [name])
                self.blobs.add(name)
        self.seq = None

    async def _check_went_on(self, row: RunRow, beyond: Record) -> None:
        """There are more records than the row says: it was read before they were written, or they are not the run's."""
        now = await self._store.run(self._run_id)
        if now is None or now.head_seq < beyond.seq:
            raise CorruptJournal(
                f"Run {row.id}: the journal has record {beyond.seq}, the run says {row.head_seq}.",
                run_id=row.id,
                seq=beyond.seq,
            )


async def _was_emptied(store: Store, run_id: RunId) -> bool:
    with suppress(StoreError, CorruptJournal):
        row = await store.run(run_id)
        return row is not None and is_empty(row) and row.status is not Status.quarantined
    return False
