"""A long journal, read in pages: what that takes in memory grows with what is open, not with what has happened.

The journal is read twice: once for what has to be known before anything can be told (which calls are open, which
outcomes count no longer), and once to tell it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.base.data import brisk
from holdfast.history.facts import note_of
from holdfast.history.lookup import is_lost, row_of
from holdfast.history.receipts import Counting, Receipt
from holdfast.history.timeline import Ahead, Timeline, TimelineItem, with_deciders
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import Kind, NoteKind, QuestionRow, Record, RunId, RunRow
from holdfast.store.contract import Store


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
    row = await row_of(store, run_id)
    refuse_empty(row)
    found: list[TimelineItem] = []
    async for items in timeline_pages(store, row):
        found += [item for item in items if item.seq > after]
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


async def receipts(store: Store, row: RunRow, *, known: Landmarks | None = None) -> list[Receipt]:
    """What each resume saved. Of one who died before it could sum up that is counted call by call."""
    if not row.turn and known is None:
        known = await landmarks(store, row)
    counting = Counting(counts_answers=known is None or row.turn > 0 or not known.is_counted)
    async for page in record_pages(store, row):
        counting.take(page)
    return counting.receipts()


async def receipts_of_run(store: Store, run_id: RunId) -> list[Receipt]:
    """The same; RunNotFound, RunPruned or RunMoved if what it did is not here."""
    row = await row_of(store, run_id)
    refuse_empty(row)
    return await receipts(store, row)


@brisk
class Landmarks:
    """The few records that say most of a run."""

    created: Record | None
    claim: Record | None  #: the last one
    finished: Record | None  #: the last one
    is_counted: bool  #: each execution after the first has recorded how much the journal answered


async def landmarks(store: Store, row: RunRow) -> Landmarks:
    """Read them, page by page."""
    created: Record | None = None
    claim: Record | None = None
    finished: Record | None = None
    told: set[int] = set()  # epochs that have a receipt
    counted: set[int] = set()
    async for page in record_pages(store, row):
        for record in page:
            match record.kind:
                case Kind.created:
                    created = created or record
                case Kind.claimed:
                    if claim is not None and not note_of(record).get("woken"):
                        told.add(record.epoch)
                    claim = record
                case Kind.finished:
                    finished = record
                case Kind.noted if record.name == NoteKind.guarded:
                    told.add(record.epoch)  # also one that woke up from a wait
                case Kind.noted if record.name == NoteKind.resumed:
                    counted.add(record.epoch)
                case _:
                    pass
    return Landmarks(created, claim, finished, told <= counted)
