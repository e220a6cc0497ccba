"""Forks: which part of a journal another run can begin with, and what that run's journal is.

A fork is made of the calls that had ended by a point. What was open then is not copied: it is done anew. That is safe
for a step or a wait, and not for what acts outward: an effect or child that is open may have happened, and a saga that
is open has something to take back. So the point moves back to the last one where none of them is open.

A long run is read in pages: `Obstacles` finds the point, `part_of` is told which records count for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from holdfast.base.data import brisk, data
from holdfast.base.hints import hint
from holdfast.base.numbers import Numbers
from holdfast.codec.fastjson import decode, encode
from holdfast.errors import UsageError
from holdfast.journal.chain import Draft, draft, first_hash, linked
from holdfast.journal.checkpoints import Past, checkpoint_in
from holdfast.journal.replay import Replay
from holdfast.model import OUTCOMES, Cut, Kind, NoteKind, Record, RunId, RunRow

FORKED: Final = "forked"  #: in what a `created` record says: where the run comes from
_NONCES: Final = "~"  #: in the nonce of a fork, before those of others
_SAGA = "hf.saga"
_CANCEL = "hf:cancel"
#: Of the calls that are ours, those whose result may be replaced.
_CHANGEABLE = ("hf:ask", "hf:receive")
#: Notes that say what a call used, and what it put out.
_TAKEN_NOTES = frozenset({NoteKind.usage, NoteKind.artifact, NoteKind.workspace})
#: Records that a fork does not take: they say who executed the original, and how that ended.
_NOT_TAKEN = frozenset({Kind.created, Kind.claimed, Kind.finished, Kind.reopened})


class Obstacle(StrEnum):
    """What is open at a point, so that no fork can begin there."""

    effect = "effect"
    child = "child"
    saga = "saga"
    cancel = "cancel"


@data
class InTheWay:
    """Something that was open at a point: from one record on, and up to another one."""

    what: Obstacle
    key: str
    name: str
    seq: int  #: of the record that opened it
    end: int | None  #: of the record that ended it; None: it is open still


@brisk
class ForkedPart:
    """What of a journal a fork takes."""

    asked: int  #: the point that was asked for
    at: int  #: the last one before it where nothing is in the way
    in_the_way: tuple[InTheWay, ...]  #: what moved the point
    records: tuple[Record, ...]  #: that are copied, as the original has them
    ended: tuple[str, ...]  #: keys of the calls that they are about, in the order in which they ended
    open: tuple[Record, ...]  #: the first records of calls that were open, and are not copied
    consumed_mail: frozenset[int]  #: what the copied part has taken from the mailbox
    turn: int = 0  #: that the fork begins in

    @property
    def checkpoint(self) -> Record | None:
        """At the head of that turn."""
        return checkpoint_in(self.records, self.turn) if self.turn else None


@brisk
class Origin:
    """What a fork knows of the run that it was made from."""

    run_id: str
    at: int
    mail: int  #: the number of the last mail that the original had; its own begins after that


def point_of(row: RunRow, at: int | None) -> int:
    """The record that a fork is asked for at (None: the last one); UsageError if there is no such record."""
    asked = row.head_seq if at is None else at
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= row.head_seq:
        raise UsageError(f"Run {row.id} has the records 1 to {row.head_seq}; it cannot be forked at {at!r}.")
    return asked


def no_such_turn(row: RunRow, turn: object) -> UsageError:
    """There is no such turn, or it is not here: a fork has none before its own."""
    has = f"has the turns 1 to {row.turn}" if row.turn else "has no turns"
    return UsageError(f"Run {row.id} {has}; it cannot be forked at turn {turn!r}.")


def part_of(
    counted: Sequence[Record], turn: int, *, asked: int, at: int, in_the_way: tuple[InTheWay, ...]
) -> ForkedPart:
    """What a fork takes of the records that count for a point: what a run that stood there would be resumed from.

    That is all of them up to the point; of a run with turns, the prologue, and the turn of the point from its
    checkpoint on.
    """
    replay = Replay(counted, turn=turn, code="")
    ended = {entry.key for entry in replay.entries.values() if entry.outcome is not None}
    gone = _superseded(counted)
    taken = tuple(r for r in counted if r.seq not in gone and _is_taken(r, ended))
    order = {r.key: r.seq for r in taken if r.kind in OUTCOMES}
    return ForkedPart(
        asked=asked,
        at=at,
        in_the_way=in_the_way,
        records=taken,
        ended=tuple(sorted(order, key=lambda key: order[key])),
        open=tuple(entry.first for entry in replay.entries.values() if entry.outcome is None),
        consumed_mail=frozenset(_consumed(taken, turn)),
        turn=turn,
    )


def _is_taken(record: Record, ended: set[str]) -> bool:
    if record.kind in _NOT_TAKEN or record.key == _CANCEL:
        return False
    if record.kind == Kind.noted:
        return record.name in _TAKEN_NOTES and (not record.key or record.key in ended)
    return record.kind in (Kind.patched, Kind.checkpoint) or record.key in ended


def _superseded(records: Sequence[Record]) -> set[int]:
    return {seq for r in records if r.kind == Kind.reopened for seq in _said(r).get("superseded", ())}


def _consumed(records: Sequence[Record], turn: int) -> set[int]:
    consumed = Replay(records, turn=turn, code="").consumed_mail
    if (head := checkpoint_in(records, turn) if turn else None) is not None:
        past = Past.read(head)
        consumed |= set(range(1, past.mail + 1)) - set(past.unread)
    return consumed


def _said(record: Record) -> dict[str, Any]:
    said = json.loads(record.payload or "{}")
    return said if isinstance(said, dict) else {}


# the point


class Obstacles:
    """What was open when, of a journal that is read in pages: as much of it as a fork at a point has to know of.

    Once nothing is open, what was open before is in nobody's way any more: no later point moves back behind that.
    """

    def __init__(self, asked: int) -> None:
        self._asked = asked
        self._open: dict[str, tuple[Obstacle, str, int]] = {}
        self._found: list[InTheWay] = []
        self._sagas: dict[str, str] = {}  # the block that an effect is undone by, by the effect's key
        self._verdicts: dict[str, str] = {}  # the last one on each effect
        self._failed: dict[int, tuple[str, str]] = {}  # effects that failed by a verdict: key and name, by the record

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        for record in records:
            self._take(record)
            if not self._open and record.seq <= self._asked:
                self._found.clear()

    def point(self) -> tuple[int, tuple[InTheWay, ...]]:
        """The last record up to the one asked for at which nothing is open, and what was in the way of a later one."""
        still = [InTheWay(what, key, name, seq, None) for key, (what, name, seq) in self._open.items()]
        return _quiet_point([*self._found, *still], self._asked)

    def _begin(self, what: Obstacle, key: str, *, name: str, seq: int) -> None:
        self._open.setdefault(key, (what, name, seq))

    def _end(self, key: str, seq: int) -> None:
        begun = self._open.pop(key, None)
        if begun is not None and begun[2] <= self._asked:
            self._found.append(InTheWay(begun[0], key, begun[1], begun[2], seq))

    def _take(self, record: Record) -> None:
        key, seq = record.key, record.seq
        match record.kind:
            case Kind.intent:
                self._begin(Obstacle.effect, key, name=record.name, seq=seq)
                if saga := _said(record).get("saga"):
                    self._sagas[key] = str(saga)
            case Kind.child:
                self._begin(Obstacle.child, key, name=record.name, seq=seq)
            case Kind.settled:
                self._verdicts[key] = str(_said(record).get("verdict"))
            case Kind.noted if record.name == NoteKind.cancel:
                self._begin(Obstacle.cancel, _CANCEL, name=record.name, seq=seq)
            case Kind.reopened:
                self._end(_CANCEL, seq)
                for gone in _said(record).get("superseded", ()):
                    if gone in self._failed:  # it may have happened, and is to be settled again
                        failed, name = self._failed[gone]
                        self._begin(Obstacle.effect, failed, name=name, seq=seq)
            case kind if kind in OUTCOMES:
                self._take_outcome(record)
            case _:
                pass

    def _take_outcome(self, record: Record) -> None:
        key, seq = record.key, record.seq
        self._end(key, seq)
        is_done = record.kind in (Kind.done, Kind.unstored)
        verdict = self._verdicts.get(key)
        if key in self._sagas and (is_done or verdict in ("fail", "retry")):
            self._begin(Obstacle.saga, self._sagas[key], name=_SAGA, seq=seq)
        if record.name == _SAGA and (outer := _said(record).get("outer")):
            self._begin(Obstacle.saga, str(outer), name=_SAGA, seq=seq)  # it has taken over what the inner one did
        if is_done:
            self._sagas.pop(key, None)
            self._verdicts.pop(key, None)
        elif verdict == "fail":
            self._failed[seq] = key, record.name


def _quiet_point(found: Sequence[InTheWay], asked: int) -> tuple[int, tuple[InTheWay, ...]]:
    point, in_the_way = asked, list[InTheWay]()
    while inside := [each for each in found if each.seq <= point and (each.end is None or point < each.end)]:
        in_the_way += [each for each in inside if each not in in_the_way]
        point = min(each.seq for each in inside) - 1
    return point, tuple(sorted(in_the_way, key=lambda each: each.seq))


# the journal of a fork


def check_changes(run_id: RunId, part: ForkedPart, keys: Sequence[str]) -> None:
    """Raise UsageError unless these are calls that the fork takes, and that had a result."""
    outcomes = {r.key: r for r in part.records if r.kind in OUTCOMES}
    for key in keys:
        outcome = outcomes.get(key)
        if outcome is None:
            why = f"; the point was moved back, because {told(part.in_the_way)}" if part.in_the_way else ""
            raise UsageError(
                f"Run {run_id}: {key!r} is no call that had ended at record {part.at}, so it has no result that a fork "
                f"could have another of{why}. `{hint('fork', run_id, options=('--dry-run',))}` lists the calls."
            )
        is_ours = outcome.name.startswith(("hf.", "hf:")) and not outcome.name.startswith(_CHANGEABLE)
        if is_ours or outcome.kind == Kind.cancelled:
            what = "was cancelled by the code" if outcome.kind == Kind.cancelled else "has no result of yours"
            raise UsageError(f"Run {run_id}: {key} {what}; change what another call returned.")


def told(in_the_way: Sequence[InTheWay]) -> str:
    """What is in the way, in words."""
    words = {
        Obstacle.effect: "the effect {key} was under way (record {seq})",
        Obstacle.child: "the child {key} was under way (record {seq})",
        Obstacle.saga: "the saga {key} had something to undo (from record {seq} on)",
        Obstacle.cancel: "the run was being cancelled (record {seq})",
    }
    return ", ".join(words[each.what].format(key=each.key, seq=each.seq) for each in in_the_way)


def drafts_of(
    part: ForkedPart, changes: Mapping[str, str], *, mail: int, state: str | None
) -> tuple[list[Draft], list[Draft]]:
    """The copied records, to be linked anew: those of the prologue, and those of the turn, if there is one.

    Those of `changes` (text by key) are other results, `state` is another state. The mailbox is empty, and goes on
    behind `mail`.
    """
    last = {r.key: r.seq for r in part.records if r.kind in OUTCOMES}
    drafts: tuple[list[Draft], list[Draft]] = ([], [])
    for r in part.records:
        kind, args, payload = r.kind, r.args, r.payload
        if kind == Kind.checkpoint:
            payload = replace(Past.read(r), mail=mail, unread=Numbers(), cancel=None).text()
            args = args if state is None else state
        elif r.key in changes and last[r.key] == r.seq:
            kind, payload = Kind.done, changes[r.key]
        drafts[r.turn > 0].append(
            draft(
                kind,
                r.name,
                at=r.at,
                key=r.key,
                attempt=r.attempt,
                tick=r.tick,
                took=r.took,
                args_digest=r.args_digest,
                args=args,
                payload=payload,
            )
        )
    return drafts


def journal_of(
    run_id: RunId, nonce: str, *, prologue: Sequence[Draft], turn: int, rest: Sequence[Draft], mail: int
) -> tuple[list[Record], Cut | None]:
    """The journal that a fork begins with, and where it is cut. Nobody has executed any of it: that is epoch 0."""
    first = linked(prologue, epoch=0, turn=0, head_seq=0, head_hash=first_hash(run_id, nonce))
    if not turn:
        return list(first), None
    seq, before = first[-1].seq, first[-1].hash
    second = linked(rest, epoch=0, turn=turn, head_seq=seq, head_hash=before)
    return [*first, *second], Cut(seq, before, seq + 1, before, mail)


def code_in(claim: Record) -> str:
    """The digest of the code that was executed from a claim on."""
    return str(_said(claim).get("code", ""))


def forked_nonce(own: str, row: RunRow, part: ForkedPart) -> str:
    """The nonce of a fork: random, and with those that the copied calls had.

    `uuid4` and `rng` follow them. They are secrets, so they are where the run's own is, and not in the journal. What a
    fork of a fork copies may come from both.
    """
    nonces: list[list[Any]] = []
    for upto, nonce in nonces_in(row.nonce):
        if copied := sum(1 < r.seq <= upto for r in part.records):
            nonces.append([copied + 1, nonce])
    return own + _NONCES + encode([*nonces, [len(part.records) + 1, row.nonce]])


def nonces_in(nonce: str) -> tuple[tuple[int, str], ...]:
    """Whose nonce the copied calls of a fork had, up to which of its records; the first one is its `created`."""
    _, mark, others = nonce.partition(_NONCES)
    return tuple((int(upto), str(other)) for upto, other in decode(others)) if mark else ()


def origin_in(created: Record) -> Origin | None:
    """Where a run comes from, if it is a fork."""
    payload = created.payload or ""
    if f'"{FORKED}"' not in payload:  # nearly all are none
        return None
    said = decode(payload).get(FORKED)
    if not isinstance(said, dict):
        return None
    return Origin(str(said.get("run", "")), int(said.get("at", 0)), int(said.get("mail", 0)))
