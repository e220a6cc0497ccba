"""A long journal, read in pages: what that takes in memory grows with what is open, not with what has happened.

The journal is read twice: once for what has to be known before anything can be told (which calls are open, which
outcomes count no longer), and once to tell it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from holdfast.errors import RunNotFound
from holdfast.history.facts import note_of
from holdfast.history.lookup import is_lost
from holdfast.history.receipts import Receipt, receipts_of
from holdfast.history.timeline import Ahead, Timeline, TimelineItem, with_deciders
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import OUTCOMES, Kind, NoteKind, QuestionRow, Record, RunId, RunRow
from holdfast.store.contract import Store

_PAGE: Final = 2000
#: Notes that receipts are made of.
_COUNTED: Final = frozenset({NoteKind.usage, NoteKind.resumed, NoteKind.guarded, NoteKind.state})


async def record_pages(store: Store, row: RunRow) -> AsyncIterator[list[Record]]:
    """The records of a run, up to those that its row knows of."""
    after = 0
    while after < row.head_seq:
        page = await store.records(row.id, after=after, limit=min(_PAGE, row.head_seq - after))
        if not page:
            return
        yield page
        after = page[-1].seq


async def timeline_pages(
    store: Store, row: RunRow, *, asked: Sequence[QuestionRow] = ()
) -> AsyncIterator[list[TimelineItem]]:
    """What happened to a run, in order; with who answered the questions that it `asked`."""
    ahead = Ahead()
    async for page in record_pages(store, row):
        ahead.take(page)
    timeline = Timeline(row, ahead, is_lost=await is_lost(store, row))
    async for page in record_pages(store, row):
        yield with_deciders(timeline.told(page), asked)


async def history(store: Store, run_id: RunId, *, after: int, limit: int | None) -> list[TimelineItem]:
    """At most so many of the things that happened to a run, behind a record."""
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_empty(row)
    found: list[TimelineItem] = []
    async for items in timeline_pages(store, row):
        found += [item for item in items if item.seq > after]
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


async def receipts(store: Store, row: RunRow) -> list[Receipt]:
    """What each resume saved, from the few records that say so."""
    kept: list[Record] = []
    before: Record | None = None
    async for page in record_pages(store, row):
        for record in page:
            if record.kind == Kind.claimed and before is not None and (not kept or kept[-1] is not before):
                kept.append(before)
            is_note = record.kind == Kind.noted and record.name in _COUNTED
            if is_note or record.kind in (Kind.claimed, Kind.settled, Kind.reopened):
                kept.append(record)
            before = record
    if row.turn or not _all_counted(kept):  # earlier turns, or one who died before it could sum up: counted here
        kept = []
        async for page in record_pages(store, row):
            kept += [_thin(record) for record in page if record.kind != Kind.started]
    return receipts_of(row, kept)


def _all_counted(records: Sequence[Record]) -> bool:
    claims = [r.epoch for r in records if r.kind == Kind.claimed][1:]
    counted = {r.epoch for r in records if r.kind == Kind.noted and r.name == NoteKind.resumed}
    woken = {r.epoch for r in records if r.kind == Kind.claimed and note_of(r).get("woken")}
    return all(epoch in counted | woken for epoch in claims)


def _thin(record: Record) -> Record:
    """Without the values that nobody counts."""
    return record._replace(args=None, payload=None, hash=b"") if record.kind in OUTCOMES else record
