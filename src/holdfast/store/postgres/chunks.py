"""The files of runs in a PostgreSQL store: chunks under their sha256."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import Fenced
from holdfast.model import Fence, Record, RunId
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.reads import Reads

_POINTS = ("files.before_commit", "files.after_commit")


class PostgresFiles:
    """The part of a store that has the files of runs. See `holdfast.store.contract.FileStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries

    async def put_chunks(self, run_id: RunId, chunks: Mapping[str, bytes], *, fence: Fence | None) -> None:
        async def work(connection: Any, again: bool) -> None:
            parameters = (run_id, list(chunks), list(chunks.values()), *(fence or (None, None, None)))
            if not await connection.fetchval(self._queries["put_chunks"], *parameters, timeout=STATEMENT_S):
                raise Fenced(f"Run {run_id} has another owner by now; nothing was changed for it.")

        await self._database.write(work, _POINTS)

    async def known_chunks(self, run_id: RunId, digests: Sequence[str]) -> set[str]:
        async def work(reads: Reads) -> set[str]:
            return {digest for (digest,) in await reads.found("known_chunks", run_id, list(digests))}

        return await self._database.read(work)

    async def chunks(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        async def work(reads: Reads) -> dict[str, bytes]:
            return {digest: bytes(data) for digest, data in await reads.found("chunks", run_id, list(digests))}

        return await self._database.read(work)

    async def chunk_page(self, run_id: RunId, *, after: str, limit: int) -> list[str]:
        async def work(reads: Reads) -> list[str]:
            return [digest for (digest,) in await reads.found("chunk_page", run_id, after, limit)]

        return await self._database.read(work)

    async def drop_chunks(self, run_id: RunId) -> None:
        async def work(connection: Any, again: bool) -> None:
            await connection.execute(self._queries["drop_chunks"], run_id, timeout=STATEMENT_S)

        await self._database.write(work, _POINTS)

    async def notes(self, run_id: RunId, name: str, *, digest: str | None = None) -> list[Record]:
        async def work(reads: Reads) -> list[Record]:
            return list(map(Record._make, await reads.found("notes", run_id, name, digest)))

        return await self._database.read(work)
