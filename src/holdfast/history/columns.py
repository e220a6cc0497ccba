"""The calls of a run, from its records, in columns: a picture of twenty thousand calls has to be small."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from holdfast.base.data import mutable
from holdfast.history.calls import NO_CALL, OWN_PREFIX, WAIT_PREFIX, kind_of
from holdfast.history.facts import error_text, note_of
from holdfast.journal.replay import branch_of
from holdfast.model import OUTCOMES, Kind, NoteKind, Record, RunRow, Status

KINDS: Final = ("step", "effect", "child", "sleep", "ask", "receive", "other")
STATUSES: Final = ("done", "failed", "running", "waiting", "in doubt", "cut off", "cancelled", "not stored")
_WAITS: Final = {"ask": "ask", "sleep": "sleep", "receive": "receive", "timeout": "sleep"}
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_STATUS_NUMBERS: Final = {status: number for number, status in enumerate(STATUSES)}
_VALUES: Final = frozenset({Kind.done, Kind.failed})
_ENDS: Final = {Kind.done: "done", Kind.failed: "failed", Kind.cancelled: "cancelled", Kind.unstored: "not stored"}


@mutable
class CallFacts:
    """One call, as the records tell it. Times in µs."""

    seq: int
    key: str
    name: str
    kind: str
    status: str
    began: int
    epoch: int
    branch: str
    occurrence: int  #: which of its name it is in its branch; 0: its key was given, and is in the extras
    changed: int = 0  #: the number of the last record that says something of it
    took: int = 0
    ended: int | None = None
    tokens: int = 0
    cost: float = 0.0
    extras: dict[str, Any] | None = None

    def add(self, name: str, value: Any) -> None:
        self.extras = {**(self.extras or {}), name: value}


class CallTable:
    """The calls of a run, record by record: who looks again adds what has come since."""

    def __init__(self) -> None:
        self.head = 0  #: the last record that it has
        self.calls: dict[str, CallFacts] = {}
        self.claims: list[dict[str, Any]] = []
        self._open: dict[str, CallFacts] = {}
        self._replayed: dict[int, int] = {}
        self._notes: dict[str, list[Record]] = {}  # of calls that have no record yet

    def add(self, records: Sequence[Record]) -> None:
        """Take the records that follow; of what calls returned nothing is needed."""
        calls, notes, usual = self.calls, self._notes, _VALUES  # looked up once: they may be hundreds of thousands
        for record in records:
            key = record.key
            if key and record.kind in usual and key not in calls and key not in notes:
                self._took(record)  # a step, of which this is all
                continue
            self.head = record.seq
            if record.kind == Kind.claimed:
                self.claims.append(_claim(record))
            elif record.kind == Kind.noted and record.name == NoteKind.resumed:
                self._replayed[record.epoch] = int(note_of(record).get("replayed", 0))
            if not record.key or record.kind in NO_CALL:
                continue
            call = self.calls.get(record.key)
            if record.kind == Kind.noted:
                if call is None:
                    self._notes.setdefault(record.key, []).append(record)
                else:
                    _take_note(call, record, note_of(record))
                continue
            if call is None:
                call = self._begun(record)
            _take(call, record, note_of(record) if record.kind not in _VALUES else {})
            if call.ended is None:
                self._open[call.key] = call
            else:
                self._open.pop(call.key, None)

    def _took(self, record: Record) -> None:
        call = self._begun(record)
        call.status, call.ended, call.took = _ENDS[Kind(record.kind)], record.at, record.took
        self.head = call.changed = record.seq

    def _begun(self, record: Record) -> CallFacts:
        began = record.at - record.took if record.kind in OUTCOMES else record.at
        key, name = record.key, record.name
        branch, number = branch_of(key), key.rpartition("#")[2]
        place = f"{branch}/" if branch else ""
        occurrence = int(number) if number.isdecimal() and key == f"{place}{name}#{number}" else 0
        call = CallFacts(record.seq, key, name, _kind(name), "running", began, record.epoch, branch, occurrence)
        self.calls[record.key] = call
        if not call.occurrence:
            call.add("key", call.key)
        for note in self._notes.pop(record.key, ()):
            _take_note(call, note, note_of(note))
        return call

    def columns(self, row: RunRow, *, is_lost: bool, after: int) -> dict[str, Any]:
        """What a timeline is drawn from: calls that changed after a record, each whole; times from the first claim on.

        What is open is told each time: how it stands changes without a record.
        """
        for call in self._open.values():
            call.status = _standing(call, row, is_lost=is_lost)
        zero = self.claims[0]["at"] if self.claims else row.created_at
        calls = [call for call in self.calls.values() if call.changed > after or call.ended is None]
        calls.sort(key=attrgetter("seq"))
        branches, names = _Words(), _Words()
        return {
            "head": self.head,
            "epoch": row.epoch,
            "claims": [{**each, "replayed": self._replayed.get(each["epoch"], 0)} for each in self.claims],
            "branches": branches.words,
            "names": names.words,
            "kinds": list(KINDS),
            "statuses": list(STATUSES),
            "calls": {
                "seq": [call.seq for call in calls],
                "branch": [branches.number(call.branch) for call in calls],
                "name": [names.number(call.name) for call in calls],
                "n": [call.occurrence for call in calls],
                "kind": [_KIND_NUMBERS[call.kind] for call in calls],
                "status": [_STATUS_NUMBERS[call.status] for call in calls],
                "began_us": [call.began - zero for call in calls],
                "took_us": [call.took for call in calls],
                "ended_us": [None if call.ended is None else call.ended - zero for call in calls],
                "epoch": [call.epoch for call in calls],
                "tokens": [call.tokens for call in calls],
                "cost": [call.cost for call in calls],
            },
            "extras": {str(call.seq): call.extras for call in calls if call.extras},
        }


def _take(call: CallFacts, record: Record, note: dict[str, Any]) -> None:
    call.changed, call.epoch = record.seq, record.epoch
    match record.kind:
        case Kind.intent:
            call.kind = "effect"
            call.add("idempotency_key", note.get("idempotency_key"))
        case Kind.child:
            call.kind = "child"
            call.add("child", note.get("run"))
        case Kind.attempt:
            failed = {
                "ended": record.at,
                "error": error_text(note.get("error"))[:500],
                "retry_at": note.get("retry_at"),
            }
            call.add("attempts", [*(call.extras or {}).get("attempts", []), failed])
        case Kind.settled:
            evidence = note.get("evidence") or {}
            said = {
                "at": record.at,
                "cause": evidence.get("cause"),
                "verdict": note.get("verdict"),
                "by": note.get("by"),
            }
            call.add("doubt", said)
        case kind if kind in OUTCOMES:
            call.status, call.ended, call.took = _ENDS[Kind(record.kind)], record.at, record.took
        case _:
            if record.kind == Kind.started and isinstance(note.get("due"), int):
                call.add("due", note["due"])


def _take_note(call: CallFacts, record: Record, note: dict[str, Any]) -> None:
    call.changed = max(call.changed, record.seq)
    if record.name == NoteKind.usage:
        call.tokens += int(note.get("input_tokens", 0)) + int(note.get("output_tokens", 0))
        call.cost += float(note.get("cost", 0.0))
    elif record.name == NoteKind.held:
        call.add("held", {"at": record.at, "cause": note.get("cause")})


def _standing(call: CallFacts, row: RunRow, *, is_lost: bool) -> str:
    """How a call stands that has not ended."""
    if call.kind == "effect" and "held" in (call.extras or {}):
        return "in doubt"
    if call.kind in ("sleep", "ask", "receive"):
        return "waiting"
    if row.status is Status.running and not is_lost and call.epoch == row.epoch:
        return "running"
    return "waiting" if call.kind == "child" else "cut off"


@functools.lru_cache(maxsize=1000)
def _kind(name: str) -> str:
    """What a call is as far as its name tells; its records tell whether it is an effect or a child."""
    found = kind_of(name, is_effect=False, is_child=False)
    return _WAITS.get(found, "other" if name.startswith((OWN_PREFIX, WAIT_PREFIX)) else found)


class _Words:
    """Texts that come again and again, each by its number."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        found = self._numbers.setdefault(word, len(self.words))
        if found == len(self.words):
            self.words.append(word)
        return found


def _claim(record: Record) -> dict[str, Any]:
    note = note_of(record)
    return {
        "epoch": record.epoch,
        "at": record.at,
        "worker": record.name,
        "lost": note.get("lost"),
        "proof": note.get("proof"),
        "last_seen": note.get("renewed"),
    }
