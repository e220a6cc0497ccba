"""Forks: which part of a journal another run can begin with, and what that run's journal is.

A fork is made of the calls that had ended by a point. What was open then is not copied: it is done anew. That is safe
for a step or a wait, and not for what acts outward: an effect or child that is open may have happened, and a saga that
is open has something to take back. So the point moves back to the last one where none of them is open.

`part_of` says which records count for a point. Everything else is the same for each of them.
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


def part_of(records: Sequence[Record], at: int) -> Sequence[Record]:
    """The records that count for a point: what a run that stood there would be resumed from.

    That is all of them up to the point; of a run with turns, the prologue, and the turn of the point from its
    checkpoint on.
    """
    turn = records[at - 1].turn
    head = checkpoint_in(records, turn) if turn else None
    if head is None:
        return records[:at]
    prologue = next(r.seq for r in records if r.kind == Kind.checkpoint) - 1
    return [*records[:prologue], *records[head.seq - 1 : at]]


def head_of(row: RunRow, records: Sequence[Record], turn: int) -> int:
    """The record that a turn begins with; UsageError if there is no such turn."""
    head = checkpoint_in(records, turn)
    if head is None:
        last = max((r.turn for r in records if r.kind == Kind.checkpoint), default=0)
        has = f"has the turns 1 to {last}" if last else "has no turns"
        raise UsageError(f"Run {row.id} {has}; it cannot be forked at turn {turn!r}.")
    return head.seq


def cut(row: RunRow, records: Sequence[Record], at: int | None = None) -> ForkedPart:
    """What a fork at this record takes (None: the last one); UsageError if there is no such record."""
    asked = len(records) if at is None else at
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= len(records):
        raise UsageError(f"Run {row.id} has the records 1 to {len(records)}; it cannot be forked at {at!r}.")
    point, in_the_way = _quiet_point(_obstacles(records), asked)
    counted = part_of(records, point)
    turn = counted[-1].turn
    replay = Replay(counted, turn=turn, code="")
    ended = {entry.key for entry in replay.entries.values() if entry.outcome is not None}
    gone = _superseded(counted)
    taken = tuple(r for r in counted if r.seq not in gone and _is_taken(r, ended))
    order = {r.key: r.seq for r in taken if r.kind in OUTCOMES}
    return ForkedPart(
        asked=asked,
        at=point,
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


def _quiet_point(found: Sequence[InTheWay], asked: int) -> tuple[int, tuple[InTheWay, ...]]:
    """The last record up to the one asked for at which nothing is open, and what was in the way of a later one."""
    point, in_the_way = asked, list[InTheWay]()
    while inside := [each for each in found if each.seq <= point and (each.end is None or point < each.end)]:
        in_the_way += [each for each in inside if each not in in_the_way]
        point = min(each.seq for each in inside) - 1
    return point, tuple(sorted(in_the_way, key=lambda each: each.seq))


def _obstacles(records: Sequence[Record]) -> list[InTheWay]:
    """All that was open at some point, from its first record to its last."""
    open_: dict[str, tuple[Obstacle, str, int]] = {}
    found: list[InTheWay] = []
    sagas: dict[str, str] = {}  # the block that an effect is undone by, by the effect's key
    verdicts: dict[str, str] = {}  # the last one on each effect

    def begin(what: Obstacle, key: str, *, name: str, seq: int) -> None:
        open_.setdefault(key, (what, name, seq))

    def end(key: str, seq: int) -> None:
        if (begun := open_.pop(key, None)) is not None:
            found.append(InTheWay(begun[0], key, begun[1], begun[2], seq))

    for record in records:
        key, seq = record.key, record.seq
        match record.kind:
            case Kind.intent:
                begin(Obstacle.effect, key, name=record.name, seq=seq)
                if saga := _said(record).get("saga"):
                    sagas[key] = str(saga)
            case Kind.child:
                begin(Obstacle.child, key, name=record.name, seq=seq)
            case Kind.settled:
                verdicts[key] = str(_said(record).get("verdict"))
            case Kind.noted if record.name == NoteKind.cancel:
                begin(Obstacle.cancel, _CANCEL, name=record.name, seq=seq)
            case Kind.reopened:
                end(_CANCEL, seq)
                for gone in _said(record).get("superseded", ()):
                    failed = records[gone - 1]
                    if verdicts.get(failed.key) == "fail":  # it may have happened, and is to be settled again
                        begin(Obstacle.effect, failed.key, name=failed.name, seq=seq)
            case kind if kind in OUTCOMES:
                end(key, seq)
                is_done = kind in (Kind.done, Kind.unstored)
                if key in sagas and (is_done or verdicts.get(key) in ("fail", "retry")):
                    begin(Obstacle.saga, sagas[key], name=_SAGA, seq=seq)
                if record.name == _SAGA and (outer := _said(record).get("outer")):
                    begin(Obstacle.saga, str(outer), name=_SAGA, seq=seq)  # it has taken over what the inner one did
            case _:
                pass
    found += [InTheWay(what, key, name, seq, None) for key, (what, name, seq) in open_.items()]
    return found


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


def code_at(records: Sequence[Record], at: int) -> str:
    """The digest of the code that was executed at a point."""
    claims = [r for r in records[:at] if r.kind in (Kind.created, Kind.claimed)]
    return str(_said(claims[-1]).get("code", "")) if claims else ""


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
