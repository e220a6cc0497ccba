"""The runs that a filter fits, however many: page after page, newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from holdfast.model import RunFilter, RunRow
from holdfast.store.contract import RunStore

_AT_ONCE: Final = 500
_EVERY: Final = RunFilter()


async def every_run(store: RunStore, which: RunFilter = _EVERY) -> AsyncIterator[RunRow]:
    """All that fit, whatever the filter's `limit` is. One that cannot be read is among them, as quarantined."""
    async for page in pages_of_runs(store, which):
        for row in page:
            yield row


async def pages_of_runs(
    store: RunStore, which: RunFilter = _EVERY, *, at_once: int = _AT_ONCE
) -> AsyncIterator[list[RunRow]]:
    """The same in pages, of which none is empty. They go on where the last one ended, even if that run is gone."""
    which = replace(which, limit=at_once)
    while page := await store.runs(which):
        yield page
        which = replace(which, before_id=page[-1].id, before_at=page[-1].created_at)
