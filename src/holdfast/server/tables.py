"""The calls of the runs that somebody looks at, kept from look to look: a page that is open costs its tail."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from holdfast.base.data import mutable
from holdfast.history.columns import CallTable
from holdfast.model import RunId, RunRow
from holdfast.store.contract import Store

_RUNS: Final = 32
_CALLS: Final = 200_000
_MANY: Final = 2_000  # records, from which on another thread puts them together


@mutable
class _Kept:
    nonce: str
    epoch: int
    table: CallTable


class Tables:
    """The last ones that were asked for."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RunId, _Kept] = OrderedDict()
        self._adding = asyncio.Lock()

    async def columns(
        self, store: Store, run_id: RunId, *, after: int, dead: frozenset[str]
    ) -> tuple[RunRow, dict[str, Any]] | None:
        """The calls of a run that changed after a record; None: there is no such run."""
        async with self._adding:
            kept = self._kept.get(run_id)
            found = await store.surveys.outline(run_id, after=0 if kept is None else kept.table.head)
            if found is None:
                return None
            row = found.row
            is_same = kept is not None and kept.nonce == row.nonce and kept.epoch <= row.epoch
            if kept is None or not is_same or row.head_seq < kept.table.head:
                if kept is not None:
                    found = await store.surveys.outline(run_id)
                    if found is None:
                        return None
                kept = _Kept(row.nonce, row.epoch, CallTable())
            kept.epoch = row.epoch
            self._keep(run_id, kept)
            is_lost = row.owner is not None and row.owner in dead
            if len(found.records) < _MANY and len(kept.table.calls) < 10 * _MANY:
                kept.table.add(found.records)
                return row, kept.table.columns(row, is_lost=is_lost, after=after)
            await asyncio.to_thread(kept.table.add, found.records)
            return row, await asyncio.to_thread(kept.table.columns, row, is_lost=is_lost, after=after)

    def _keep(self, run_id: RunId, kept: _Kept) -> None:
        self._kept[run_id] = kept
        self._kept.move_to_end(run_id)
        while len(self._kept) > 1 and (
            len(self._kept) > _RUNS or sum(len(each.table.calls) for each in self._kept.values()) > _CALLS
        ):
            self._kept.popitem(last=False)
