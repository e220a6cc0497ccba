"""A journal in pages: what that takes in memory does not grow with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.journal.blocks import source_in
from holdfast.model import Kind, Record, RunRow
from holdfast.store.contract import Store

_PAGE: Final = 2000


async def record_pages(
    store: Store, row: RunRow, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[list[Record]]:
    """The records of a run behind one and up to another; None: the last one that its row knows of."""
    last = row.head_seq if upto is None else min(upto, row.head_seq)
    while after < last:
        page = await store.records(row.id, after=after, limit=min(_PAGE, last - after))
        if not page:
            return
        yield page
        after = page[-1].seq


async def source_of(store: Store, row: RunRow) -> str | None:
    """The file that a run was last executed from (see `source_in`)."""
    last: list[Record] = []
    async for page in record_pages(store, row):
        last = [r for r in page if r.kind in (Kind.claimed, Kind.created)][-1:] or last
    return source_in(last)
