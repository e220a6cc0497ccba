"""What is read of a thread: its newest part, as much of it as is wanted, and the same part again.

Reading begins at the last summary, which stands for everything that it covers. What was read is known by its numbers
and a digest, so that a replay reads the same rows, whatever was said since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from holdfast.base.data import data
from holdfast.errors import CorruptJournal
from holdfast.journal.integrity import is_sound
from holdfast.journal.messages import slice_digest
from holdfast.model import Message, ThreadId, ThreadRow
from holdfast.store.contract import Store

_PAGE = 200
_FEW = 50


@data
class Slice:
    """Messages of a thread as they are read: a summary, if there is one, and those behind it in order."""

    messages: tuple[Message, ...] = ()

    def mark(self) -> dict[str, int | str]:
        """What a journal keeps of it."""
        if not self.messages:
            return {"count": 0}
        first = self.messages[0]
        rest = self.messages if first.covers is None else self.messages[1:]
        numbers = {"first": rest[0].number, "last": rest[-1].number} if rest else {}
        summary = {} if first.covers is None else {"summary": first.number}
        return {"count": len(self.messages), **summary, **numbers, "digest": self._digest()}

    def _digest(self) -> str:
        return slice_digest(self.messages)

    def is_marked(self, mark: Mapping[str, Any]) -> bool:
        return len(self.messages) == mark["count"] and (not self.messages or self._digest() == mark["digest"])


async def recent(
    store: Store, thread_id: ThreadId, *, n: int | None, tokens: int | None, size: Callable[[Message], int]
) -> Slice:
    """The last messages: at most `n`, of at most so many tokens together, the summary before them included."""
    row = await store.thread(thread_id)
    if row is None:
        return Slice()
    summary = await _summary(store, row)
    left_n = -1 if n is None else n
    left = None if tokens is None else tokens
    taken: list[Message] = []
    if summary is not None and left_n and (left is None or size(summary) <= left):
        taken.append(summary)
        left_n, left = left_n - 1, None if left is None else left - size(summary)
    rest: list[Message] = []
    async for message in _backwards(store, row, limit=min(max(left_n, 1), _PAGE) if n is not None else _FEW):
        if not left_n:
            break
        if left is not None:
            left -= size(message)
            if left < 0:
                break
        rest.append(message)
        left_n -= 1
    return Slice((*taken, *reversed(rest)))


async def since(store: Store, thread_id: ThreadId, number: int) -> Slice:
    """The messages behind a number; the last summary instead of what it covers, if it covers any of them."""
    row = await store.thread(thread_id)
    if row is None:
        return Slice()
    summary = await _summary(store, row) if row.covers > number else None
    found = [
        each async for each in _forwards(store, row.id, after=max(number, row.covers if summary else 0), upto=row.last)
    ]
    return Slice((*([] if summary is None else [summary]), *found))


async def again(store: Store, thread_id: ThreadId, mark: Mapping[str, Any]) -> Slice | None:
    """What was read before; None: it is not there any more, or is something else."""
    if not mark["count"]:
        return Slice()
    found: list[Message] = []
    try:
        if "summary" in mark:
            found += await _one(store, thread_id, mark["summary"])
        if "first" in mark:
            found += [each async for each in _forwards(store, thread_id, after=mark["first"] - 1, upto=mark["last"])]
    except CorruptJournal:
        return None
    read = Slice(tuple(found))
    return read if read.is_marked(mark) else None


async def everything(store: Store, thread_id: ThreadId) -> AsyncIterator[Message]:
    """All messages of a thread, summaries too, in order; CorruptJournal if one is not what was said."""
    after = 0
    while page := await store.messages(thread_id, after=after, limit=_PAGE):
        for message in page:
            if message.number != after + 1:
                raise _damaged(thread_id, after + 1, "is missing")
            yield _sound(message)
            after = message.number


async def _summary(store: Store, row: ThreadRow) -> Message | None:
    return (await _one(store, row.id, row.summary))[0] if row.summary else None


async def _one(store: Store, thread_id: ThreadId, number: int) -> list[Message]:
    found = await store.messages(thread_id, after=number - 1, upto=number)
    if not found:
        raise _damaged(thread_id, number, "is missing")
    return [_sound(message) for message in found]


async def _forwards(store: Store, thread_id: ThreadId, *, after: int, upto: int) -> AsyncIterator[Message]:
    while after < upto and (page := await store.messages(thread_id, after=after, upto=upto, limit=_PAGE)):
        for message in page:
            if message.number != after + 1:
                break
            after = message.number
            if _sound(message).covers is None:
                yield message
        else:
            continue
        break
    if after < upto:
        raise _damaged(thread_id, after + 1, "is missing")


async def _backwards(store: Store, row: ThreadRow, *, limit: int) -> AsyncIterator[Message]:
    upto = row.last
    while upto > row.covers:
        page = await store.messages(row.id, after=row.covers, upto=upto, limit=limit, newest=True)
        for message in page:
            if message.number != upto:
                raise _damaged(row.id, upto, "is missing")
            if _sound(message).covers is None:
                yield message
            upto = message.number - 1
        if not page:
            raise _damaged(row.id, upto, "is missing")


def _sound(message: Message) -> Message:
    if not is_sound(message):
        raise _damaged(message.thread_id, message.number, "was changed or damaged")
    return message


def _damaged(thread_id: ThreadId, number: int, what: str) -> CorruptJournal:
    return CorruptJournal(f"Thread {thread_id}: message {number} {what}. Compare with a backup.", run_id="")
