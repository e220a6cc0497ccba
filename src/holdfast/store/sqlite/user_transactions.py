"""The writer's connection, lent to the body of an effect.

SQLite has one writer at a time. So the changes that an effect makes to the user's own tables in the same file are made
between two commits of the store, on its connection, by the thread that the body runs in; the writer waits meanwhile.
It does not wait for ever: its worker's lease is renewed by the same writer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import apsw

from holdfast.errors import StoreError, UsageError
from holdfast.model import Definition, Landing
from holdfast.store import rows
from holdfast.store.queries import load_queries

#: What the tables of the store are called; bodies do not write to them.
OWN = frozenset(
    "migrations runs records blobs chunks landed mailbox questions definitions tags thread_heads thread_messages "
    "workers acts".split()
)
_ENDS = frozenset({apsw.SQLITE_TRANSACTION, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH})
_CHANGES = frozenset(
    {
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_CREATE_INDEX,
    }
)

Parameters = Sequence[Any] | Mapping[str, Any]


class Connection:
    """What a body does with the transaction that it was lent."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_lent = True

    def execute(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; its rows.

        Example: `connection.execute("SELECT amount FROM orders WHERE id = ?", (7,))`
        """
        with self._lock:
            self._check()
            try:
                return list(self._connection.execute(sql, parameters))
            except apsw.AuthError as error:
                raise _refusal(error) from None

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> None:
        """Execute a statement once for each of the rows.

        Example: `connection.executemany("INSERT INTO lines VALUES (?, ?)", [(1, "a"), (2, "b")])`
        """
        with self._lock:
            self._check()
            try:
                self._connection.executemany(sql, rows)
            except apsw.AuthError as error:
                raise _refusal(error) from None

    @property
    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self._connection.changes()

    @property
    def last_insert_rowid(self) -> int:
        return self._connection.last_insert_rowid()

    def take_back(self) -> None:
        """Wait for the statement under way; there are no more."""
        with self._lock:
            self._is_lent = False

    def _check(self) -> None:
        if not self._is_lent:
            raise StoreError(
                "This transaction is over: it ends with its effect, and takes a third of a worker's lease at most, "
                "because nothing else can be written meanwhile. Prepare what takes long in a step before it."
            )


class SqliteUserTransaction:
    """One transaction for one attempt of an effect; see `holdfast.store.contract.UserTransaction`."""

    def __init__(self, landing: Landing, submit: Callable[[Any], None], longest_s: float) -> None:
        self.landing = landing
        self.result: str | None = None  #: what to commit it with; None: it is rolled back
        self._submit = submit
        self._longest_s = longest_s
        self._lent: Future[Connection] = Future()
        self._is_back = threading.Event()
        self._ended: Future[bool] = Future()
        self._connection: Connection | None = None

    # for the effect

    @property
    def has_begun(self) -> bool:
        return self._connection is not None

    @property
    def was_lost(self) -> bool:
        return False

    async def begin(self) -> Any:
        raise UsageError(
            "In a SQLite store an effect that uses hf.transaction() is a plain function: `def` instead of `async def`, "
            "and `with hf.transaction() as connection:`."
        )

    def begin_here(self) -> Connection:
        if self._connection is None:
            self._lent, self._ended, self.result = Future(), Future(), None
            self._is_back.clear()
            self._submit(self)
            self._connection = self._lent.result()
        return self._connection

    def spoil(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.take_back()
            self._is_back.set()

    async def land(self, result: str) -> bool:
        assert self._connection is not None
        self._connection.take_back()
        self.result = result
        self._is_back.set()
        return await asyncio.wrap_future(self._ended)

    async def roll_back(self) -> None:
        if self._connection is not None:
            self.spoil()
            with suppress(StoreError):  # it was rolled back before, and why was told to the body
                await asyncio.wrap_future(self._ended)

    # for the writer, which has begun a transaction

    def lend(self, connection: apsw.Connection) -> bool:
        """Return when the body is done with the connection: whether what it did is to be committed."""
        lent = Connection(connection)
        connection.authorizer = _authorize
        try:
            self._lent.set_result(lent)
            is_back = self._is_back.wait(self._longest_s)
            if not is_back:
                connection.interrupt()
                lent.take_back()
        finally:
            connection.authorizer = None
        if not is_back:
            raise StoreError(
                f"An effect of run {self.landing.run_id} had the store's connection for {self._longest_s:.0f} s; what "
                "it did was rolled back, so that others can write. Prepare what takes long in a step before it."
            )
        return self.result is not None and connection.in_transaction

    def end(self, outcome: bool | Exception) -> None:
        """Say what became of it."""
        waiting = self._ended if self._lent.done() else self._lent
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            self._ended.set_result(outcome)


def define_within(connection: Any, path: str, definitions: Sequence[Definition]) -> list[bool]:
    """Write definitions with a connection of the user's own, of apsw, in the transaction it has open."""
    if not isinstance(connection, apsw.Connection) or not connection.in_transaction:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}".removeprefix("builtins.")
        raise UsageError(
            "transaction= takes an apsw.Connection with an open transaction (BEGIN), to the file of the store; got "
            f"{'one without' if isinstance(connection, apsw.Connection) else kind}. A second SQLite library in one "
            "process, as `sqlite3` is, does not see the locks of the first."
        )
    files = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
    if not files or os.path.realpath(files[0]) != path:
        raise UsageError(f"transaction= takes a connection to {path}; this one is to {files[0] if files else '?'}.")
    insert = load_queries("sqlite")["define_first"]
    return [
        bool(list(connection.execute(f"{insert} RETURNING 1", rows.definition_parameters(each))))
        for each in definitions
    ]


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    """Bodies neither end the transaction nor write to the store's own tables."""
    if action in _ENDS or (action in _CHANGES and (first in OWN or second in OWN)):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


def _refusal(error: apsw.AuthError) -> UsageError:
    return UsageError(
        f"Inside hf.transaction() a statement was refused ({error}): the transaction is committed when the effect has "
        "returned, by Holdfast, whose own tables are written by itself alone."
    )
