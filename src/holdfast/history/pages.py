"""A long journal, read in pages: what that takes in memory grows with what is open, not with what has happened.

The journal is read twice: once for what has to be known before anything can be told (which calls are open, which
outcomes count no longer), and once to tell it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.history.facts import note_of
from holdfast.history.lookup import is_lost, row_of
from holdfast.history.receipts import Counting, Receipt
from holdfast.history.timeline import Ahead, Timeline, TimelineItem, with_deciders
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import Kind, NoteKind, QuestionRow, RunId, RunRow
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


async def receipts(store: Store, row: RunRow) -> list[Receipt]:
    """What each resume saved. Of one who died before it could sum up that is counted call by call."""
    counting = Counting(counts_answers=row.turn > 0 or not await _is_counted(store, row))
    async for page in record_pages(store, row):
        counting.take(page)
    return counting.receipts()


async def receipts_of_run(store: Store, run_id: RunId) -> list[Receipt]:
    """The same; RunNotFound, RunPruned or RunMoved if what it did is not here."""
    row = await row_of(store, run_id)
    refuse_empty(row)
    return await receipts(store, row)


async def _is_counted(store: Store, row: RunRow) -> bool:
    """Has each execution after the first recorded how much the journal answered?"""
    uncounted: set[int] = set()
    is_first = True
    async for page in record_pages(store, row):
        for record in page:
            if record.kind == Kind.claimed:
                if not is_first and not note_of(record).get("woken"):
                    uncounted.add(record.epoch)
                is_first = False
            elif record.kind == Kind.noted and record.name == NoteKind.resumed:
                uncounted.discard(record.epoch)
    return not uncounted
