"""What of a thread a fork remembers: the messages that the copied part knew, in a thread of its own.

They keep their numbers, because the copied calls know them by these. What was read is known by a digest as well, which
has the id of the thread in it; so the marks of what was read are made anew.
"""

from __future__ import annotations

from holdfast.base import faults
from holdfast.codec.fastjson import decode, encode
from holdfast.control.originals import Original
from holdfast.errors import CorruptJournal, UsageError
from holdfast.journal.integrity import is_sound, message_digest
from holdfast.journal.messages import KnownMessages, messages_in, slice_digest
from holdfast.model import Message, ThreadId, ThreadRow
from holdfast.store.contract import Store

_PAGE = 500


async def remember(store: Store, original: Original, *, thread_id: ThreadId) -> dict[str, str]:
    """Have a thread know what the copied part knew of the original's; the marks of what was read, by call."""
    row = original.row
    known = messages_in(row, original.said).get(row.thread_id, [])
    if thread_id == row.thread_id or not known:
        return {}
    upto = max(max(each.last, each.summary) for each in known)
    copied = await _copy(store, row.thread_id, thread_id, upto=upto)
    read = {each.seq: each for each in known if each.digest}
    return {r.key: _marked(r.payload or "{}", read[r.seq], copied) for r in original.part.records if r.seq in read}


async def _copy(store: Store, source: ThreadId, target: ThreadId, *, upto: int) -> dict[int, Message]:
    """All messages up to a number, under the same numbers; without what they say, since there may be many."""
    copied: dict[int, Message] = {}
    summary = covers = last = 0
    while last < upto:
        page = await store.messages(source, after=last, upto=upto, limit=_PAGE)
        new = [_moved(message, target) for message in page]
        if [each.number for each in new] != list(range(last + 1, last + len(new) + 1)) or not new:
            raise CorruptJournal(f"Thread {source}: a message behind {last} is missing.", run_id="")
        for each in new:
            if each.covers is not None:
                summary, covers = each.number, each.covers
        last = new[-1].number
        row = ThreadRow(target, last, summary, covers, new[0].at, new[-1].at)
        faults.point("fork.before_messages")
        if not await store.put_messages(new, row):
            await _check_same(store, target, new)
        copied |= {each.number: each._replace(body="") for each in new}
    return copied


def _moved(message: Message, target: ThreadId) -> Message:
    if not is_sound(message):
        raise CorruptJournal(f"Thread {message.thread_id}: message {message.number} is damaged.", run_id="")
    body, at, author, dedup = message.body, message.at, message.author, message.dedup
    digest = message_digest(target, body, at=at, author=author, covers=message.covers, dedup=dedup)
    return message._replace(thread_id=target, digest=digest)


async def _check_same(store: Store, target: ThreadId, new: list[Message]) -> None:
    """Raise unless the thread has these: somebody forked into it before, and was cut off."""
    there = await store.messages(target, after=new[0].number - 1, upto=new[-1].number, limit=len(new))
    if there != new:
        raise UsageError(
            f"Something else was said in thread {target}, and the fork needs the messages that it knows under their "
            "numbers. Leave thread_id= out for a thread of its own, or share the original's."
        )


def _marked(payload: str, known: KnownMessages, copied: dict[int, Message]) -> str:
    read = [copied[known.summary]] if known.summary else []
    numbers = range(known.first, known.last + 1)
    read += [copied[number] for number in numbers if copied[number].covers is None]
    return encode({**decode(payload), "digest": slice_digest(read)})
