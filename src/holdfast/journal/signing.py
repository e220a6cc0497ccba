"""Signing a run anew that was changed outside Holdfast: a chain over what is stored now, and a note that says so.

A record that was changed can be signed: what it says now is what the run goes on with. What is missing, or cannot be
read, cannot: a past with a hole in it is no past to go on from. `misfits_in` tells the two apart, and only a run that
has lost nothing is signed. A large value that was changed counts as lost, because its name is its digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from holdfast.base.data import data
from holdfast.errors import CorruptJournal
from holdfast.journal.blobs import blob_in, texts_of, values_in
from holdfast.journal.chain import draft, first_hash, linked, rehash, revised, row_digest
from holdfast.journal.checkpoints import Past
from holdfast.journal.forks import origin_in
from holdfast.journal.integrity import mail_digest, question_digest, seal_question
from holdfast.model import Cut, Kind, NoteKind, Record, RunRow, Status, Whole
from holdfast.model.cuts import CUT
from holdfast.model.reasons import Reason

#: What these say may be anything; the others have an object, or nothing.
_VALUES = frozenset({Kind.done, Kind.failed, Kind.finished, Kind.started, Kind.cancelled, Kind.patched})


@data
class Misfits:
    """What of a run is not what was written, in words."""

    altered: tuple[str, ...] = ()  #: it can be read
    lost: tuple[str, ...] = ()  #: it is missing, or cannot be read

    def __bool__(self) -> bool:
        return bool(self.altered or self.lost)


def misfits_in(whole: Whole) -> Misfits:
    """All that does not fit; the row of a run that is quarantined has no digest any more that could."""
    altered, lost = list[str](), list[str]()
    for is_lost, what in (*_in_journal(whole), *_in_values(whole), *_in_mail(whole)):
        (lost if is_lost else altered).append(what)
    row = whole.row
    if row.status is not Status.quarantined and row_digest(row) != row.digest:
        altered.append("its row")
    altered += [f"question {each.id}" for each in whole.questions if question_digest(each) != each.digest]
    return Misfits(tuple(altered), tuple(lost))


def _in_journal(whole: Whole) -> Iterator[tuple[bool, str]]:
    row, seq = whole.row, 0
    previous: bytes | None = first_hash(row.id, row.nonce)
    for record in whole.records:
        seq += 1
        if record.seq != seq:
            yield True, _numbers("record", seq, record.seq - 1)
            seq, previous = record.seq, None
        if previous is not None and rehash(previous, record) != record.hash:
            # the first is linked to the run's nonce, which nothing else tells: `uuid4` and keys are made from it
            yield seq == 1, "record 1, or the nonce of the run" if seq == 1 else f"record {seq}"
        if not _can_be_read(record):
            yield True, f"what record {seq} says"
        previous = record.hash
    if seq < row.head_seq:
        yield True, _numbers("record", seq + 1, row.head_seq)
    elif seq > row.head_seq or previous != row.head_hash:
        yield False, "the end of the journal, as its row names it"
    if not whole.records or whole.records[0].kind != Kind.created:
        yield True, "how it was started"
    elif row.turn != whole.records[-1].turn or (row.turn and not _checkpoints(whole.records)):
        yield True, "the turn that it is in"


def _can_be_read(record: Record) -> bool:
    try:
        kind = Kind(record.kind)
        if kind is Kind.finished:
            Status(record.name)
        said = [json.loads(text) for text in (record.args, record.payload) if text is not None and not blob_in(text)]
        return kind in _VALUES or record.payload is None or isinstance(said[-1], dict)
    except ValueError:
        return False


def _in_values(whole: Whole) -> Iterator[tuple[bool, str]]:
    named = {name: r.seq for r in whole.records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}
    found = {**values_in(whole.mail, named), **whole.blobs}
    for name, seq in named.items():
        try:
            texts_of(whole.row.id, found, [name])
        except CorruptJournal:
            yield True, f"the value of record {seq}"


def _in_mail(whole: Whole) -> Iterator[tuple[bool, str]]:
    origin = origin_in(whole.records[0]) if whole.records and _can_be_read(whole.records[0]) else None
    there = {mail.number for mail in whole.mail}
    for number in range(origin.mail + 1 if origin is not None else 1, whole.row.mail + 1):
        if number not in there:
            yield True, f"mail {number}"
    for mail in whole.mail:
        if mail_digest(mail.run_id, mail.kind, mail.key, mail.body, mail.at) != mail.digest:
            yield False, f"mail {mail.number}"


def _numbers(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def signed_anew(whole: Whole, note: Mapping[str, Any], *, at: int, reason: Reason | None, status: Status) -> Whole:
    """The run as it is stored, under hashes that fit, with a note at its end; nothing of it may be lost.

    Where it stands is up to the caller, unless its journal says that it has ended.
    """
    row, records = whole.row, list[Record]()
    previous = first_hash(row.id, row.nonce)
    for r in whole.records:
        records += linked([r[3:13]], epoch=r.epoch, turn=r.turn, head_seq=r.seq - 1, head_hash=previous)
        previous = records[-1].hash
    epoch = row.epoch + 1
    said = draft(Kind.noted, NoteKind.repaired, at=at, payload=json.dumps(note))
    records += linked([said], epoch=epoch, turn=row.turn, head_seq=len(records), head_hash=previous)
    signed = revised(
        row,
        status=status,
        reason=reason,
        wake_at=None,
        epoch=epoch,
        head_seq=len(records),
        head_hash=records[-1].hash,
        summary=_with_cut(row, records),
        updated_at=at,
        owner=None,
        claims=0,
    )
    mail = (replace(m, digest=mail_digest(m.run_id, m.kind, m.key, m.body, m.at)) for m in whole.mail)
    questions = (seal_question(replace(each)) for each in whole.questions)
    return replace(whole, row=signed, records=tuple(records), mail=tuple(mail), questions=tuple(questions))


def end_of(whole: Whole) -> Status | None:
    """How a run ended, if its journal says that it did."""
    last = next((r for r in reversed(whole.records) if r.kind in (Kind.finished, Kind.reopened)), None)
    return Status(last.name) if last is not None and last.kind == Kind.finished else None


def has_open_child(whole: Whole) -> bool:
    """Has it started a run of whose end it does not know?"""
    begun = {r.key for r in whole.records if r.kind == Kind.child}
    return not begun <= {r.key for r in whole.records if r.kind in (Kind.done, Kind.failed, Kind.cancelled)}


def _checkpoints(records: tuple[Record, ...] | list[Record]) -> list[Record]:
    return [r for r in records if r.kind == Kind.checkpoint]


def _with_cut(row: RunRow, records: list[Record]) -> Mapping[str, Any]:
    if not row.turn:
        return row.summary
    heads = _checkpoints(records)
    first, last = heads[0], heads[-1]
    before, prologue = records[last.seq - 2].hash, records[first.seq - 2].hash
    return {**row.summary, CUT: Cut(first.seq - 1, prologue, last.seq, before, Past.read(last).mail).plain()}
