"""What a fork is made of: a run that is checked as a whole, and of which only what a fork takes is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.base.data import brisk
from holdfast.codec.fastjson import decode
from holdfast.errors import CorruptJournal, RunNotFound, StoreCorrupt
from holdfast.journal.blocks import source_in
from holdfast.journal.forks import ForkedPart, Obstacles, code_in, no_such_turn, part_of, point_of
from holdfast.journal.messages import CALLS
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import is_empty, refuse_empty
from holdfast.journal.trees import WORKSPACES, workspaces_in
from holdfast.journal.verification import check_in_pages
from holdfast.model import Kind, NoteKind, Record, RunId, RunRow, Status
from holdfast.model.budgets import BUDGET
from holdfast.store.contract import Store

#: Is shown each record: whether it counts for the fork's point, and whether it came after that.
See = Callable[[Record, bool, bool], None]


@brisk
class Original:
    """A run that is sound, and what a fork of it at a point takes."""

    row: RunRow
    part: ForkedPart
    created: Record
    last: Record  #: at the point
    code: str  #: the digest of what was executed then
    source: str | None  #: the file that it was last executed from
    binds: dict[str, Any]  #: which version its workspaces were at the point, and the limits that it had
    said: tuple[Record, ...]  #: its calls of threads up to the point


async def original_of(
    store: Store, run_id: RunId, *, at: int | None, turn: int | None, see: See = lambda *_: None
) -> Original:
    """Read a run in pages, and check all of it; raises what keeps it from being forked there."""
    row = await _row(store, run_id)
    try:
        return await _read(store, row, at=at, turn=turn, see=see)
    except (CorruptJournal, StoreCorrupt):
        now = await store.run(run_id)
        if now is not None and is_empty(now):  # while it was read
            refuse_empty(now)
        raise


async def _row(store: Store, run_id: RunId) -> RunRow:
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    if row.status is not Status.quarantined:
        refuse_empty(row)
    return row


async def _read(store: Store, row: RunRow, *, at: int | None, turn: int | None, see: See) -> Original:
    asked = point_of(row, at) if turn is None else await _head_of(store, row, turn)
    obstacles = Obstacles(asked)
    claims: list[Record] = []  # the last one

    def look(page: Sequence[Record]) -> None:
        obstacles.take(page)
        claims[:] = [r for r in page if r.kind in (Kind.created, Kind.claimed)][-1:] or claims

    await check_in_pages(store, row, look)
    point, in_the_way = obstacles.point()
    taking = await _Taking.of(store, row, point)
    async for page in record_pages(store, row):
        for record in page:
            is_counted = taking.counts(record)
            if record.seq <= point:
                taking.take(record, is_counted=is_counted)
            see(record, is_counted, record.seq > point)
    part = part_of(taking.counted, taking.turn, asked=asked, at=point, in_the_way=in_the_way)
    return taking.original(row, part, source=source_in(claims))


async def _head_of(store: Store, row: RunRow, turn: int) -> int:
    """The record that a turn begins with."""
    if isinstance(turn, bool) or not isinstance(turn, int) or not 1 <= turn <= row.turn:
        raise no_such_turn(row, turn)
    found = await store.checkpoints(row.id, turn=turn, limit=1)
    if not found:
        raise no_such_turn(row, turn)
    return found[0][0].seq


class _Taking:
    """What is kept of the records up to a point."""

    def __init__(self, point: int, turn: int, *, prologue: int, head: int) -> None:
        self._point = point
        self.turn = turn
        self._prologue = prologue  # the last record before the loop
        self._head = head  # of the turn
        self.counted: list[Record] = []
        self._first: Record | None = None
        self._last: Record | None = None
        self._claim: Record | None = None
        self._budget: Record | None = None
        self._workspaces: dict[str, Any] = {}
        self._said: list[Record] = []

    @classmethod
    async def of(cls, store: Store, row: RunRow, point: int) -> _Taking:
        (last,) = await store.records(row.id, after=point - 1, limit=1)
        heads = await store.checkpoints(row.id, turn=last.turn, limit=1) if last.turn else []
        if not heads or row.cut is None:
            return cls(point, last.turn, prologue=point, head=point)
        return cls(point, last.turn, prologue=row.cut.prologue, head=heads[0][0].seq)

    def counts(self, record: Record) -> bool:
        """Would a run that stood at the point be resumed from this one too?"""
        return record.seq <= self._prologue or self._head <= record.seq <= self._point

    def take(self, record: Record, *, is_counted: bool) -> None:
        """The next one."""
        self._first, self._last = self._first or record, record
        if is_counted:
            self.counted.append(record)
        if record.kind in (Kind.created, Kind.claimed):
            self._claim = record
        elif record.kind == Kind.noted and record.name == NoteKind.budget:
            self._budget = record
        elif record.kind == Kind.noted and record.name == NoteKind.workspace:
            self._workspaces |= workspaces_in([record])
        elif record.name.startswith(CALLS):
            self._said.append(record)

    def original(self, row: RunRow, part: ForkedPart, *, source: str | None) -> Original:
        """All of it."""
        assert self._first is not None
        assert self._last is not None
        binds: dict[str, Any] = {WORKSPACES: self._workspaces} if self._workspaces else {}
        if self._budget is not None:
            binds[BUDGET] = decode(self._budget.payload or "{}")["limit"]
        return Original(
            row=row,
            part=part,
            created=self._first,
            last=self._last,
            code="" if self._claim is None else code_in(self._claim),
            source=source,
            binds=binds,
            said=tuple(self._said),
        )
