"""What was said in a thread, in another store: copied before a run that may have read it.

Numbers stay as they are, because runs know messages by them. So a thread in which something else was said there since
cannot be taken along.
"""

from __future__ import annotations

from holdfast.control.upkeep.transfers import NotTaken, Outcome
from holdfast.errors import CorruptJournal
from holdfast.journal.integrity import is_sound
from holdfast.model import Message, ThreadId, ThreadRow
from holdfast.store.contract import Store

_PAGE = 500
_ATTEMPTS = 20


async def copy_thread(source: Store, target: Store, thread_id: ThreadId) -> None:
    """Have `target` know everything that was said in a thread of `source`."""
    in_vain = 0
    while in_vain < _ATTEMPTS:
        row = await source.thread(thread_id)
        stored = await target.thread(thread_id)
        if row is None:
            return
        known = stored.last if stored is not None else 0
        await _check_same(source, target, thread_id, upto=min(known, row.last))
        if known >= row.last:
            return
        page = await source.messages(thread_id, after=known, upto=row.last, limit=_PAGE)
        _check_sound(thread_id, page, known)
        if not await target.put_messages(page, _after(row, page[-1])):
            in_vain += 1  # somebody said something there meanwhile, or copies it too
    raise NotTaken(Outcome.refused, f"thread {thread_id} was changed by others {_ATTEMPTS} times in a row; try again")


def _after(row: ThreadRow, last: Message) -> ThreadRow:
    """The thread's row with no more messages than that."""
    has_summary = row.summary <= last.number
    return row._replace(
        last=last.number,
        summary=row.summary if has_summary else 0,
        covers=row.covers if has_summary else 0,
        updated_at=max(row.updated_at, last.at) if last.number == row.last else last.at,
    )


async def _check_same(source: Store, target: Store, thread_id: ThreadId, *, upto: int) -> None:
    """Raise unless both have the same messages up to a number: the last one tells, since none is ever changed."""
    if not upto:
        return
    ours = await source.messages(thread_id, after=upto - 1, upto=upto)
    theirs = await target.messages(thread_id, after=upto - 1, upto=upto)
    if ours != theirs:
        raise NotTaken(
            Outcome.conflict,
            f"something else was said in thread {thread_id} in {target.url}, under the same numbers",
        )


def _check_sound(thread_id: ThreadId, page: list[Message], before: int) -> None:
    for number, message in enumerate(page, before + 1):
        if message.number != number or not is_sound(message):
            raise CorruptJournal(f"Thread {thread_id}: message {number} is missing or damaged.", run_id="")
    if not page:
        raise CorruptJournal(f"Thread {thread_id}: message {before + 1} is missing.", run_id="")
