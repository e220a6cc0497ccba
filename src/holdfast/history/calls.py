"""The calls of a run, one by one: how often each was tried, how it ended, and who executed it.

A call is what the journal has under one key, in one turn. The timeline tells what happened in order; here is the
same by call, as data. A step that took no time has one record, its outcome: when it began is told by how long it took.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.history.doubts import settlement_text
from holdfast.history.facts import Facts, error_text, note_of, superseded_in
from holdfast.journal.replay import branch_of
from holdfast.model import OUTCOMES, Kind, NoteKind, Record

OWN_PREFIX = "hf."
WAIT_PREFIX = "hf:"  #: waits for something from outside, and what comes from there
_NOTES = frozenset({NoteKind.usage, NoteKind.held})
NO_CALL = frozenset({Kind.created, Kind.claimed, Kind.patched, Kind.finished, Kind.reopened, Kind.checkpoint})


class AttemptEnd(StrEnum):
    """What became of an attempt."""

    done = "done"
    failed = "failed"
    cancelled = "cancelled"
    unstored = "unstored"  #: it happened, its result could not be stored
    cut_off = "cut_off"  #: its process was lost; it was made again
    in_doubt = "in_doubt"  #: nobody could tell whether it happened; the settlement says what was ruled
    open = "open"  #: its end is not recorded


@data
class CallAttempt(Facts):
    """One time that a call was tried."""

    number: int
    epoch: int  #: of the execution in which it began, or of its one record
    began_at: datetime
    ended_at: datetime | None
    took_s: float | None  #: of the body alone; of a wait, since it began
    end: AttemptEnd
    error: str  #: `ValueError: no such page`
    retry_at: datetime | None  #: when the next one may begin
    is_postponed: bool  #: it asked to be tried later, and is no failure


@data
class Settlement(Facts):
    """How an attempt in doubt was settled."""

    at: datetime
    epoch: int
    attempt: int
    verdict: str
    by: str  #: verify, person or on_doubt
    actor: str | None  #: the person
    note: str
    evidence: Mapping[str, Any]  #: what was known then
    text: str  #: the same in words


@data
class Usage(Facts):
    """What a call said that it used, all attempts together."""

    models: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    cost: float


@data
class Answers(Facts):
    """The executions after its outcome, which had it to give; whether their code came to the call is not recorded."""

    first_epoch: int
    last_epoch: int
    times: int


@data
class CallInfo(Facts):
    """One call of a run."""

    key: str
    name: str
    kind: str  #: step, effect, child, ask, receive, sleep, …
    branch: str  #: empty for the main line
    turn: int
    began_at: datetime
    ended_at: datetime | None
    outcome: Kind | None  #: done, failed, unstored or cancelled; None: it is open
    error: str  #: that it ended with
    is_open: bool
    held: Mapping[str, Any] | None  #: what is known of the attempt that a person was asked about, and has not settled
    attempts: tuple[CallAttempt, ...]
    settlements: tuple[Settlement, ...]
    child: str | None  #: the id of its run
    question: str | None  #: its id
    due_at: datetime | None  #: until when it waits
    usage: Usage | None
    executed_in: tuple[int, ...]  #: the epochs that recorded something of it
    answered: Answers | None
    seqs: tuple[int, ...]  #: of its records


def calls_of(records: Sequence[Record]) -> list[CallInfo]:
    """The calls of a run, in the order in which they were first recorded.

    Example: `slow = [call for call in calls_of(records) if len(call.attempts) > 1]`
    """
    superseded = superseded_in(records)
    reopened = [record.epoch for record in records if record.kind == Kind.reopened]
    calls: dict[str, _Call] = {}
    for record in records:
        if record.kind in NO_CALL or not record.key or (record.kind == Kind.noted and record.name not in _NOTES):
            continue
        call = calls.setdefault(record.key, _Call())
        if record.kind == Kind.noted:
            call.note(record)
        else:
            call.take(record, is_superseded=record.seq in superseded, reopened=reopened)
    claims = [record.epoch for record in records if record.kind == Kind.claimed]
    return [call.info(claims) for call in calls.values() if call.records]


def kind_of(name: str, *, is_effect: bool, is_child: bool) -> str:
    """What a call is: a verb of ours by its name, else child, effect or step."""
    if name.startswith(WAIT_PREFIX):
        return wait_kind(name)
    if name.startswith(OWN_PREFIX):
        return name.removeprefix(OWN_PREFIX)
    return "child" if is_child else "effect" if is_effect else "step"


def wait_kind(name: str) -> str:
    """sleep, ask, receive, interrupt, cancel; empty for any other call."""
    return name[len(WAIT_PREFIX) :].partition(".")[0] if name.startswith(WAIT_PREFIX) else ""


class _Call:
    """A call, record by record."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.attempts: list[CallAttempt] = []
        self.settlements: list[Settlement] = []
        self.usage: list[dict[str, Any]] = []
        self.outcome: Record | None = None
        self.given: list[tuple[int, int | None]] = []  # after which epoch its outcome was there, and before which
        self.begun: Record | None = None  # of the attempt whose end was not seen
        self.held: Mapping[str, Any] | None = None
        self.child: str | None = None
        self.question: str | None = None
        self.due: int | None = None
        self.postponed = 0  # attempts until then that asked to be tried later
        self.is_effect = False

    def note(self, record: Record) -> None:
        if record.name == NoteKind.usage:
            self.usage.append(note_of(record))
        elif self.records:
            self.held = note_of(record)

    def take(self, record: Record, *, is_superseded: bool, reopened: Sequence[int]) -> None:
        self.records.append(record)
        if record.kind in OUTCOMES:
            self._end(record, is_superseded=is_superseded, reopened=reopened)
            return
        if self.outcome is not None and self.outcome.kind == Kind.cancelled:
            self.outcome = None  # it was made again
        note = note_of(record)
        match record.kind:
            case Kind.started:
                self._begin(record)
                self.due, self.question = _number(note.get("due")), _text(note.get("question")) or self.question
            case Kind.intent:
                self._begin(record)
                self.is_effect, self.held = True, None
            case Kind.child:
                self._begin(record)
                self.child = _text(note.get("run"))
            case Kind.attempt:
                postponed = _number(note.get("postponed")) or 0
                is_postponed, self.postponed = postponed > self.postponed, postponed
                retry_at = _number(note.get("retry_at"))
                self._add(record, AttemptEnd.failed, note.get("error"), retry_at=retry_at, is_postponed=is_postponed)
            case Kind.settled:
                self._settle(record, note)
            case _:
                pass

    def _begin(self, record: Record) -> None:
        former = self.begun
        if former is not None and (wait_kind(record.name) or former.epoch == record.epoch):
            return  # the same wait, in another process; or a step that is both begun and intended
        if former is not None:
            self._close(former, AttemptEnd.cut_off)
        self.begun = record

    def _settle(self, record: Record, note: Mapping[str, Any]) -> None:
        given = note.get("given") or {}
        settled = Settlement(
            at=as_time(record.at),
            epoch=record.epoch,
            attempt=record.attempt,
            verdict=str(note.get("verdict", "")),
            by=str(note.get("by", "")),
            actor=_text(given.get("actor")),
            note=str(given.get("note") or ""),
            evidence=dict(note.get("evidence") or {}),
            text=settlement_text(note),
        )
        self.settlements.append(settled)
        if settled.verdict == "refused":
            return
        self.held = None
        if settled.verdict in ("not_landed", "retry") and self.begun is not None:
            self._close(self.begun, AttemptEnd.in_doubt)
            self.begun = None

    def _end(self, record: Record, *, is_superseded: bool, reopened: Sequence[int]) -> None:
        error = note_of(record) if record.kind == Kind.failed else None
        self._add(record, AttemptEnd(record.kind), error)
        self.held = None
        place = bisect_right(reopened, record.epoch)
        until = reopened[place] if is_superseded and place < len(reopened) else None
        if record.kind != Kind.cancelled:
            self.given.append((record.epoch, until))
        self.outcome = None if is_superseded else record
        if is_superseded:  # attempts go on counting: those before the run was opened again are no failures any more
            self.postponed = record.attempt

    def _add(
        self, record: Record, end: AttemptEnd, error: Any, *, retry_at: int | None = None, is_postponed: bool = False
    ) -> None:
        """An attempt that this record ends."""
        begun = self.begun
        first = self.records[0] if wait_kind(record.name) else begun
        began_us = record.at - record.took if first is None else first.at
        took_us = record.at - began_us if wait_kind(record.name) else record.took
        text = str(note_of(record).get("error", "")) if end is AttemptEnd.unstored else error_text(error)
        self.attempts.append(
            CallAttempt(
                number=record.attempt,
                epoch=record.epoch if begun is None else begun.epoch,
                began_at=as_time(began_us),
                ended_at=as_time(record.at),
                took_s=max(0, took_us) / 1e6,
                end=end,
                error=text,
                retry_at=None if retry_at is None else as_time(retry_at),
                is_postponed=is_postponed,
            )
        )
        self.begun = None

    def _close(self, begun: Record, end: AttemptEnd) -> None:
        """An attempt whose end nobody recorded."""
        began_at = as_time(begun.at)
        self.attempts.append(CallAttempt(begun.attempt, begun.epoch, began_at, None, None, end, "", None, False))

    def info(self, claims: Sequence[int]) -> CallInfo:
        first, outcome = self.records[0], self.outcome
        if self.begun is not None:
            self._close(self.begun, AttemptEnd.open)
        ended = self.attempts[-1] if outcome is not None else None
        return CallInfo(
            key=first.key,
            name=first.name,
            kind=kind_of(first.name, is_effect=self.is_effect, is_child=self.child is not None),
            branch=branch_of(first.key),
            turn=first.turn,
            began_at=self.attempts[0].began_at if self.attempts else as_time(first.at),
            ended_at=None if outcome is None else as_time(outcome.at),
            outcome=None if outcome is None else Kind(outcome.kind),
            error="" if ended is None else ended.error,
            is_open=outcome is None,
            held=self.held,
            attempts=tuple(self.attempts),
            settlements=tuple(self.settlements),
            child=self.child,
            question=self.question,
            due_at=None if self.due is None else as_time(self.due),
            usage=self._used(),
            executed_in=tuple(sorted({record.epoch for record in self.records})),
            answered=self._answered(claims),
            seqs=tuple(record.seq for record in self.records),
        )

    def _used(self) -> Usage | None:
        if not self.usage:
            return None
        models = dict.fromkeys(str(used["model"]) for used in self.usage if used.get("model"))
        asked, answered = (sum(int(u.get(each, 0)) for u in self.usage) for each in ("input_tokens", "output_tokens"))
        return Usage(tuple(models), asked, answered, sum(float(u.get("cost", 0.0)) for u in self.usage))

    def _answered(self, claims: Sequence[int]) -> Answers | None:
        epochs: list[int] = []
        for after, before in self.given:
            stop = len(claims) if before is None else bisect_left(claims, before)
            epochs += claims[bisect_right(claims, after) : stop]
        return Answers(epochs[0], epochs[-1], len(epochs)) if epochs else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    return str(value) if value else None
