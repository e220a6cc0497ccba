"""What was said in threads, in a SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.model import Fence, Message, Said, Saying, ThreadId, ThreadRow
from holdfast.store import rows
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.rows import read_rows
from holdfast.store.thread_store import ENDLESS

_QUERIES = load_queries("sqlite")
_SAY_POINTS = ("say.before_commit", "say.after_commit")
_PRUNE_POINTS = ("prune.before_commit", "prune.after_commit")


class SqliteThreads:
    """The part of a store that has threads. See `holdfast.store.thread_store.ThreadStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def say(self, saying: Saying, *, fence: Fence | None = None) -> Said:
        def work(transaction: Transaction, again: bool) -> Said:
            transaction.check_fence(fence)
            return _say(transaction, saying)

        return await self._database.write(work, _SAY_POINTS)

    async def thread(self, thread_id: ThreadId) -> ThreadRow | None:
        return await self._database.read(lambda connection: _thread(connection, thread_id))

    async def threads(self, *, id_prefix: str, after: str, limit: int) -> list[ThreadRow]:
        return await self._database.read(
            lambda connection: [rows.read_thread(v) for v in _rows(connection, "threads", (id_prefix, after, limit))]
        )

    async def messages(
        self, thread_id: ThreadId, *, after: int, upto: int | None, limit: int, newest: bool
    ) -> list[Message]:
        name = "messages_newest" if newest else "messages"
        which = (thread_id, after, ENDLESS if upto is None else upto, limit)
        return await self._database.read(
            lambda connection: [rows.read_message(values) for values in _rows(connection, name, which)]
        )

    async def idle_threads(self, *, before: int, strays: bool, limit: int) -> list[ThreadId]:
        which = {"before": before, "strays": strays, "limit": limit}

        def work(connection: apsw.Connection) -> list[ThreadId]:
            found: list[Any] = _rows(connection, "idle_threads", which)
            return found

        return await self._database.read(work)

    async def forget_thread(self, thread_id: ThreadId, *, before: int, strays: bool) -> bool:
        which = {"id": thread_id, "before": before, "strays": strays}

        def work(transaction: Transaction, again: bool) -> bool:
            transaction.execute(_QUERIES["forget_thread"], which)
            if not transaction.connection.changes():
                return False
            transaction.execute(_QUERIES["forget_messages"], {"id": thread_id})
            return True

        return await self._database.write(work, _PRUNE_POINTS)

    async def put_messages(self, messages: Sequence[Message], row: ThreadRow) -> bool:
        def work(transaction: Transaction, again: bool) -> bool:
            stored = _thread(transaction.connection, row.id)
            if (stored.last if stored is not None else 0) != messages[0].number - 1:
                return False
            transaction.write("insert_messages", [rows.message_parameters(message) for message in messages])
            transaction.execute(_QUERIES["put_thread"], tuple(row))
            return True

        return await self._database.write(work, _SAY_POINTS)


def _say(transaction: Transaction, saying: Saying) -> Said:
    thread_id = saying.thread_id
    transaction.execute(_QUERIES["open_thread"], (thread_id, saying.at))
    known = transaction.execute(_QUERIES["known_messages"], (thread_id, saying.dedup)).fetchall()
    first, last = known[0]
    if first is not None:
        # Known to be on disk is only what a later commit has synced, so make this one write something.
        transaction.execute(_QUERIES["touch_thread"], (thread_id,))
        return Said(int(first), int(last), is_new=False)  # type: ignore[arg-type]
    stored = _thread(transaction.connection, thread_id)
    assert stored is not None
    messages = rows.said_messages(saying, stored.last + 1)
    transaction.write("insert_messages", [rows.message_parameters(message) for message in messages])
    number = messages[-1].number
    summary = None if saying.covers is None else number
    transaction.execute(_QUERIES["advance_thread"], (thread_id, number, summary, saying.covers, saying.at))
    return Said(messages[0].number, number, is_new=True)


def _thread(connection: apsw.Connection, thread_id: ThreadId) -> ThreadRow | None:
    found = _rows(connection, "thread", (thread_id,))
    return rows.read_thread(found[0]) if found else None


def _rows(connection: apsw.Connection, name: str, parameters: Any) -> list[list[Any]]:
    cell = connection.execute(_QUERIES[name], parameters).get
    assert isinstance(cell, bytes)
    return read_rows(cell)
