"""What was said in threads, in a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.base import faults
from holdfast.errors import Fenced
from holdfast.model import Fence, Message, Said, Saying, ThreadId, ThreadRow
from holdfast.store import rows
from holdfast.store.postgres.apply import columns
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.reads import Reads
from holdfast.store.thread_store import ENDLESS

_SAY_POINTS = ("say.before_commit", "say.after_commit")


class PostgresThreads:
    """The part of a store that has threads. See `holdfast.store.thread_store.ThreadStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries

    async def say(self, saying: Saying, *, fence: Fence | None = None) -> Said:
        said = (saying.thread_id, list(saying.bodies), saying.at, saying.author, saying.covers, saying.dedup)

        async def work(connection: Any, again: bool) -> Said:
            found = await connection.fetchval(
                self._queries["append_messages"],
                *said,
                list(saying.digests),
                *(fence or (None, None, None)),
                timeout=STATEMENT_S,
            )
            if found is None:
                assert fence is not None
                raise Fenced(f"Run {fence.run_id} has another owner by now; nothing was changed for it.")
            return Said(found[0], found[1], is_new=bool(found[2]))

        said_now: Said = await self._database.write(work, _SAY_POINTS)
        return said_now

    async def thread(self, thread_id: ThreadId) -> ThreadRow | None:
        async def work(reads: Reads) -> ThreadRow | None:
            found = await reads.found("thread", thread_id)
            return rows.read_thread(found[0]) if found else None

        return await self._database.read(work)

    async def threads(self, *, id_prefix: str, after: str, limit: int) -> list[ThreadRow]:
        async def work(reads: Reads) -> list[ThreadRow]:
            return [rows.read_thread(values) for values in await reads.found("threads", id_prefix, after, limit)]

        return await self._database.read(work)

    async def messages(
        self, thread_id: ThreadId, *, after: int, upto: int | None, limit: int, newest: bool
    ) -> list[Message]:
        name = "messages_newest" if newest else "messages"
        which = (thread_id, after, ENDLESS if upto is None else upto, limit)

        async def work(reads: Reads) -> list[Message]:
            return [rows.read_message(values) for values in await reads.found(name, *which)]

        return await self._database.read(work)

    async def idle_threads(self, *, before: int, strays: bool, limit: int) -> list[ThreadId]:
        async def work(reads: Reads) -> list[ThreadId]:
            return [ThreadId(each) for (each,) in await reads.found("idle_threads", before, strays, limit)]

        return await self._database.read(work)

    async def forget_thread(self, thread_id: ThreadId, *, before: int, strays: bool) -> bool:
        async def work(connection: Any, again: bool) -> bool:
            await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
            which = (before, strays, thread_id)
            gone = await connection.fetchval(self._queries["forget_thread"], *which, timeout=STATEMENT_S)
            if gone is not None:
                await connection.execute(self._queries["forget_messages"], thread_id, timeout=STATEMENT_S)
            faults.point("prune.before_commit")
            await connection.execute("COMMIT", timeout=STATEMENT_S)
            return gone is not None

        return bool(await self._database.write(work, ("", "prune.after_commit")))

    async def put_messages(self, messages: Sequence[Message], row: ThreadRow) -> bool:
        async def work(connection: Any, again: bool) -> bool:
            await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
            stored = await connection.fetchrow(self._queries["lock_thread"], row.id, timeout=STATEMENT_S)
            is_next = (stored[1] if stored is not None else 0) == messages[0].number - 1
            if is_next:
                values = columns([rows.message_parameters(message) for message in messages], 8)
                await connection.execute(self._queries["insert_messages"], *values, timeout=STATEMENT_S)
                await connection.execute(self._queries["put_thread"], *row, timeout=STATEMENT_S)
            faults.point(_SAY_POINTS[0])
            await connection.execute("COMMIT", timeout=STATEMENT_S)
            return is_next

        return bool(await self._database.write(work, ("", _SAY_POINTS[1])))
