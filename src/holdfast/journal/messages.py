"""What a run has said and read in threads, as its journal knows it: by numbers, and a digest of what was read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from holdfast.base.data import data
from holdfast.codec import digest
from holdfast.errors import CorruptJournal
from holdfast.journal.integrity import is_sound
from holdfast.model import Kind, Message, Record, RunRow, ThreadId
from holdfast.store.contract import Store

CALLS = "hf.thread."
_PAGE = 500


@data
class KnownMessages:
    """Messages of a thread that a call has said or read: a summary, and from a number to a number."""

    seq: int  #: of the record
    first: int
    last: int
    summary: int = 0
    digest: str = ""  #: of what was read


def slice_digest(messages: Iterable[Message]) -> str:
    """The digest of messages, in the order in which they are read."""
    return digest("\n".join(f"{message.number} {message.digest}" for message in messages))


def messages_in(row: RunRow, records: Sequence[Record]) -> dict[ThreadId, list[KnownMessages]]:
    """The messages that a run has said or read, by thread."""
    found: dict[ThreadId, list[KnownMessages]] = {}
    args: dict[str, str] = {}
    for record in records:
        if not record.name.startswith(CALLS):
            continue
        if record.args is not None:
            args[record.key] = record.args
        if record.kind != Kind.done:
            continue
        said = json.loads(record.payload or "{}")
        thread_id = ThreadId(json.loads(args.get(record.key, "{}")).get("thread") or row.thread_id)
        if isinstance(said, list):
            known = KnownMessages(record.seq, said[0], said[1])
        else:
            last = said.get("last", 0)
            known = KnownMessages(
                record.seq, said.get("first", 1), last, said.get("summary", 0), said.get("digest", "")
            )
        found.setdefault(thread_id, []).append(known)
    return found


async def check_messages(store: Store, row: RunRow, records: Sequence[Record]) -> None:
    """Raise CorruptJournal if what the run has said or read in threads is not there, or is something else."""
    for thread_id, calls in messages_in(row, records).items():
        there: dict[int, Message] = {}
        for known in sorted(calls, key=lambda each: (each.first, each.last)):
            wanted = [number for number in (known.summary, *range(known.first, known.last + 1)) if number]
            for number in wanted:
                if number not in there:
                    there |= await _sound(store, thread_id, first=number, last=max(wanted))
                if number not in there:
                    raise _damaged(row, known, f"message {number} of thread {thread_id} is missing or damaged")
            read = [there[known.summary]] if known.summary else []
            read += [each for number in wanted[len(read) :] if (each := there[number]).covers is None]
            if known.digest and slice_digest(read) != known.digest:
                what = f"of the messages of thread {thread_id} up to {known.last} one is missing or damaged"
                raise _damaged(row, known, what)


async def _sound(store: Store, thread_id: ThreadId, *, first: int, last: int) -> dict[int, Message]:
    """Messages that are what was said, by number, without what that was: there may be many."""
    page = await store.messages(thread_id, after=first - 1, upto=last, limit=_PAGE)
    return {message.number: message._replace(body="") for message in page if is_sound(message)}


def _damaged(row: RunRow, known: KnownMessages, what: str) -> CorruptJournal:
    return CorruptJournal(f"Run {row.id}: {what}.", run_id=row.id, seq=known.seq)
