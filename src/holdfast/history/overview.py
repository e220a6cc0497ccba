"""All that there is to show of one run, of one moment."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from holdfast.base.data import data
from holdfast.errors import HoldfastError
from holdfast.history.calls import CallInfo, calls_of
from holdfast.history.doubts import DoubtInfo, in_doubt_of
from holdfast.history.info import RunInfo, info_of
from holdfast.history.pages import receipts, timeline_pages
from holdfast.history.receipts import Receipt
from holdfast.history.timeline import Ahead, TimelineItem
from holdfast.history.values import ENDS_OF_OTHERS, plain_end, plain_note, plain_value
from holdfast.journal.blobs import stored_text
from holdfast.journal.blocks import source_in
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_empty
from holdfast.journal.verification import Verification, verify
from holdfast.model import Kind, Record, RunId, RunRow
from holdfast.store.contract import Store

#: Records whose text is a note of ours, not a value of the user's.
_OURS = frozenset({Kind.started, Kind.decided, Kind.attempt, Kind.settled, Kind.noted})


@data
class Overview:
    """A run: where it stands, what happened, and whether what is stored of it is whole."""

    info: RunInfo
    timeline: list[TimelineItem]
    left_out: int  #: how many items there are before the timeline
    following: int | None  #: the record that the next page of it is behind
    calls: list[CallInfo] | None  #: None: only a part was asked for
    receipts: list[Receipt]
    doubts: list[DoubtInfo]
    verification: Verification
    source: str | None  #: the file that it was last executed from
    given: str  #: its input, as JSON text
    result: str  #: as JSON text; empty if there is none
    gone: str  #: where what it did is, if not here

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        calls = {} if self.calls is None else {"calls": [call.as_dict() for call in self.calls]}
        return {
            "run": run_facts(self.info),
            "input": plain_value(self.given),
            "result": plain_value(self.result),
            "timeline": [item.as_dict() for item in self.timeline],
            **calls,
            "in_doubt": [doubt_facts(doubt) for doubt in self.doubts],
            "receipts": [receipt.as_dict() for receipt in self.receipts],
            "verification": self.verification.as_dict(),
            **({} if self.following is None else {"next": self.following}),
        }


@data
class Stretch:
    """Which part of a timeline is wanted."""

    after: int = 0
    limit: int | None = None
    last: int | None = None  #: the last so many, if there are more

    @property
    def is_all(self) -> bool:
        return self.after == 0 and self.limit is None


async def overview_of(store: Store, run_id: RunId, stretch: Stretch) -> Overview:
    """Read a run that is there, and verify it. Of one that is damaged, what can be read is shown."""
    verification = await verify(store, run_id)
    row = await store.run(run_id)
    assert row is not None
    known = _Known()
    async for page in record_pages(store, row):
        known.take(page)
    open_ = list(known.claims)
    if not row.status.is_final and known.ahead.calls:
        async for page in record_pages(store, row):
            open_ += [r for r in page if r.key in known.ahead.calls]
    timeline, left_out, following = await _timeline(store, row, stretch)
    is_ok = verification.is_ok
    return Overview(
        info_of(row, is_lost=row.owner is not None and row.owner in await store.dead_workers()),
        timeline,
        left_out,
        following,
        await _calls(store, row) if stretch.is_all and not left_out else None,
        await receipts(store, row),
        await _doubts(store, row, sorted(open_, key=lambda record: record.seq)) if is_ok else [],
        verification,
        source_in(known.claims),
        await _text_if_any(store, row.id, known.given) if is_ok else known.given or "",
        await _text_if_any(store, row.id, known.result) if is_ok else known.result or "",
        gone_text(row),
    )


class _Known:
    """What is kept of a journal that is read in pages."""

    def __init__(self) -> None:
        self.ahead = Ahead()
        self.claims: list[Record] = []  #: also the first record
        self.given: str | None = None
        self.result: str | None = None

    def take(self, records: list[Record]) -> None:
        self.ahead.take(records)
        for record in records:
            match record.kind:
                case Kind.created:
                    self.given = record.args
                    self.claims.append(record)
                case Kind.claimed | Kind.reopened:
                    self.claims.append(record)
                case Kind.finished if record.name == "done":
                    self.result = record.payload
                case _:
                    pass


async def _timeline(store: Store, row: RunRow, stretch: Stretch) -> tuple[list[TimelineItem], int, int | None]:
    """The part that is wanted, how many items come before it, and behind which record the next one begins."""
    found: deque[TimelineItem] = deque(maxlen=stretch.last if stretch.is_all else None)
    left_out = 0
    asked = await store.questions(run_id=row.id, only_open=False)
    async for items in timeline_pages(store, row, asked=asked):
        for item in items:
            if item.seq <= stretch.after or len(found) == found.maxlen:
                left_out += 1
            if stretch.limit is not None and len(found) == stretch.limit:
                return list(found), left_out, found[-1].seq if found else stretch.after
            if item.seq > stretch.after:
                found.append(item)
    return list(found), left_out, None


async def _calls(store: Store, row: RunRow) -> list[CallInfo]:
    return calls_of([record async for page in record_pages(store, row) for record in page])


async def _doubts(store: Store, row: RunRow, records: list[Record]) -> list[DoubtInfo]:
    found = in_doubt_of(row, records)
    return [replace(each, args=await _text_if_any(store, row.id, each.args)) for each in found]


async def _text_if_any(store: Store, run_id: RunId, stored: str | None) -> str:
    """A value's text, wherever it is kept; nothing if there is no value."""
    return await stored_text(store, run_id, stored) if stored is not None else ""


def gone_text(row: RunRow) -> str:
    """Where what it did is, if it is not here; else nothing."""
    try:
        refuse_empty(row)
    except HoldfastError as error:
        return str(error)
    return ""


def doubt_facts(doubt: DoubtInfo) -> dict[str, Any]:
    """An effect in doubt, for JSON."""
    return {**doubt.as_dict(), "args": plain_value(doubt.args)}


def run_facts(info: RunInfo) -> dict[str, Any]:
    """Where a run stands, for JSON: also the arguments of calls that its code does not make any more."""
    facts, reason = info.as_dict(), info.reason or {}
    recorded = [{**each, "args": plain_value(each.get("args"))} for each in reason.get("recorded", [])]
    return {**facts, "reason": {**reason, "recorded": recorded}} if recorded else facts


def record_facts(record: Record) -> dict[str, Any]:
    """A record as it is stored, for JSON."""
    facts = {name: getattr(record, name) for name in Record.__annotations__}
    read = plain_note if record.kind in _OURS else plain_value
    is_end = record.name in ENDS_OF_OTHERS and record.kind == Kind.done
    payload = plain_end(record.payload) if is_end else read(record.payload)
    return {**facts, "args": read(record.args), "payload": payload, "hash": record.hash.hex()}
