"""What has changed in a store since the last look.

The store tells which runs have moved: were created, taken, parked, ended or emptied. What runs do that somebody has is
seen by looking at those, which are few. Where nothing was committed since the last look, nothing is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final, Protocol

from holdfast.app import Holdfast
from holdfast.base.clock import monotonic_us
from holdfast.base.data import data
from holdfast.journal.tombstones import is_empty
from holdfast.model import RunRow
from holdfast.server.objects import run_object
from holdfast.server.problems import Problem
from holdfast.server.reads import Reads
from holdfast.store.contract import Store

_MOST: Final = 1_000  # owned runs, and open questions, that are compared
_KEPT: Final = 10_000
_WORKERS_US: Final = 1_000_000  # how often it is looked who lives: that changes without a commit


@data
class News:
    """Something that changed. What lasts gets a number, and is told again to who missed it."""

    event: str  #: run, question, gone, workers, progress, calls; or resync: it is not known what changed
    data: dict[str, Any]
    run_id: str | None = None
    is_lasting: bool = False


class Feed(Protocol):
    """Tells what changed."""

    @property
    def cursor(self) -> str:
        """Up to where it was looked: what came later is told by `since`, by another process too."""
        ...

    async def look(self, watched: Collection[str]) -> list[News]:
        """All since the last look, in order; the first one only remembers. `watched`: runs whose calls are told."""
        ...

    async def since(self, cursor: str) -> list[News] | None:
        """The runs that moved since a cursor, as they are now; None: that is not known."""
        ...

    async def state(self, run_id: str) -> News | None:
        """How a run stands, for who begins to watch it; None if there is no such run."""
        ...


class StoreFeed:
    """Asks the store of an app what has moved."""

    def __init__(self, app: Holdfast, reads: Reads) -> None:
        self._app = app
        self._reads = reads
        self._cursor: str | None = None
        self._commits: bytes | None = None
        self._seen: OrderedDict[str, tuple[object, ...]] = OrderedDict()  # of runs that were told: how they looked
        self._owned: dict[str, tuple[object, ...]] = {}
        self._questions: set[str] | None = None
        self._workers: list[tuple[str, bool]] | None = None
        self._looked_us = -_WORKERS_US
        self._heads: dict[str, int] = {}

    @property
    def _store(self) -> Store:
        return self._app._store

    @property
    def cursor(self) -> str:
        return self._cursor or ""

    async def look(self, watched: Collection[str]) -> list[News]:
        commits = self._store.surveys.commits()
        is_quiet = commits is not None and commits == self._commits
        news: list[News] = []
        if monotonic_us() - self._looked_us >= _WORKERS_US:
            self._looked_us = monotonic_us()
            news += await self._worked()
            is_quiet = is_quiet and not news
        if is_quiet and all(run_id in self._heads for run_id in watched):
            return []
        self._commits = commits
        news = [*await self._moved(), *await self._went_on(), *await self._asked(), *news]
        for run_id in watched:
            news += await self._calls(run_id)
        self._heads = {run_id: head for run_id, head in self._heads.items() if run_id in watched}
        return news

    async def since(self, cursor: str) -> list[News] | None:
        found = await self._store.surveys.moves(cursor)
        if not found.is_known:
            return None
        dead = await self._store.dead_workers()
        return [_news(row, is_lost=row.owner in dead) for row in found.rows]

    async def _moved(self) -> list[News]:
        is_first = self._cursor is None
        found = await self._store.surveys.moves(self._cursor)
        self._cursor = found.cursor
        if not found.is_known:
            return [News("resync", {})]
        if is_first or not found.rows:
            return []
        dead = await self._store.dead_workers()
        return [news for row in found.rows if (news := self._told(row, is_lost=row.owner in dead)) is not None]

    def _told(self, row: RunRow, *, is_lost: bool) -> News | None:
        """News of a run, unless it was told so before."""
        mark = (row.epoch, row.status, row.owner, row.mail if row.owner is None else 0, is_lost, row.digest)
        if self._seen.get(row.id) == mark:
            return None
        self._seen[row.id] = mark
        self._seen.move_to_end(row.id)
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return _news(row, is_lost=is_lost)

    async def _went_on(self) -> list[News]:
        """What runs did that somebody has: they make progress, do something else, or lose their process."""
        rows = await self._store.surveys.owned(limit=_MOST)
        dead = await self._store.dead_workers() if rows else {}
        before, self._owned = self._owned, {}
        news: list[News] = []
        for row in rows:
            is_lost = row.owner in dead
            look = (row.epoch, row.summary.get("now"), is_lost)
            self._owned[row.id] = (*look, row.head_seq)
            known = before.get(row.id)
            if known is None or known == self._owned[row.id]:
                continue
            if known[:3] != look:
                news.append(_news(row, is_lost=is_lost))
            else:
                news.append(_progress(row, run_object(row, is_lost=is_lost)))
        return news

    async def state(self, run_id: str) -> News | None:
        try:
            row = await self._reads.row(run_id)
        except Problem:
            return None
        return _progress(row, await self._reads.object(row))

    async def _calls(self, run_id: str) -> list[News]:
        """The tail of a run's calls; `after` is the head that it follows, so that a gap is noticed."""
        try:
            row = await self._reads.row(run_id)
        except Problem:
            return []
        before = self._heads.get(run_id)
        self._heads[run_id] = row.head_seq
        if before is None or before == row.head_seq:
            return []
        _, columns = await self._reads.columns(run_id, before)
        return [News("calls", {"id": run_id, "after": before, **columns}, run_id)]

    async def _asked(self) -> list[News]:
        found = await self._store.surveys.open_questions(limit=_MOST)
        known, self._questions = self._questions, set(found)
        if known is None:
            return []
        news = [
            News("question", {"id": each, "state": "open"}, run_id, is_lasting=True)
            for each, run_id in found.items()
            if each not in known
        ]
        for gone in known - found.keys():
            try:
                question = await self._reads.question(gone)
            except Problem:
                continue
            told = {"id": gone, "state": question.state.value}
            news.append(News("question", told, question.run_id, is_lasting=True))
        return news

    async def _worked(self) -> list[News]:
        found = await self._reads.workers()
        marks = sorted((each["id"], each["alive"]) for each in found)
        known, self._workers = self._workers, marks
        return [News("workers", {"items": found})] if known is not None and known != marks else []


def _news(row: RunRow, *, is_lost: bool) -> News:
    if is_empty(row):
        return News("gone", {"id": row.id}, row.id, is_lasting=True)
    return News("run", run_object(row, is_lost=is_lost), row.id, is_lasting=True)


def _progress(row: RunRow, shown: dict[str, Any]) -> News:
    told = {"id": row.id, "epoch": row.epoch, "head": row.head_seq, "now": shown["now"]}
    return News("progress", {**told, "progress": shown["progress"]}, row.id)
