"""What a SQLite store does, counted instead of timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.store.contract import Store
from holdfast.store.sqlite.store import SqliteStore


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """What the thread that writes has SQLite do meanwhile; for each of them it may wait for the interpreter lock."""
    assert isinstance(store, SqliteStore)
    assert store._database.writer is not None
    connection, done = store._database.writer.connection, list[str]()

    def note(_: apsw.Cursor, sql: str, bindings: object) -> bool:
        done.append(sql)
        return True

    connection.exec_trace = note
    try:
        yield done
    finally:
        connection.exec_trace = None
