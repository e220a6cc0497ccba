"""Other SQLite libraries in this process, kept away from the files of an open store.

POSIX locks belong to the process. A second copy of SQLite (Python's `sqlite3` next to apsw) therefore never meets the
locks of the first, takes itself for the only user of the file, empties the shared index of the log when it opens it,
and deletes the log when it closes. And whoever closes a descriptor of a file, with SQLite or without, drops all locks
that the process has on it. So:

1. `sqlite3.connect` of a file of an open store is refused by an audit hook, before it opens anything. Such a hook is
   called for much else, too (all that asks for the code of a frame or a coroutine), so there is none before `sqlite3`
   is imported.
2. A store is not opened while something else in this process has the file open.
3. What neither can see (ATTACH, another library) meets locks of our own that belong to an open file, not to the
   process: one on the range that a connection has to lock alone before it may delete the log, one on the byte of the
   index by which a connection finds out whether it is the first. Other processes meet such locks all the time.

Our own descriptors for that are closed when no connection of apsw's to the file is left in the process, never before.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import unquote_to_bytes

import apsw

from holdfast.base import system
from holdfast.errors import UsageError
from holdfast.store import forks
from holdfast.store.sqlite.owners import open_unlinked

#: Where SQLite's locks are: of all that read the database, and of all that have the index of the log open.
_READERS = (0x40000002, 510)
_USERS = (128, 1)
_INDEX_BYTES = 136  # of the index: its header, twice, and how much was checkpointed
_LOOKS = 20  # at a file that seems to be somebody else's: another thread may be opening a store
_WAY_ON = (
    "Within one process SQLite's locks work for one copy of the library only. Use apsw, which Holdfast uses, or do it "
    "from another process."
)


class Held:
    """The descriptors and locks of one database in this process; stores on the same file share them."""

    def __init__(self, path: str, file: forks.FileId, held_by: _Process) -> None:
        self.file = file
        self.index: mmap.mmap | None = None  #: of the log, to look at
        self.stores = 0
        self.path = path
        self._process = held_by
        self._locking = 0
        self.descriptors: list[int] = []
        self.main = self._opened(path)
        with contextlib.suppress(OSError, ValueError):
            self.index = mmap.mmap(self._opened(f"{path}-shm"), _INDEX_BYTES, access=mmap.ACCESS_READ)

    def loosen(self) -> None:
        """Before the last connection is closed: it may remove the log."""
        with self._process.lock:
            self._locking -= 1
            if not self._locking:
                self._set(fcntl.F_UNLCK)

    def let_go(self) -> None:
        """After the connections were closed."""
        with self._process.lock:
            self.stores -= 1
            self._process.tidy()

    # called with the lock of the process held

    def take(self) -> None:
        self.stores += 1
        self._locking += 1
        if self._locking == 1:
            self._set(fcntl.F_RDLCK)

    def close(self) -> None:
        if self.index is not None:
            self.index.close()  # it has a descriptor of its own
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()

    def _opened(self, path: str) -> int:
        descriptor = open_unlinked(path, os.O_RDONLY)
        self.descriptors.append(descriptor)
        return descriptor

    def _set(self, kind: int) -> None:
        for descriptor, (start, length) in zip(self.descriptors, (_READERS, _USERS), strict=False):
            system.lock_open_file(descriptor, kind, start, length)


class _Process:
    """What this process has open."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: Counter[str] = Counter()  # paths of stores
        self._held: dict[tuple[forks.FileId, forks.FileId | None], Held] = {}  # by database and index
        self._is_hooked = False
        forks.register(self)

    def forked(self) -> None:
        """The locks are the parent's: closing a copy of its descriptor leaves them alone, unlocking would not."""
        self.lock = threading.RLock()
        for held in self._held.values():
            held.close()
        self._held.clear()
        self._open.clear()

    def open(self, path: str) -> None:
        with self.lock:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            if any(map(_is_library, list(sys.modules))):
                self._hear()
            self._open[path] += 1

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Something is imported: if it is the other library, hear of what it opens."""
        if _is_library(name):
            self._hear()

    def _hear(self) -> None:
        with self.lock:
            if not self._is_hooked:
                sys.addaudithook(self._audit)  # for good: it cannot be taken away
                self._is_hooked = True

    def close(self, path: str) -> None:
        with self.lock:
            self._open[path] -= 1
            self._open += Counter()  # without what is zero

    def hold(self, path: str) -> Held:
        file = _file_id(path)
        assert file is not None
        with self.lock:
            index = _file_id(f"{path}-shm")
            held = self._held.get((file, index))
            if held is None:
                held = self._held[file, index] = Held(path, file, self)
            held.take()
            return held

    def tidy(self) -> None:
        """Close what is not needed, unless that would drop the locks of a connection of apsw's, ours or the user's."""
        for files, held in list(self._held.items()):
            if not held.stores and not _has_apsw(held.file):
                del self._held[files]
                held.close()

    def descriptors_of(self, file: forks.FileId) -> set[int]:
        return {each for held in self._held.values() if held.file == file for each in held.descriptors}

    def owner_of(self, path: str) -> str | None:
        """The open store that a file belongs to, by whatever name."""
        file = _file_id(path)
        if file is None:
            return None
        with self.lock:
            for store in self._open:
                if any(_file_id(f"{store}{suffix}") == file for suffix in ("", "-wal", "-shm")):
                    return store
            return next((held.path for held in self._held.values() if held.file == file and held.stores), None)

    def own_files(self) -> set[int]:
        with self.lock:
            found = [_file_id(f"{store}{suffix}") for store in self._open for suffix in ("", "-wal", "-shm")]
        return {file[1] for file in found if file is not None}

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "sqlite3.connect" or not self._open:
            return
        for name in _names(arguments[0]):
            store = self.owner_of(name)
            if store is not None:
                raise UsageError(
                    f"sqlite3.connect({arguments[0]!r}) was refused: this process has the store {store} open, and a "
                    f"second SQLite library on its files would delete what was committed. {_WAY_ON}"
                )


def _is_library(module: str) -> bool:
    return module.rpartition(".")[2] == "_sqlite3"


def _names(given: Any) -> list[str]:
    """The files that `sqlite3.connect` may mean; it does not tell whether it takes its argument for a URI."""
    try:
        name = os.fsdecode(given)
    except TypeError:
        return []
    if not name.startswith("file:"):
        return [name]
    place = name.removeprefix("file:").partition("#")[0].partition("?")[0]
    if place.startswith("//"):
        place = "/" + place[2:].partition("/")[2]
    return [name, os.fsdecode(unquote_to_bytes(place).partition(b"\0")[0])]


def _file_id(path: str | int) -> forks.FileId | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _has_apsw(file: forks.FileId) -> bool:
    """Whether a connection of apsw's in this process has a database open, or may have: it is busy."""
    for connection in apsw.connections():
        try:
            names = [connection.db_filename(name) for name in connection.db_names()]
        except apsw.Error:
            return True
        if any(name and _file_id(name) == file for name in names):
            return True
    return False


_process = _Process()  # locks are of the process, and so is the hook

watch_over = _process.open
leave_alone = _process.close
hold = _process.hold
owner_of = _process.owner_of
own_files = _process.own_files  #: the inodes of all files of stores that are open here


def check_alone(path: str) -> None:
    """Raise UsageError if something in this process that is not apsw has the database open."""
    file = _file_id(path)
    found: set[int] = set()
    for _ in range(_LOOKS):
        if file is None or not (found := _descriptors(file)) or _has_apsw(file):
            return
        time.sleep(0.01)
    raise UsageError(
        f"This process has {path} open already, and not with apsw (descriptor {min(found)}): a connection of sqlite3, "
        f"or an open(). Closing it would drop the store's locks. Close it first. {_WAY_ON}"
    )


def _descriptors(file: forks.FileId) -> set[int]:
    """Descriptors of this process on a file, except our own."""
    found = {each for each in system.descriptors() if _file_id(each) == file}
    return found - _process.descriptors_of(file)
