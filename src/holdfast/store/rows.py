"""Between the data of `model` and what is bound to and read from a database; the same for all of them."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from holdfast.codec.fastjson import encode
from holdfast.errors import CorruptJournal, StoreCorrupt
from holdfast.model import (
    LARGEST_BLOB,
    TAGS,
    Act,
    Append,
    Claim,
    Definition,
    Kind,
    Mail,
    Message,
    QuestionRow,
    QuestionState,
    Record,
    Removal,
    RunId,
    RunRow,
    Saying,
    Status,
    ThreadId,
    ThreadRow,
    Worker,
    WorkerId,
    reasons,
)
from holdfast.store import shapes

_WORKER = re.compile(r"[A-Za-z0-9_-]+")
#: Kinds that are no progress, since a run that always dies at the same call writes them too: the count of claims stays.
#: Giving a run up in order does end the count, since nobody died.
_NO_PROGRESS = frozenset({Kind.claimed, Kind.noted, Kind.started, Kind.intent, Kind.settled, Kind.reopened})
_BLOB_CHUNK = 256 * 1024
_RUNNING = Status.running  # looked up once: on Python 3.11 that takes as long as a small function
#: Before all times of runs; its negative is after them.
EVER = -(2**62)

Values = tuple[Any, ...]


def keeps_status(append: Append) -> bool:
    """Whether the append most likely leaves status and owner as they are (`append_keep` checks)."""
    return append.row.status is _RUNNING and not append.release and append.mail is None


def keep_parameters(append: Append) -> Values:
    row = append.row
    return (
        row.id,
        row.updated_at,
        None if row.reason is None else reasons.text(row.reason),
        row.turn,
        row.head_seq,
        row.head_hash,
        encode(row.summary),
        row.digest,
        append.release or _is_progress(append.records),
        row.epoch,
        append.base_seq,
        append.base_hash,
        row.owner,
        str(row.status),
    )


def _is_progress(records: Sequence[Record]) -> bool:
    for record in records:  # noqa: SIM110 - on the hot path
        if record.kind not in _NO_PROGRESS:
            return True
    return False


def move_parameters(append: Append) -> Values:
    return keep_parameters(append) + (append.row.wake_at, append.release, append.mail)  # noqa: RUF005 - on the hot path


def match_parameters(append: Append) -> Values:
    row = append.row
    return row.id, row.epoch, append.base_seq, append.base_hash, row.owner, append.mail


def blob_parameters(run_id: RunId, digest: str, data: bytes) -> Iterator[Values]:
    # What a blob is a difference to is read by the database, so it is not compressed.
    head = data.index(b"\n") if data.startswith(b"~") else 0
    packed = data[:head] + zlib.compress(data[head:], 1)
    for chunk, start in enumerate(range(0, len(packed), _BLOB_CHUNK)):
        yield run_id, digest, chunk, packed[start : start + _BLOB_CHUNK]


def run_parameters(row: RunRow, owner: WorkerId | None) -> Values:
    return (
        row.id,
        row.thread_id,
        row.agent,
        row.nonce,
        row.parent_id,
        row.queue,
        row.queue_key,
        row.priority,
        row.created_at,
        row.updated_at,
        str(row.status),
        None if row.reason is None else reasons.text(row.reason),
        row.wake_at,
        row.turn,
        row.epoch,
        row.head_seq,
        row.head_hash,
        row.input_digest,
        encode(row.summary),
        owner,
        row.claims,
        row.mail,
        row.digest,
    )


def state_parameters(row: RunRow) -> dict[str, Any]:
    """What a claim writes, and the head it was made from."""
    return {
        "id": row.id,
        "updated_at": row.updated_at,
        "status": str(row.status),
        "reason": None if row.reason is None else reasons.text(row.reason),
        "wake_at": row.wake_at,
        "turn": row.turn,
        "epoch": row.epoch,
        "head_seq": row.head_seq,
        "head_hash": row.head_hash,
        "summary": encode(row.summary),
        "digest": row.digest,
    }


def claim_parameters(row: RunRow, owner: WorkerId) -> Values:
    return (
        row.id,
        row.updated_at,
        str(row.status),
        None if row.reason is None else reasons.text(row.reason),
        row.wake_at,
        row.turn,
        row.epoch,
        encode(row.summary),
        row.digest,
        owner,
    )


def claimable_parameters(place: int, claim: Claim) -> Values:
    row = claim.row
    return place, row.id, row.epoch, row.head_seq, row.head_hash, claim.expected_epoch, claim.expected_owner


def taking_parameters(claim: Claim) -> Values:
    """All of a claim: the run, what it becomes, and what must be stored for it."""
    row = claim.row
    return (
        row.id,
        row.queue,
        row.queue_key,
        row.updated_at,
        str(row.status),
        None if row.reason is None else reasons.text(row.reason),
        row.wake_at,
        row.turn,
        row.epoch,
        row.head_seq,
        row.head_hash,
        encode(row.summary),
        row.digest,
        claim.expected_epoch,
        claim.expected_owner,
    )


def wake_parameters(row: RunRow) -> Values:
    return (
        row.id,
        row.mail,
        row.updated_at,
        str(row.status),
        None if row.reason is None else reasons.text(row.reason),
        row.wake_at,
        row.turn,
        encode(row.summary),
        row.digest,
    )


#: The queries that remove what a run that has ended did, and what one of their rows counts as: a chunk of a blob has as
#: many pages as so many records.
EMPTYING = (
    ("empty_records", 1),
    ("empty_blobs", 50),
    ("empty_chunks", 50),
    ("empty_questions", 1),
    ("empty_landed", 1),
    ("empty_tags", 1),
    ("empty_mail", 1),
    ("blank_mail", 1),
)


def pruned(tombstones: Sequence[RunRow], *, stored: Container[str], more: Container[str]) -> list[Removal]:
    """What became of runs: of those that are `stored` as tombstones, some have `more` to be removed."""
    states = (Removal.gone, Removal.partly)
    return [states[row.id in more] if row.id in stored else Removal.kept for row in tombstones]


def tombstone_parameters(row: RunRow) -> Values:
    return (
        row.id,
        None if row.reason is None else reasons.text(row.reason),
        encode(row.summary),
        row.digest,
        row.epoch,
        str(row.status),
        row.head_seq,
        row.head_hash,
    )


def mail_parameters(mail: Mail, number: int) -> Values:
    return mail.run_id, number, mail.kind, mail.key, mail.body, mail.at, mail.digest, mail.dedup


def question_parameters(question: QuestionRow) -> Values:
    return (
        question.id,
        question.run_id,
        question.key,
        question.body,
        question.shown,
        question.asked_at,
        question.due_at,
        question.state.value,
        question.decided_at,
        question.decided_by,
        question.note,
        question.digest,
    )


def act_parameters(act: Act) -> Values:
    return act.at, act.by, act.via.value, act.what, act.target, act.run_id, act.note


def definition_parameters(definition: Definition) -> Values:
    return definition.kind, definition.name, definition.body, definition.due_at, definition.revision


def tag_parameters(row: RunRow) -> list[Values]:
    """By which tags a new run is found."""
    return [(row.id, name, value, row.created_at) for name, value in row.summary.get(TAGS, {}).items()]


def read_run(values: Sequence[Any], *, lenient: bool = False) -> RunRow:
    """A run; its hash as bytes. `lenient`: show one that cannot be read as quarantined, so that it hides no other."""
    run_id = RunId(str(values[0] or ""))
    try:
        if not shapes.fits(values, shapes.RUN):
            raise ValueError(shapes.STRANGE)
        status, reason = Status(values[10]), reasons.read(values[11]) if values[11] is not None else None
        summary, head_hash = _mapping(values[18]), values[16]
        if not isinstance(head_hash, bytes):
            head_hash = bytes.fromhex(head_hash)  # how SQLite's JSON answers have it
        if values[19] is not None and not _WORKER.fullmatch(values[19]):
            raise ValueError("its owner is no worker id")
    except ValueError as error:
        if not lenient:
            raise CorruptJournal(f"The row of run {run_id} cannot be read: {error}.", run_id=run_id) from error
        status, reason = Status.quarantined, reasons.Corrupt(f"its row cannot be read: {error}")
        summary, head_hash = {}, b""
        values = shapes.readable(values, shapes.RUN)
    return RunRow(
        id=run_id,
        thread_id=ThreadId(values[1]),
        agent=values[2],
        nonce=values[3],
        parent_id=None if values[4] is None else RunId(values[4]),
        queue=values[5],
        queue_key=values[6],
        priority=values[7],
        created_at=values[8],
        updated_at=values[9],
        status=status,
        reason=reason,
        wake_at=values[12],
        turn=values[13],
        epoch=values[14],
        head_seq=values[15],
        head_hash=head_hash,
        input_digest=values[17],
        summary=summary,
        owner=None if values[19] is None else WorkerId(values[19]),
        claims=values[20],
        mail=values[21],
        digest=values[22],
    )


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def counts_of(queues: Sequence[str], found: Iterable[Sequence[Any]]) -> dict[str, dict[Status, int]]:
    """Of each queue, also of those of which nothing was found."""
    counts = {queue: {Status.queued: 0, Status.running: 0} for queue in queues}
    for queue, status, count in found:
        counts[queue][Status(status)] = count
    return counts


def read_mail(values: Sequence[Any]) -> Mail:
    if not shapes.fits(values, shapes.MAIL):
        raise CorruptJournal(
            f"Mail {values[1]} of run {values[0]} cannot be read: {shapes.STRANGE}.",
            run_id=str(values[0]),
        )
    run_id, number, kind, key, body, at, digest, dedup = values
    return Mail(run_id=RunId(run_id), number=number, kind=kind, key=key, body=body, at=at, digest=digest, dedup=dedup)


def read_question(values: Sequence[Any]) -> QuestionRow:
    question_id, run_id, key, body, shown, asked_at, due_at, state, decided_at, decided_by, note, digest = values
    try:
        if not shapes.fits(values, shapes.QUESTION):
            raise ValueError(shapes.STRANGE)
        known = QuestionState(state)
    except ValueError as error:
        raise CorruptJournal(
            f"Question {question_id} of run {run_id} cannot be read: {error}.", run_id=run_id
        ) from error
    return QuestionRow(
        id=question_id,
        run_id=RunId(run_id),
        key=key,
        body=body,
        shown=shown,
        asked_at=asked_at,
        due_at=due_at,
        state=known,
        decided_at=decided_at,
        decided_by=decided_by,
        note=note,
        digest=digest,
    )


def message_parameters(message: Message) -> Values:
    return tuple(message)


def said_messages(saying: Saying, first: int) -> list[Message]:
    """What is said, under numbers from `first` on."""
    return [
        Message(saying.thread_id, number, body, saying.at, saying.author, saying.covers, saying.dedup, digest)
        for number, (body, digest) in enumerate(zip(saying.bodies, saying.digests, strict=True), first)
    ]


def read_message(values: Sequence[Any]) -> Message:
    if not shapes.fits(values, shapes.MESSAGE):
        what = f"Message {values[1]} of thread {values[0]}"
        raise CorruptJournal(f"{what} cannot be read: {shapes.STRANGE}.", run_id="")
    return Message(*values)


def read_thread(values: Sequence[Any]) -> ThreadRow:
    if not shapes.fits(values, shapes.THREAD):
        raise CorruptJournal(f"The row of thread {values[0]} cannot be read: {shapes.STRANGE}.", run_id="")
    return ThreadRow(*values)


def read_definition(values: Sequence[Any]) -> Definition:
    kind, name, body, revision, due_at = values
    if not shapes.fits(values, shapes.DEFINITION):
        raise _damaged(f"of {kind} {name}")
    return Definition(kind=kind, name=name, body=body, revision=revision, due_at=due_at)


def read_worker(values: Sequence[Any]) -> Worker:
    worker_id, pid, host, boot_id, started_at, lease_until_ms = values
    if not shapes.fits(values, shapes.WORKER):
        raise _damaged(f"of worker {worker_id}")
    return Worker(
        id=WorkerId(worker_id),
        pid=pid,
        host=host,
        boot_id=boot_id,
        started_at=started_at,
        lease_until_ms=lease_until_ms,
    )


def _damaged(whose: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The row {whose} cannot be read: {shapes.STRANGE}, so the store was damaged or changed by something else. "
        "Stop all workers, run `holdfast verify`, and restore a backup."
    )


def unpack_blob(run_id: RunId, digest: str, packed: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    head = b""
    if packed.startswith(b"~"):  # a difference; a compressed text begins with another byte
        at = packed.find(b"x")
        head, packed = packed[:at], packed[at:]
    try:
        data = decompressor.decompress(packed, LARGEST_BLOB + 1)
    except zlib.error as error:
        raise CorruptJournal(
            f"A stored value of run {run_id} ({digest}) is damaged: {error}.", run_id=run_id
        ) from error
    if len(data) > LARGEST_BLOB:
        raise CorruptJournal(
            f"A stored value of run {run_id} ({digest}) has more than {LARGEST_BLOB:,} bytes, as none of ours has.",
            run_id=run_id,
        )
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptJournal(f"A stored value of run {run_id} ({digest}) is incomplete.", run_id=run_id)
    return head + data
