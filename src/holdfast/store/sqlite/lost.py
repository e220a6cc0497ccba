"""Before a store is opened: whether its files have all that was committed to them, as the marks of processes say.

Where processes live that use the store, the log changes meanwhile: its frames are not read then, its length is. The
marks are read first, because what they say stays true whatever is committed after.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import apsw

from holdfast.errors import StoreCorrupt
from holdfast.store.sqlite.files import close_quietly
from holdfast.store.sqlite.locks import WorkerLocks
from holdfast.store.sqlite.marks import SUFFIX, Found, marks, stored_count
from holdfast.store.sqlite.owners import open_unlinked
from holdfast.store.sqlite.wal import Log, check_wal

_LOG_HEADER = struct.Struct(">8xI4x8s")  # of which the page size and the salts
_LOG_HEADER_BYTES, _FRAME_HEADER = 32, 24


class LeftBehind(NamedTuple):
    """What is known of a store that is about to be opened."""

    marks: list[Found]
    log: Log | None  #: None: it is missing or empty


def check_there(path: str, directory: str) -> None:
    """Raise StoreCorrupt if the database is missing or empty and is not a new one: SQLite would delete its log."""
    size = _size(path)
    if size:
        return
    what = "missing" if size is None else "empty"
    if (_size(f"{path}-wal") or 0) > _LOG_HEADER_BYTES:
        raise StoreCorrupt(
            f"{path} is {what}, and its log {path}-wal is not. SQLite would delete what was committed there, so the "
            "store was not opened; nothing was changed. Put the file back that the log belongs to, or restore a "
            f"backup. To begin a new store: rm -f {path} {path}-wal"
        )
    if size is not None and (found := marks(directory)):
        raise _lost(max(found, key=lambda mark: mark.number), f"{path} is {what}", "file back")


def check_past(path: str, locks: WorkerLocks, connect: Callable[[], apsw.Connection]) -> LeftBehind:
    """Raise StoreCorrupt if the log has lost commits. `connect` makes a connection that makes no log."""
    if not _size(path):
        return LeftBehind([], None)  # a new file has lost nothing, whatever was here
    for _ in range(3):
        with contextlib.suppress(apsw.Error, StoreCorrupt):
            return _look(path, locks, connect)
        time.sleep(0.02)  # a process may be writing right now
    return _look(path, locks, connect)


def check_count(path: str, past: LeftBehind, connection: apsw.Connection) -> None:
    """Raise StoreCorrupt if the database is older than what processes noted that wrote to it."""
    most = max(past.marks, key=lambda mark: mark.number, default=None)
    if most is None or stored_count(connection) >= most.number:
        return
    if past.log is None:
        what = "empty" if os.path.exists(f"{path}-wal") else "missing"
        raise _lost(most, f"{path}-wal is {what}, and {path} does not have what was committed to it")
    raise _lost(most, f"{path} and its -wal are older than what was committed to them")


def _look(path: str, locks: WorkerLocks, connect: Callable[[], apsw.Connection]) -> LeftBehind:
    wal = f"{path}-wal"
    found = marks(locks.directory)
    log = _length_of(wal) if locks.any_alive() else check_wal(wal)
    for mark in found:
        if log is not None and log.salts == mark.salts and log.frames < mark.frames:
            raise _lost(
                mark,
                f"{wal} is cut short: {log.frames} of the {mark.frames} frames that were committed to it can be read",
            )
    past = LeftBehind(found, log)
    if found and log is None:
        connection = connect()
        try:
            check_count(path, past, connection)
        finally:
            close_quietly(connection, checkpoint=False)
    return past


def _length_of(wal: str) -> Log | None:
    """What can be in a log that somebody may be writing to."""
    with contextlib.suppress(FileNotFoundError), open(wal, "rb", opener=open_unlinked) as file:
        header = file.read(_LOG_HEADER_BYTES)
        if len(header) == _LOG_HEADER_BYTES:
            page_size, salts = _LOG_HEADER.unpack_from(header)
            length = os.fstat(file.fileno()).st_size - _LOG_HEADER_BYTES
            return Log(salts, length // (_FRAME_HEADER + page_size))
    return None


def _lost(mark: Found, what: str, remedy: str = "-wal back that belongs to the file") -> StoreCorrupt:
    return StoreCorrupt(
        f"{what}, as {mark.file} says, the mark of a process that did not end in good order, or has not yet. "
        "Acknowledged commits are gone, and effects in them would be done again, so the store was not opened; nothing "
        f"was changed. Put the {remedy}, or restore a backup. To go on without what is lost: rm "
        f"{os.path.join(os.path.dirname(mark.file), '*' + SUFFIX)}"
    )


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
