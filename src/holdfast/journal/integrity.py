"""The hash chain of a journal and the digest of a run's row: computing and checking them.

Every record's hash covers the record and the hash before it; the first one starts from the run's id and nonce, so a
record cannot be moved to another run. The run's row keeps the head of the chain, so a missing tail is noticed, and has
a digest of its own. What this cannot notice: damage that takes the whole last commit (row and records alike) back to
the state before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from holdfast.base.hints import hint
from holdfast.codec import blob_digest
from holdfast.codec.fastjson import encode_sorted
from holdfast.errors import CorruptJournal
from holdfast.model import Mail, QuestionRow, Record, RunId, RunRow

HASH_BYTES = 16


def first_hash(run_id: RunId, nonce: str) -> bytes:
    """What the first record of a run is linked to."""
    return blake2b(f"{nonce}/{run_id}".encode(), digest_size=HASH_BYTES).digest()


def record_hash(
    previous: bytes,
    seq: int,
    epoch: int,
    generation: int,
    key: str,
    kind: str,
    name: str,
    attempt: int,
    tick: int,
    at: int,
    took: int,
    args_digest: str,
    args: str | None,
    payload: str | None,
) -> bytes:
    """The hash of a record. Lengths come first, so that no two records have the same bytes."""
    text = (
        f"{seq},{epoch},{generation},{attempt},{tick},{at},{took},{len(key)},{len(kind)},{len(name)},{len(args_digest)},"
        f"{-1 if args is None else len(args)},{-1 if payload is None else len(payload)}|"
        f"{key}{kind}{name}{args_digest}{args or ''}{payload or ''}"
    )
    return blake2b(previous + text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def rehash(previous: bytes, record: Record) -> bytes:
    return record_hash(
        previous,
        record.seq,
        record.epoch,
        record.generation,
        record.key,
        record.kind,
        record.name,
        record.attempt,
        record.tick,
        record.at,
        record.took,
        record.args_digest,
        record.args,
        record.payload,
    )


def row_digest(row: RunRow) -> str:
    """The digest of what only the owner writes into a run's row. No part has a NUL, so they cannot run together."""
    text = "\0".join(
        (
            row.id,
            row.thread_id,
            row.agent,
            row.nonce,
            row.parent_id or "",
            row.queue,
            row.queue_key,
            f"{row.created_at} {row.updated_at} {row.generation} {row.epoch} {row.head_seq} {row.head_hash.hex()} "
            f"{row.priority} {row.wake_at}",
            row.status,
            row.input_digest,
            encode_sorted(row.reason) if row.reason is not None else "",
            encode_sorted(row.summary) if row.summary else "",
        )
    )
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def seal_row(row: RunRow) -> RunRow:
    """Give a row that nobody has seen yet the digest that fits it."""
    object.__setattr__(row, "digest", row_digest(row))
    return row


def check_row(row: RunRow) -> None:
    """Raise CorruptJournal if the row is not what its owner wrote."""
    if row_digest(row) != row.digest:
        raise CorruptJournal(
            f"Run {row.id}: its row was changed outside Holdfast or damaged (digest {row.digest} does not fit). "
            f"Nobody takes the run up like this. Compare with a backup; `{hint('verify', row.id)}` shows the details.",
            run_id=row.id,
        )


def check_records(row: RunRow, records: Sequence[Record]) -> None:
    """Raise CorruptJournal unless the records are the gapless chain that the row's head names."""
    previous = first_hash(row.id, row.nonce)
    for expected_seq, record in enumerate(records, start=1):
        if record.seq != expected_seq:
            raise _broken(row, expected_seq, f"record {expected_seq} is missing")
        if rehash(previous, record) != record.hash:
            raise _broken(row, record.seq, "the record does not fit its hash")
        previous = record.hash
    if len(records) != row.head_seq:
        raise _broken(row, len(records) + 1, f"the journal has {len(records)} records, the run says {row.head_seq}")
    if previous != row.head_hash:
        raise _broken(row, row.head_seq, "the last record is not the one that the run's row names")


def check_blob(run_id: RunId, digest: str, data: bytes | None) -> bytes:
    """The data, if it is what the digest says."""
    if data is None:
        raise CorruptJournal(f"Run {run_id}: blob {digest} is missing.", run_id=run_id)
    if blob_digest(data) != digest:
        raise CorruptJournal(f"Run {run_id}: blob {digest} was changed or damaged.", run_id=run_id)
    return data


def mail_digest(run_id: RunId, kind: str, key: str, body: str, at: int) -> str:
    text = f"{len(run_id)},{len(kind)},{len(key)},{at}|{run_id}{kind}{key}{body}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def check_mail(mail: Mail) -> None:
    if mail_digest(mail.run_id, mail.kind, mail.key, mail.body, mail.at) != mail.digest:
        raise CorruptJournal(f"Run {mail.run_id}: mail {mail.number} was changed or damaged.", run_id=mail.run_id)


def question_digest(question: QuestionRow) -> str:
    """The digest of what is asked. What became of it is outside: the answer is mail, with a digest of its own."""
    parts = (question.id, question.run_id, question.key, question.body, question.shown)
    lengths = ",".join(str(len(part)) for part in parts)
    text = f"{lengths},{question.asked_at},{question.due_at}|{''.join(parts)}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def seal_question(question: QuestionRow) -> QuestionRow:
    """Give a question that nobody has seen yet the digest that fits it."""
    object.__setattr__(question, "digest", question_digest(question))
    return question


def check_question(question: QuestionRow) -> None:
    """Raise CorruptJournal if the question is not what its run asked."""
    if question_digest(question) != question.digest:
        raise CorruptJournal(
            f"Run {question.run_id}: question {question.id} was changed outside Holdfast or damaged. Do not answer it; "
            f"`{hint('verify', question.run_id)}` shows whether the run is sound.",
            run_id=question.run_id,
        )


def _broken(row: RunRow, seq: int, what: str) -> CorruptJournal:
    return CorruptJournal(
        f"Run {row.id}: {what} (seq {seq} of {row.head_seq}). Nobody takes the run up like this. "
        f"Other runs are not affected. `{hint('verify', row.id)}` shows the details.",
        run_id=row.id,
        seq=seq,
    )
