"""The read side: what a run's row and records tell a person. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from holdfast.base.data import data
from holdfast.codec.plain import plain_of
from holdfast.journal.blobs import blob_in
from holdfast.journal.replay import Replay, is_left_over
from holdfast.journal.tombstones import told
from holdfast.journal.verification import quarantine_reason
from holdfast.model import OUTCOMES, SCHEDULED_AT, TAGS, Kind, Record, RunRow, Status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OWN_PREFIX = "hf."
_WAIT_PREFIX = "hf:"  #: waits for something from outside, and what comes from there
_PROOFS = {
    "lock": "its lock is free",
    "session": "its session is gone",
    "boot": "the machine was restarted",
    "lease": "its lease ran out",
    "released": "it gave the run back",
}
_VERDICTS = {
    "landed": "it happened",
    "not_landed": "it did not happen",
    "retry": "done again",
    "undo": "undone",
    "fail": "failed",
    "failed": "failed",
}


def as_time(at_us: int) -> datetime:
    """A stored time, in UTC."""
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:  # damaged; `verify` is what reports it
        return (datetime.max if at_us > 0 else datetime.min).replace(tzinfo=UTC)


class _Facts:
    """Gives the dataclasses here `as_dict()`."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Status):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return value


@data
class RunInfo(_Facts):
    """Where a run stands.

    Example: `print((await run.info()).now)`
    """

    id: str
    thread_id: str
    token: str
    agent: str
    status: Status
    now: str  #: what it is doing or waiting for, in a few words
    parent_id: str | None
    created_at: datetime
    updated_at: datetime
    steps: int
    effects: int
    input_tokens: int
    output_tokens: int
    cost: float
    reason: Mapping[str, Any] | None
    epoch: int  #: how often the run was taken up
    records: int
    is_lost: bool  #: the process that had it died; any worker may take it up
    progress: Mapping[str, Any] | None
    tags: Mapping[str, str]  #: that it was started with
    scheduled_at: datetime | None  #: the time of the schedule that it is the run of


@data
class Receipt(_Facts):
    """What one resume did: taken from the journal, answered by it, and saved by that.

    Example: `for receipt in await run.receipts(): print(receipt.replayed, receipt.saved_cost)`
    """

    at: datetime
    worker: str
    lost: str | None  #: the worker that died, or None if the run had been given back
    proof: str  #: how that is known
    unrecorded: int  #: how many took it up in between and died before they had recorded anything
    down_s: float
    replayed: int
    executed: int
    in_doubt: list[dict[str, Any]]  #: {"key", "verdict", "by"}, settled by this execution
    saved_s: float
    saved_input_tokens: int
    saved_output_tokens: int
    saved_cost: float
    code_changed: bool


@data
class TimelineItem(_Facts):
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


@data
class DoubtInfo(_Facts):
    """An effect that may or may not have happened."""

    key: str
    name: str
    attempt: int
    args: str | None
    idempotency_key: str
    since: int  #: when its intent was recorded, µs
    cause: str


# the run as a whole


def info_of(row: RunRow, *, is_lost: bool = False) -> RunInfo:
    """The row, for people."""
    summary = row.summary
    progress = summary.get("progress")
    is_lost = is_lost and not row.status.is_final
    return RunInfo(
        id=row.id,
        thread_id=row.thread_id,
        token=f"{row.id}@{row.thread_id}",
        agent=row.agent,
        status=row.status,
        now=_now(row, progress, is_lost),
        parent_id=row.parent_id,
        created_at=as_time(row.created_at),
        updated_at=as_time(row.updated_at),
        steps=int(summary.get("steps", 0)),
        effects=int(summary.get("effects", 0)),
        input_tokens=int(summary.get("input_tokens", 0)),
        output_tokens=int(summary.get("output_tokens", 0)),
        cost=float(summary.get("cost", 0.0)),
        reason=row.reason,
        epoch=row.epoch,
        records=row.head_seq,
        is_lost=is_lost,
        progress=progress,
        tags=dict(summary.get(TAGS, {})),
        scheduled_at=None if (due := summary.get(SCHEDULED_AT)) is None else as_time(due),
    )


def _now(row: RunRow, progress: Mapping[str, Any] | None, is_lost: bool) -> str:
    reason = row.reason or {}
    if is_lost:
        return "cut off, recoverable"
    if gone := told(row):
        return gone
    match row.status:
        case Status.in_doubt:
            doubts = [w for w in reason.get("waits", []) if w["kind"] == "doubt"]
            return ", ".join(f"{w['key']} ({w.get('cause', 'unknown')})" for w in doubts)
        case Status.blocked:
            asked = f": {reason['asked']}" if reason.get("asked") else ""
            return f"{reason.get('why', 'unknown')}{asked}"
        case Status.quarantined:
            return quarantine_reason(row)
        case Status.waiting | Status.sleeping | Status.paused:
            return str(reason.get("detail") or reason.get("why") or "")
        case Status.queued if reason.get("why"):
            return str(reason["why"])
        case Status.running | Status.queued if progress is not None:
            return progress_text(progress)
        case _:
            return str(row.summary.get("now", ""))


def progress_text(progress: Mapping[str, Any]) -> str:
    """`3/10 reading pages`"""
    total = progress.get("total")
    share = f"{_number(progress.get('done', 0))}{'' if total is None else '/' + _number(total)}"
    return f"{share} {progress.get('note', '')}".strip()


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


# receipts


def receipts_of(row: RunRow, records: Sequence[Record]) -> list[Receipt]:
    """One for each time the run was taken up again; that it woke up from a wait is no such time."""
    claims = [r for r in records if r.kind == Kind.claimed]
    return [
        _receipt(records, claim, code_changed=note_of(claim).get("code") != note_of(former).get("code"))
        for former, claim in pairwise(claims)
        if not note_of(claim).get("woken")
    ]


def _receipt(records: Sequence[Record], claim: Record, *, code_changed: bool) -> Receipt:
    note = note_of(claim)
    superseded = _superseded(r for r in records if r.epoch <= claim.epoch)
    before = [r for r in records if r.seq < claim.seq]
    answered: dict[str, Record] = {
        r.key: r for r in before if _is_answer(r) and r.seq not in superseded and r.generation == claim.generation
    }
    here = [r for r in records if r.epoch == claim.epoch and r.seq > claim.seq]
    used = [
        note_of(r) for r in before if r.kind == Kind.noted and r.name == "usage" and (not r.key or r.key in answered)
    ]
    settled = [(r.key, note_of(r)) for r in here if r.kind == Kind.settled]
    counted = next((note_of(r) for r in here if r.kind == Kind.noted and r.name == "resumed"), None)
    if counted is None:  # it had no answers to give, or died before it could sum up: what it can have been spared
        told = {key for key, said in settled if said.get("verdict") == "landed"}
        counted = {
            "replayed": len(answered),
            "executed": sum(_is_answer(r) and r.key not in told and not r.name.startswith("hf:") for r in here),
            "saved_us": sum(r.took for r in answered.values()),
            "input_tokens": sum(int(u.get("input_tokens", 0)) for u in used),
            "output_tokens": sum(int(u.get("output_tokens", 0)) for u in used),
            "cost": sum(float(u.get("cost", 0.0)) for u in used),
        }
    return Receipt(
        at=as_time(claim.at),
        worker=claim.name,
        lost=note.get("lost"),
        proof=str(note.get("proof", "")),
        unrecorded=_unrecorded(before, claim),
        down_s=_down_s(before[-1], claim) if before else 0.0,
        replayed=int(counted["replayed"]),
        executed=int(counted["executed"]),
        in_doubt=[{"key": key, "verdict": said.get("verdict"), "by": said.get("by")} for key, said in settled],
        saved_s=counted["saved_us"] / 1e6,
        saved_input_tokens=int(counted["input_tokens"]),
        saved_output_tokens=int(counted["output_tokens"]),
        saved_cost=float(counted["cost"]),
        code_changed=code_changed,
    )


def _is_answer(record: Record) -> bool:
    """Is it the outcome of a call that the agent's author wrote, and did the agent get to see it?"""
    return record.kind in OUTCOMES and record.kind != Kind.cancelled and not record.name.startswith(_OWN_PREFIX)


def _superseded(records: Iterator[Record]) -> set[int]:
    return {seq for r in records if r.kind == Kind.reopened for seq in note_of(r).get("superseded", [])}


def note_of(record: Record) -> dict[str, Any]:
    """A record's payload, where it is an object; damaged ones are shown as empty, `verify` is what reports them."""
    return _object(record.payload)


def _object(text: str | None) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text or "{}")
        return found if isinstance(found, dict) else {}
    return {}


# effects in doubt


def in_doubt_of(row: RunRow, records: Sequence[Record]) -> list[DoubtInfo]:
    """The effects that a person must settle: somebody was asked, or the code no longer makes the call."""
    if row.status.is_final or row.status is Status.queued:  # a verdict may have woken it; whoever takes it up asks anew
        return []
    found = []
    for entry in Replay(records, generation=row.generation, code="").entries.values():
        intent = entry.intent
        if intent is None or not (entry.is_in_doubt or is_left_over(row, entry)):
            continue
        key = str(note_of(intent).get("idempotency_key", ""))
        cause = _cause(note_of(entry.held)) if entry.held is not None else "code change"
        found.append(DoubtInfo(entry.key, entry.name, intent.attempt, entry.args, key, intent.at, cause))
    return found


def _cause(effect: Mapping[str, Any]) -> str:
    at = f" ({effect['at']})" if effect.get("at") else ""
    parts = [str(effect.get("cause", "unknown"))]
    parts += [f"{effect['error']}{at}"] if effect.get("error") else []
    parts += [f"no proof unless it is declared: raises=({effect['raised']},)"] if effect.get("raised") else []
    parts += [str(effect["refused"])] if effect.get("refused") else []
    if effect.get("verify_error"):
        parts.append(f"verify failed: {effect['verify_error']}")
    elif effect.get("verify"):
        parts.append(f"verify said {effect['verify']}")
    return "; ".join(parts)


# the timeline


def timeline_of(row: RunRow, records: Sequence[Record], *, is_lost: bool = False) -> list[TimelineItem]:
    """What happened, in order: a call stands where it ended, one that is open where it began."""
    superseded = _superseded(iter(records))
    calls: dict[str, _Call] = {}
    items: list[TimelineItem] = []
    claims: list[Record] = []
    used: dict[str, list[dict[str, Any]]] = {}  # a note may come after the outcome of the call it belongs to
    for record in records:
        if record.kind == Kind.noted and record.name == "usage":
            used.setdefault(record.key, []).append(note_of(record))
    for record in records:
        match record.kind:
            case Kind.created:
                items.append(_item(record, "started", "started", detail=_version(record)))
            case Kind.claimed:
                if claims and not note_of(record).get("woken"):
                    items.append(_outage(records, claims[-1], record))
                elif claims and note_of(record).get("code") != note_of(claims[-1]).get("code"):
                    items.append(_item(record, "note", "code changed", detail=f"woken up by {record.name}"))
                claims.append(record)
            case Kind.noted if record.name == "unstable":
                items.append(_item(record, "note", "unstable", detail="called with other arguments than recorded"))
            case Kind.noted if record.name not in ("usage", "progress", "resumed", "held"):
                status, detail = _note_text(record)
                items.append(_item(record, "note", status, detail=detail))
            case Kind.patched:
                items.append(_item(record, "patched", "patched"))
            case Kind.reopened:
                detail = _join(f"by {record.name}", note_of(record).get("note"))
                items.append(_item(record, "retried", "retried", detail=detail))
            case Kind.finished:
                items.append(_item(record, "finished", record.name, detail=_ending(record)))
            case Kind.noted:
                pass
            case kind if kind in OUTCOMES:
                call = calls.pop(record.key, None) or _Call(used.get(record.key, []))
                items.append(call.ended(record, is_superseded=record.seq in superseded))
            case _:
                calls.setdefault(record.key, _Call(used.get(record.key, []))).take(record)
    is_live = row.status is Status.running and not is_lost
    open_items = [c.open(is_live=is_live and c.epoch == row.epoch) for c in calls.values() if c.first is not None]
    return sorted([*items, *open_items], key=lambda item: item.seq)


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
        self.is_effect = self.is_settled = False

    def take(self, record: Record) -> None:
        self.first = self.first or record
        if self.epoch and record.epoch > self.epoch and record.kind == Kind.started and not _wait_kind(record):
            self.cut_off += 1
        self.epoch = record.epoch
        match record.kind:
            case Kind.attempt:
                self.failures.append(_error_text(note_of(record).get("error")))
                self.intent = None
            case Kind.intent:
                self.intent = record
                self.is_effect, self.is_settled = True, False
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
        if record.name.startswith(_WAIT_PREFIX):
            return _wait_kind(record)
        if record.name.startswith(_OWN_PREFIX):
            return record.name.removeprefix(_OWN_PREFIX)
        if self.child:
            return "child"
        return "effect" if self.is_effect else "step"

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
        if _wait_kind(record):
            parts.append(_wait_text(self.first, record))
        elif record.name == "hf.timeout":
            status = "expired" if note_of(record).get("expired") else "done"
        elif record.kind == Kind.failed:
            parts.append(_error_text(note_of(record)))
        elif record.kind == Kind.unstored:
            status = "not stored"
            parts.append(str(note_of(record).get("error", "")))
        elif record.payload is not None and blob_in(record.payload) is not None:
            parts.append(f"result of {record.payload.partition(':')[2]} bytes")
        if is_superseded:
            parts.append("done again by a retry")
        took_s = None if record.name.startswith(_OWN_PREFIX) and record.name != "hf.timeout" else record.took / 1e6
        if _wait_kind(record):  # from its begin, in whatever process that was
            took_s = None if self.first is None else max(0, record.at - self.first.at) / 1e6
        return _item(record, self._kind(record), status, took_s=took_s, detail=_join(*parts))

    def open(self, *, is_live: bool) -> TimelineItem:
        assert self.first is not None
        if _wait_kind(self.first):
            return _item(self.first, self._kind(self.first), "waiting", detail=_wait_text(self.first, None))
        if is_live:
            status = "running"
        elif self.intent is not None:
            status = "settled" if self.is_settled else "in doubt"
        elif self.failures and self.first.kind != Kind.started:
            status = "to be retried"
        else:
            status = "cut off"
        return _item(self.intent or self.first, self._kind(self.first), status, detail=_join(*self._story()))


def _wait_kind(record: Record) -> str:
    """sleep, ask, receive, interrupt, cancel; empty for any other call."""
    return record.name[len(_WAIT_PREFIX) :].partition(".")[0] if record.name.startswith(_WAIT_PREFIX) else ""


def _wait_text(first: Record | None, end: Record | None) -> str:
    """What was asked, and how it ended; for one that is open, until when it waits."""
    asked = _object(first.args).get("prompt") if first is not None else None
    question = f"“{asked}”" if asked else ""
    if end is None:
        due = note_of(first).get("due") if first is not None else None
        return _join(question, f"until {as_time(due).isoformat(timespec='seconds')}" if due else "")
    note = note_of(end)
    if _wait_kind(end) == "interrupt":
        if end.kind == Kind.failed:
            return _error_text(_object(note.get("reply")))
        return f"by {note['by']}: {_short(note.get('value'))}" if "by" in note else _short(note.get("reply"))
    if end.kind == Kind.failed:
        return _join(question, _error_text(note))
    value = f"→ {_short(end.payload)}" if end.kind == Kind.done and end.payload not in (None, "null") else ""
    return f"{question} {value}".strip()


def _note_text(record: Record) -> tuple[str, str]:
    """The status and the words of a note."""
    note = note_of(record)
    if record.name in ("paused", "cancel"):
        status = "told to stop" if record.name == "cancel" else "paused" if note.get("on") else "resumed"
        return status, ": ".join(str(part) for part in (f"by {note.get('by')}", note.get("note")) if part)
    if record.name == "unheeded":  # it was being cancelled already
        return ("pause" if note.get("on") else "resume") + " came too late", f"by {note.get('by')}"
    if record.name == "not cancelled":
        return record.name, "the code had cancelled this call, and did not now"
    if record.name == "moved":
        return record.name, f"to {note.get('to')}, taken from a worker ({note.get('seized') or 'which may be alive'})"
    if record.name in ("own timer", "outside"):
        return record.name, f"{note.get('why')}: {', '.join(note.get('where') or note.get('branches') or [])}"
    return record.name, str(note["problem"]) if record.name == "refused" else _short(record.payload)


def _item(record: Record, kind: str, status: str, *, took_s: float | None = None, detail: str = "") -> TimelineItem:
    return TimelineItem(
        as_time(record.at), record.seq, record.key, record.name, kind, status, took_s, record.attempt, detail
    )


def _down_s(before: Record, claim: Record) -> float:
    """For how long nobody worked at the run: since its worker was last heard of, or else since the last record."""
    renewed = note_of(claim).get("renewed")
    since = max(before.at, renewed) if isinstance(renewed, int) else before.at
    return max(0.0, (claim.at - since) / 1e6)


def _outage(records: Sequence[Record], former: Record, claim: Record) -> TimelineItem:
    note = note_of(claim)
    before = records[claim.seq - 2] if claim.seq >= 2 and claim.seq - 2 < len(records) else former
    down_s = _down_s(before, claim)
    changed = "code changed" if note.get("code") != note_of(former).get("code") else ""
    if note.get("lost"):
        proof = _PROOFS.get(str(note.get("proof")), note.get("proof"))
        silent = unrecorded_text(_unrecorded([r for r in records if r.seq < claim.seq], claim))
        detail = _join(f"{note['lost']} lost ({proof})", f"resumed by {claim.name}", silent, changed)
        return _item(claim, "outage", "process lost", took_s=down_s, detail=detail)
    asked = _join(f"asked by {note['by']}", note.get("note")) if note.get("by") else ""
    return _item(claim, "resumed", "resumed", took_s=down_s, detail=_join(f"by {claim.name}", asked, changed))


def _unrecorded(before: Sequence[Record], claim: Record) -> int:
    """Every claim raises the epoch: one that no record has was that of a process which died before its first one."""
    if not note_of(claim).get("lost") or not before:
        return 0
    return max(0, claim.epoch - before[-1].epoch - 1)


def unrecorded_text(lives: int) -> str:
    """Empty if there were none."""
    if not lives:
        return ""
    return f"{lives} process{'es' if lives > 1 else ''} died before recording anything"


def settlement_text(note: Mapping[str, Any]) -> str:
    """`in doubt (crash) → landed, says verify`"""
    cause = (note.get("evidence") or {}).get("cause", "unknown")
    verdict, by = str(note.get("verdict")), str(note.get("by"))
    given = note.get("given") or {}
    who = {"person": given.get("actor") or "a person", "on_doubt": "its rule"}.get(by, by)
    if verdict == "refused":
        return f"in doubt ({cause}) → the result that {who} gave does not fit"
    said = f"in doubt ({cause}) → {_VERDICTS.get(verdict, verdict)}, says {who}"
    return f"{said}: {given['note']}" if given.get("note") else said


def _version(record: Record) -> str:
    note = note_of(record)
    version = f"version {note['version']}" if note.get("version") else ""
    return _join(f"code {str(note.get('code', ''))[:8]}", version)


def _ending(record: Record) -> str:
    return _error_text(note_of(record)) if record.name == Status.failed else ""


def _error_text(tree: Any) -> str:
    if not isinstance(tree, dict) or "type" not in tree:
        return ""
    message = str(tree.get("message", ""))
    return f"{tree['type']}: {message}" if message else str(tree["type"])


def _usage_text(used: Sequence[Mapping[str, Any]]) -> str:
    asked, answered = (sum(int(u.get(each, 0)) for u in used) for each in ("input_tokens", "output_tokens"))
    tokens = f"{asked}→{answered} tok"
    cost = sum(float(u.get("cost", 0.0)) for u in used)
    return f"{tokens} ${cost:.4g}" if cost else tokens


def _short(payload: str | None) -> str:
    text = payload or ""
    if '{"$' in text:  # tags are for the codec, not for people
        with suppress(ValueError, RecursionError):
            text = json.dumps(plain_of(json.loads(text)), ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _join(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)
