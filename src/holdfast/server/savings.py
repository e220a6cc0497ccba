"""How often processes were lost in the last day, and what resuming saved: of the newest runs, and unfinished ones."""

from __future__ import annotations

from typing import Any, Final

from holdfast.app import Holdfast
from holdfast.base.clock import as_time, monotonic_us, now_us
from holdfast.errors import HoldfastError
from holdfast.history.pages import receipts
from holdfast.history.receipts import Receipt
from holdfast.model import FINAL, RunFilter, RunId, RunRow, Status
from holdfast.server.objects import stamp
from holdfast.store.contract import Store

_DAY_US: Final = 86_400_000_000
_NEWEST: Final = 200
_RECORDS: Final = 20_000  #: that are read for one count; what is left out, the next one may reach
_GOOD_US: Final = 15_000_000


class Savings:
    """Counts receipts in an app's store. Those of a run are read once each time that it was taken up, and stopped."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._known: dict[tuple[RunId, int, bool], list[Receipt]] = {}
        self._told: dict[str, Any] = {}
        self._until = 0

    @property
    def _store(self) -> Store:
        return self._app._store

    async def last_day(self) -> dict[str, Any]:
        """The sums; `is_all`: nothing was left out to keep the look short."""
        if monotonic_us() < self._until:
            return self._told
        since = now_us() - _DAY_US
        newest = await self._store.runs(RunFilter(since=since, limit=_NEWEST))
        open_ = await self._store.runs(RunFilter(status=frozenset(set(Status) - FINAL), limit=_NEWEST))
        rows = {row.id: row for row in [*newest, *open_] if row.epoch > 1 and row.updated_at >= since}
        found, is_whole = await self._receipts(list(rows.values()))
        told = [each for each in found if each.at >= as_time(since)]
        self._until = monotonic_us() + _GOOD_US
        self._told = {
            "since": stamp(since),
            "outages": sum(each.lost is not None for each in told),
            "saved_s": sum(each.saved_s for each in told),
            "saved_tokens": sum(each.saved_input_tokens + each.saved_output_tokens for each in told),
            "saved_cost": sum(each.saved_cost for each in told),
            "is_all": is_whole and len(newest) < _NEWEST and len(open_) < _NEWEST,
        }
        return self._told

    async def _receipts(self, rows: list[RunRow]) -> tuple[list[Receipt], bool]:
        known: dict[tuple[RunId, int, bool], list[Receipt]] = {}
        left, is_whole = _RECORDS, True
        for row in rows:
            mark = (row.id, row.epoch, row.status is Status.running)
            if mark in self._known:
                known[mark] = self._known[mark]
            elif row.head_seq > left:
                is_whole = False
            else:
                left -= row.head_seq
                try:
                    known[mark] = await receipts(self._store, row)
                except HoldfastError:  # damaged: it is told as such elsewhere
                    known[mark] = []
        self._known = known
        return [each for found in known.values() for each in found], is_whole
