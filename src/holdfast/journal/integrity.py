"""Checking what was stored: the hash chain of a journal, the digests of rows, mail, questions and blobs.

What this cannot notice: damage that takes the whole last commit (row and records alike) back to the state before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from holdfast.base.hints import hint
from holdfast.codec import blob_digest
from holdfast.errors import CorruptJournal
from holdfast.journal.chain import first_hash, rehash, row_digest
from holdfast.model import Mail, Message, QuestionRow, Record, RunId, RunRow, ThreadId


def check_row(row: RunRow) -> None:
    """Raise CorruptJournal if the row is not what its owner wrote."""
    if row_digest(row) != row.digest:
        raise CorruptJournal(
            f"Run {row.id}: its row was changed outside Holdfast or damaged (digest {row.digest} does not fit). "
            f"Nobody takes the run up like this. Compare with a backup; `{hint('verify', row.id)}` shows the details.",
            run_id=row.id,
        )


def check_records(row: RunRow, records: Sequence[Record]) -> None:
    """Raise CorruptJournal unless the records are the gapless chain that the row's head names.

    All of them, or what a resume reads of a run with turns: the prologue, and what follows on the last checkpoint. The
    ends of these stretches are in the row.
    """
    chain = PagedChain(row)
    chain.check(records)
    chain.end()


class PagedChain:
    """The same for a journal that is read in pages."""

    def __init__(self, row: RunRow) -> None:
        self._row = row
        self._previous = first_hash(row.id, row.nonce)
        self.seq = 0  #: of the last record that was checked

    def check(self, records: Sequence[Record]) -> None:
        """The next records; raises at the first that is not what was written."""
        row, previous, seq = self._row, self._previous, self.seq
        cut = row.cut
        for record in records:
            if cut is not None and seq == cut.prologue:
                if previous != cut.prologue_hash:
                    raise _broken(row, seq, "the last record of the prologue is not the one that the run's row names")
                if record.seq == cut.seq:
                    seq, previous = cut.seq - 1, cut.before
            seq += 1
            if record.seq != seq:
                raise _broken(row, seq, f"record {seq} is missing")
            if cut is not None and seq == cut.seq and previous != cut.before:
                raise _broken(row, seq, "the record before the checkpoint is not the one that the run's row names")
            if rehash(previous, record) != record.hash:
                raise _broken(row, record.seq, "the record does not fit its hash")
            previous = record.hash
        self._previous, self.seq = previous, seq

    def end(self) -> None:
        """There are no more."""
        row = self._row
        if self.seq != row.head_seq:
            raise _broken(row, self.seq + 1, f"the journal has {self.seq} records, the run says {row.head_seq}")
        if self._previous != row.head_hash:
            raise _broken(row, row.head_seq, "the last record is not the one that the run's row names")


def check_blob(run_id: RunId, digest: str, data: bytes | None) -> bytes:
    """The data, if it is what the digest says."""
    if data is None:
        raise CorruptJournal(f"Run {run_id}: blob {digest} is missing.", run_id=run_id)
    if blob_digest(data) != digest.rpartition(".")[2][:32]:  # what is before the point says in which mail it is
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


def message_digest(thread_id: ThreadId, body: str, *, at: int, author: str, covers: int | None, dedup: str) -> str:
    """The digest of a message, but for its number: the store gives that, when nobody else can."""
    text = f"{len(thread_id)},{len(author)},{len(dedup)},{at},{covers}|{thread_id}{author}{dedup}{body}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def is_sound(message: Message) -> bool:
    """Is the message what was said?"""
    wanted = message_digest(
        message.thread_id,
        message.body,
        at=message.at,
        author=message.author,
        covers=message.covers,
        dedup=message.dedup,
    )
    return wanted == message.digest


def _broken(row: RunRow, seq: int, what: str) -> CorruptJournal:
    return CorruptJournal(
        f"Run {row.id}: {what} (seq {seq} of {row.head_seq}). Nobody takes the run up like this. "
        f"Other runs are not affected. `{hint('verify', row.id)}` shows the details.",
        run_id=row.id,
        seq=seq,
    )
