"""A store at one moment: what is under way, what has just ended, who works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.base.clock import as_time, now_us
from holdfast.base.data import data
from holdfast.history.info import RunInfo, info_of
from holdfast.history.waiting import needs_you
from holdfast.model import FINAL, UNFINISHED, RunFilter, RunId, RunRow, Status
from holdfast.store.contract import Store

_OPEN = 500  #: unfinished runs that are looked at
_ENDED = 20  #: runs that ended, at most
_RECENT_US = 10 * 60 * 1_000_000
_ORDER = (Status.running, Status.queued, Status.sleeping, Status.waiting, Status.paused)


@data
class Snapshot:
    """A store at one moment."""

    at: datetime
    open: list[RunInfo]
    ended: list[RunInfo]
    is_cut: bool  #: there are more open runs than these
    workers: int
    queues: Mapping[str, int]  #: how many runs are queued in each
    questions: int

    @property
    def runs(self) -> list[RunInfo]:
        return [*self.open, *self.ended]


def in_order(infos: Iterable[RunInfo]) -> list[RunInfo]:
    """Those that need a person, then those that execute, then the others; within each the newest first."""
    ranks = {status: rank for rank, status in enumerate(_ORDER, start=1)}
    return sorted(infos, key=lambda i: (0 if needs_you(i) else ranks.get(i.status, 9), -i.created_at.timestamp(), i.id))


@dataclass(slots=True)
class Watcher:
    """Reads the store again and again; remembers what was open, since a run that ended is not found by its age."""

    store: Store
    _open: set[RunId] = field(default_factory=set)
    _ended: dict[RunId, RunRow] = field(default_factory=dict)

    async def look(self) -> Snapshot:
        """How it is now."""
        store, now = self.store, now_us()
        listed = await store.runs(RunFilter(status=UNFINISHED, limit=_OPEN + 1))
        is_cut, listed = len(listed) > _OPEN, listed[:_OPEN]
        dead = await store.dead_workers()
        workers = await store.workers()
        questions = await store.questions(limit=100)
        for row in await store.runs(RunFilter(status=FINAL, limit=_ENDED)):
            self._ended[row.id] = row
        open_now = {row.id for row in listed}
        if not is_cut:
            for run_id in self._open - open_now - self._ended.keys():
                row_now = await store.run(run_id)
                if row_now is not None and row_now.status.is_final:
                    self._ended[run_id] = row_now
        self._open = open_now
        recent = sorted(
            (r for r in self._ended.values() if r.updated_at > now - _RECENT_US and r.id not in open_now),
            key=lambda r: (r.updated_at, r.id),
            reverse=True,
        )[:_ENDED]
        self._ended = {r.id: r for r in recent}
        return Snapshot(
            at=as_time(now),
            open=in_order(info_of(row, is_lost=row.owner in dead) for row in listed),
            ended=[info_of(row) for row in recent],
            is_cut=is_cut,
            workers=sum(worker.id not in dead for worker in workers),
            queues=dict(Counter(row.queue for row in listed if row.status is Status.queued).most_common()),
            questions=len(questions),
        )
