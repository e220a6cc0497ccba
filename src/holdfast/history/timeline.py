"""The timeline: what happened to a run, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.history.calls import NO_CALL, OWN_PREFIX, kind_of, wait_kind
from holdfast.history.doubts import settlement_text
from holdfast.history.facts import Facts, error_text, joined, note_of, object_in, short, superseded_in
from holdfast.history.forks import origin_text
from holdfast.history.receipts import downtime_s, unrecorded, unrecorded_text
from holdfast.history.values import ENDS_OF_OTHERS, ends_of_others
from holdfast.history.words import proof_text
from holdfast.journal.blobs import blob_in
from holdfast.model import OUTCOMES, Kind, NoteKind, QuestionRow, Record, RunRow, Status
from holdfast.model.diagnoses import change_text, read_change
from holdfast.model.notes import OwnWait
from holdfast.model.plans import PLAN

#: Notes that say something of a call, or are told elsewhere.
_UNTOLD = frozenset({NoteKind.usage, NoteKind.progress, NoteKind.resumed, NoteKind.held, NoteKind.stream})
#: Records that say nothing about a call.


@data
class TimelineItem(Facts):
    """One thing that happened to a run: a call, an outage, a settlement, a note."""

    at: datetime
    seq: int
    key: str
    name: str
    kind: str  #: of a call (step, effect, child, ask, receive, sleep, …), or started, outage, note, finished, …
    status: str
    took_s: float | None
    attempt: int
    detail: str


def timeline_of(row: RunRow, records: Sequence[Record], *, is_lost: bool = False) -> list[TimelineItem]:
    """What happened, in order: a call stands where it ended, one that is open where it began."""
    ahead = Ahead()
    ahead.take(records)
    return Timeline(row, ahead, is_lost=is_lost).told(records)


class Ahead:
    """What has to be known of a whole journal before the first of it can be told."""

    def __init__(self) -> None:
        self.superseded: set[int] = set()
        self.used: dict[str, list[dict[str, Any]]] = {}  #: a note may come after the outcome of its call
        self.calls: dict[str, _Call] = {}  #: those that are open at the end

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        self.superseded |= superseded_in(records)
        for record in records:
            if record.kind == Kind.noted:
                if record.name == NoteKind.usage:
                    self.used.setdefault(record.key, []).append(note_of(record))
            elif record.kind in OUTCOMES:
                self.calls.pop(record.key, None)
            elif record.kind not in NO_CALL:
                self.calls.setdefault(record.key, _Call([])).take(record)


class Timeline:
    """Tells a journal, page by page."""

    def __init__(self, row: RunRow, ahead: Ahead, *, is_lost: bool) -> None:
        self._ahead = ahead
        self._calls: dict[str, _Call] = {}
        self._claim: Record | None = None
        self._before: Record | None = None
        is_live = row.status is Status.running and not is_lost
        for key, call in ahead.calls.items():
            call.usage = ahead.used.get(key, [])
        found = [c.open(is_live=is_live and c.epoch == row.epoch) for c in ahead.calls.values() if c.first is not None]
        self._open = sorted(found, key=lambda item: -item.seq)  # the next one last

    def told(self, records: Sequence[Record]) -> list[TimelineItem]:
        """What the next records tell."""
        items: list[TimelineItem] = []
        for record in records:
            if (item := self._item(record)) is not None:
                items.append(item)
            self._before = record
        last = records[-1].seq if records else 0
        while self._open and self._open[-1].seq <= last:
            items.append(self._open.pop())
        return sorted(items, key=lambda item: item.seq)

    def _item(self, record: Record) -> TimelineItem | None:
        match record.kind:
            case Kind.created:
                return _item(record, "started", "started", detail=_version(record))
            case Kind.claimed:
                return self._claimed(record)
            case Kind.noted if record.name == NoteKind.unstable:
                return _item(record, "note", "unstable", detail="called with other arguments than recorded")
            case Kind.noted if record.name not in _UNTOLD:
                status, detail = _note_text(record)
                return _item(record, "note", status, detail=detail)
            case Kind.patched:
                return _item(record, "patched", "patched")
            case Kind.checkpoint:
                return _item(record, "turn", "began")
            case Kind.reopened:
                detail = joined(f"by {record.name}", note_of(record).get("note"))
                return _item(record, "retried", "retried", detail=detail)
            case Kind.finished:
                return _item(record, "finished", record.name, detail=_ending(record))
            case Kind.noted:
                return None
            case kind if kind in OUTCOMES:
                call = self._calls.pop(record.key, None) or self._call(record.key)
                return call.ended(record, is_superseded=record.seq in self._ahead.superseded)
            case _:
                self._calls.setdefault(record.key, self._call(record.key)).take(record)
                return None

    def _call(self, key: str) -> _Call:
        return _Call(self._ahead.used.get(key, []))

    def _claimed(self, record: Record) -> TimelineItem | None:
        former, self._claim = self._claim, record
        if former is None:
            return None
        if not note_of(record).get("woken"):
            return _outage(self._before or former, former, record)
        if note_of(record).get("code") != note_of(former).get("code"):
            return _item(record, "note", "code changed", detail=f"woken up by {record.name}")
        return None


def with_deciders(timeline: Sequence[TimelineItem], asked: Sequence[QuestionRow]) -> list[TimelineItem]:
    """The timeline with who answered which question: the journal has the answer, the question has the name."""
    decided = {row.key: row for row in asked if row.decided_by}

    def told(item: TimelineItem) -> TimelineItem:
        row = decided.get(item.key) if item.kind == "ask" and item.status == "done" else None
        if row is None:
            return item
        return replace(item, detail=f"{item.detail}, by {row.decided_by}" + (f": {row.note}" if row.note else ""))

    return [told(item) for item in timeline]


class _Call:
    """A call whose end was not seen yet."""

    def __init__(self, usage: list[dict[str, Any]]) -> None:
        self.first: Record | None = None
        self.intent: Record | None = None
        self.epoch = 0
        self.cut_off = 0
        self.failures: list[str] = []
        self.settlements: list[Record] = []
        self.usage = usage
        self.child = ""
        self.begins = ""  # what it was given
        self.is_effect = self.is_settled = False

    def take(self, record: Record) -> None:
        self.first = self.first or record
        if self.epoch and record.epoch > self.epoch and record.kind == Kind.started and not wait_kind(record.name):
            self.cut_off += 1
        self.epoch = record.epoch
        match record.kind:
            case Kind.attempt:
                self.failures.append(error_text(note_of(record).get("error")))
                self.intent = None
            case Kind.intent:
                self.intent = record
                self.is_effect, self.is_settled = True, False
            case Kind.decided:
                self.begins = str(note_of(record).get("begins", ""))
            case Kind.child:
                self.child = str(note_of(record).get("run", ""))
            case Kind.settled:
                self.settlements.append(record)
                self.is_settled = note_of(record).get("verdict") != "refused"
                if note_of(record).get("verdict") in ("not_landed", "retry"):
                    self.intent = None
            case _:
                pass

    def _kind(self, record: Record) -> str:
        return kind_of(record.name, is_effect=self.is_effect, is_child=bool(self.child))

    def _story(self) -> list[str]:
        parts = [f"child {self.child}"] if self.child else []
        if self.cut_off:
            parts.append(f"cut off {self.cut_off}×, done again")
        if self.failures:
            times = "one attempt" if len(self.failures) == 1 else f"{len(self.failures)} attempts"
            parts.append(f"{times} failed ({self.failures[-1]})")
        parts += [settlement_text(note_of(each)) for each in self.settlements]
        if self.usage:
            parts.append(_usage_text(self.usage))
        return parts

    def ended(self, record: Record, *, is_superseded: bool) -> TimelineItem:
        parts, status = self._story(), str(record.kind)
        if wait_kind(record.name):
            parts.append(_wait_text(self.first, record, self.begins))
        elif record.name == "hf.timeout":
            status = "expired" if note_of(record).get("expired") else "done"
        elif record.kind == Kind.failed:
            parts.append(error_text(note_of(record)))
        elif record.kind == Kind.unstored:
            status = "not stored"
            parts.append(str(note_of(record).get("error", "")))
        elif record.payload is not None and blob_in(record.payload) is not None:
            parts.append(f"result of {record.payload.partition(':')[2]} bytes")
        if is_superseded:
            parts.append("done again by a retry")
        took_s = None if record.name.startswith(OWN_PREFIX) and record.name != "hf.timeout" else record.took / 1e6
        if wait_kind(record.name):  # from its begin, in whatever process that was
            took_s = None if self.first is None else max(0, record.at - self.first.at) / 1e6
        return _item(record, self._kind(record), status, took_s=took_s, detail=joined(*parts))

    def open(self, *, is_live: bool) -> TimelineItem:
        assert self.first is not None
        if wait_kind(self.first.name):
            return _item(self.first, self._kind(self.first), "waiting", detail=_wait_text(self.first, None))
        if is_live:
            status = "running"
        elif self.intent is not None:
            status = "settled" if self.is_settled else "in doubt"
        elif self.failures and self.first.kind != Kind.started:
            status = "to be retried"
        else:
            status = "cut off"
        return _item(self.intent or self.first, self._kind(self.first), status, detail=joined(*self._story()))


def _wait_text(first: Record | None, end: Record | None, begins: str = "") -> str:
    """What was asked, and how it ended; for one that is open, until when it waits."""
    asked = object_in(first.args).get("prompt") if first is not None else None
    question = f"“{asked}”" if asked else ""
    if end is None:
        due = note_of(first).get("due") if first is not None else None
        return joined(question, f"until {as_time(due).isoformat(timespec='seconds')}" if due else "")
    note = note_of(end)
    if wait_kind(end.name) == "guard" and end.kind == Kind.done:
        return f"{note.get('name')}: {short(str(note.get('text')))}"
    if end.name == PLAN:
        return _plan_text(note)
    if wait_kind(end.name) == "interrupt":
        if end.kind == Kind.failed:
            return error_text(object_in(note.get("reply")))
        return f"by {note['by']}: {short(note.get('value'))}" if "by" in note else short(note.get("reply"))
    if end.kind == Kind.failed:
        return joined(question, error_text(note))
    if end.name in ENDS_OF_OTHERS and end.kind == Kind.done and blob_in(end.payload) is None:
        *_, status, ended_with = ends_of_others(end.payload) or ("", "")
        is_value = status == Status.done and ended_with != "null"
        return f"→ {short(ended_with)}" if is_value else joined(f"→ {status}", error_text(object_in(ended_with)))
    value = ""
    if end.kind == Kind.done and end.payload not in (None, "null"):
        size = (end.payload or "").rpartition(":")[2]
        value = f"→ {short(end.payload)}" if blob_in(end.payload) is None else f"→ {begins}… ({size} bytes)"
    return f"{question} {value}".strip()


def _plan_text(note: Mapping[str, Any]) -> str:
    own = note.get("op") or {}
    what = joined(own.get("op"), own.get("id"), own.get("text") or own.get("note"))
    people = [f"{len(each.get('ops', ()))} by {each.get('by')}" for each in note.get("took", ())]
    return joined(what, *people)


def _note_text(record: Record) -> tuple[str, str]:
    """The status and the words of a note."""
    note = note_of(record)
    act = ": ".join(str(part) for part in (f"by {note.get('by')}", note.get("note")) if part)
    match NoteKind.of(record.name):
        case NoteKind.cancel:
            return "told to stop", act
        case NoteKind.paused:
            return "paused" if note.get("on") else "resumed", act
        case NoteKind.unheeded:  # it was being cancelled already
            return ("pause" if note.get("on") else "resume") + " came too late", f"by {note.get('by')}"
        case NoteKind.not_cancelled:
            return record.name, "the code had cancelled this call, and did not now"
        case NoteKind.moved:
            seized = note.get("seized") or "which may be alive"
            return record.name, f"to {note.get('to')}, taken from a worker ({seized})"
        case NoteKind.repaired:
            return record.name, joined(act, f"not what was written: {', '.join(note.get('found', ()))}")
        case NoteKind.own_timer | NoteKind.outside:
            own = OwnWait.of(note)
            return record.name, f"{own.why}: {', '.join(own.where or own.branches)}"
        case NoteKind.artifact | NoteKind.workspace:
            about = note.get("ref") or f"{note.get('size'):,} bytes" if record.name == NoteKind.artifact else ""
            return record.name, joined(f"{note.get('name')} version {note.get('version')}", about)
        case NoteKind.refused:
            return record.name, str(note["problem"])
        case NoteKind.budget:
            limits = ", ".join(f"{value:g} {name}" for name, value in (note.get("limit") or {}).items())
            return record.name, joined(limits, act)
        case NoteKind.guarded:
            accepted = note.get("accepted") or {}
            said = [change_text(read_change(each)) for each in note.get("changes", [])]
            return "changed outside", joined(*said, f"accepted by {accepted['by']}" if accepted else "")
        case _:
            return record.name, short(record.payload)


def _item(record: Record, kind: str, status: str, *, took_s: float | None = None, detail: str = "") -> TimelineItem:
    return TimelineItem(
        as_time(record.at), record.seq, record.key, record.name, kind, status, took_s, record.attempt, detail
    )


def _outage(before: Record, former: Record, claim: Record) -> TimelineItem:
    note = note_of(claim)
    down_s = downtime_s(before, claim)
    changed = "code changed" if note.get("code") != note_of(former).get("code") else ""
    if note.get("lost"):
        proof = proof_text(str(note.get("proof")))
        silent = unrecorded_text(unrecorded(before, claim))
        detail = joined(f"{note['lost']} lost ({proof})", f"resumed by {claim.name}", silent, changed)
        return _item(claim, "outage", "process lost", took_s=down_s, detail=detail)
    asked = joined(f"asked by {note['by']}", note.get("note")) if note.get("by") else ""
    return _item(claim, "resumed", "resumed", took_s=down_s, detail=joined(f"by {claim.name}", asked, changed))


def _version(record: Record) -> str:
    note = note_of(record)
    version = f"version {note['version']}" if note.get("version") else ""
    return joined(f"code {str(note.get('code', ''))[:8]}", version, origin_text(record))


def _ending(record: Record) -> str:
    return error_text(note_of(record)) if record.name == Status.failed else ""


def _usage_text(used: Sequence[Mapping[str, Any]]) -> str:
    asked, answered = (sum(int(u.get(each, 0)) for u in used) for each in ("input_tokens", "output_tokens"))
    tokens = f"{asked}→{answered} tok"
    cost = sum(float(u.get("cost", 0.0)) for u in used)
    return f"{tokens} ${cost:.4g}" if cost else tokens
