"""Where names in our statements are looked up: in PostgreSQL's own schema, and nowhere else.

Whoever may create in a schema of the search_path (`public`, by default up to PostgreSQL 14) can put an operator or a
function there that fits the types of a call better than PostgreSQL's own. It would be executed with our rights. So our
sessions have a path of their own (`PATH`), and so have the functions of the schema.

Behind a pooler in transaction mode there are no sessions to set anything for. There each statement becomes a
transaction that begins with the path (`Pinned`), which is two more trips to the server. A lone call of a function of
the schema needs none: its name is qualified, and the function has a path of its own.

The connections that effects are lent have the user's path: the statements on them are the user's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from holdfast.store.queries import Queries, load_queries

#: Last what is the session's own: its temporary tables and types.
PATH = "pg_catalog, pg_temp"

_CONNECT_S = 10.0
_ROLLBACK_S = 5.0


class Pinned:
    """A connection of the driver, through a pooler, whose statements have the path; what it does not have is asked of
    the connection itself."""

    @classmethod
    async def of(cls, connection: Any, schema: str, *, read_only: bool) -> Pinned:
        pinned = cls(connection, load_queries("postgres", schema), schema, read_only=read_only)
        try:
            # The driver looks types up when it meets them first, by statements of its own: not in a lone call.
            await pinned.fetchrow(pinned._queries["types"], timeout=_CONNECT_S)
        except BaseException:
            connection.terminate()
            raise
        return pinned

    def __init__(self, connection: Any, queries: Queries, schema: str, *, read_only: bool) -> None:
        self._connection = connection
        self._queries = queries
        self._begin = queries["begin_reading" if read_only else "begin_pinned"]
        self._call = f"SELECT {schema}."

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, sql: str, *parameters: Any, timeout: float | None = None) -> Any:
        async with self._transaction(sql, timeout):
            return await self._connection.fetch(sql, *parameters, timeout=timeout)

    async def fetchrow(self, sql: str, *parameters: Any, timeout: float | None = None) -> Any:
        async with self._transaction(sql, timeout):
            return await self._connection.fetchrow(sql, *parameters, timeout=timeout)

    async def fetchval(self, sql: str, *parameters: Any, timeout: float | None = None) -> Any:
        async with self._transaction(sql, timeout):
            return await self._connection.fetchval(sql, *parameters, timeout=timeout)

    async def execute(self, sql: str, *parameters: Any, timeout: float | None = None) -> Any:
        async with self._transaction(sql, timeout):
            return await self._connection.execute(sql, *parameters, timeout=timeout)

    def transaction(self, **how: Any) -> AbstractAsyncContextManager[None]:
        return self._pinned(self._connection.transaction(**how))

    @asynccontextmanager
    async def _pinned(self, transaction: Any) -> AsyncIterator[None]:
        async with transaction:
            await self._connection.execute(self._queries["pin"])
            yield

    @asynccontextmanager
    async def _transaction(self, sql: str, timeout: float | None) -> AsyncIterator[None]:
        """For a statement that is in none, and begins none itself."""
        connection = self._connection
        if connection.is_in_transaction() or sql.startswith(("BEGIN ", self._call)):
            yield
            return
        await connection.execute(self._begin, timeout=timeout)
        try:
            yield
        except Exception:
            if not connection.is_closed():
                await connection.execute("ROLLBACK", timeout=_ROLLBACK_S)
            raise
        await connection.execute("COMMIT", timeout=timeout)
