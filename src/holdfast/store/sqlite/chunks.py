"""The files of runs in a SQLite store: chunks under their sha256."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from holdfast.model import Fence, Record, RunId
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.rows import read_records, read_rows

_QUERIES = load_queries("sqlite")
_POINTS = ("files.before_commit", "files.after_commit")


class SqliteFiles:
    """The part of a store that has the files of runs. See `holdfast.store.contract.FileStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put_chunks(self, run_id: RunId, chunks: Mapping[str, bytes], *, fence: Fence | None) -> None:
        def work(transaction: Transaction, again: bool) -> None:
            transaction.check_fence(fence)
            transaction.write("put_chunks", [(run_id, digest, data) for digest, data in chunks.items()])

        await self._database.write(work, _POINTS)

    async def known_chunks(self, run_id: RunId, digests: Sequence[str]) -> set[str]:
        which = (run_id, json.dumps(list(digests)))
        return set(await self._database.read(lambda connection: _values(connection, "known_chunks", which)))

    async def chunks(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        which = (run_id, json.dumps(list(digests)))

        def work(connection: apsw.Connection) -> dict[str, bytes]:
            found = connection.execute(_QUERIES["chunks"], which).fetchall()
            return {str(digest): data if isinstance(data, bytes) else b"" for digest, data in found}

        return await self._database.read(work)

    async def chunk_page(self, run_id: RunId, *, after: str, limit: int) -> list[str]:
        return await self._database.read(
            lambda connection: _values(connection, "chunk_page", (run_id, after, limit)), run_id=run_id
        )

    async def drop_chunks(self, run_id: RunId) -> None:
        await self._database.write(
            lambda transaction, _: transaction.execute(_QUERIES["drop_chunks"], (run_id,)), _POINTS
        )

    async def notes(self, run_id: RunId, name: str, *, digest: str | None = None) -> list[Record]:
        which = {"run_id": run_id, "name": name, "digest": digest}

        def work(connection: apsw.Connection) -> list[Record]:
            return read_records(run_id, _values(connection, "notes", which))

        return await self._database.read(work, run_id=run_id)


def _values(connection: apsw.Connection, name: str, parameters: Any) -> list[Any]:
    cell = connection.execute(_QUERIES[name], parameters).get
    assert isinstance(cell, bytes)
    return read_rows(cell)
