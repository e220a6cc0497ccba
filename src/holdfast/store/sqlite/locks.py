"""Locks that the operating system drops when a process dies: one file per worker, and one for opening the store.

`flock` belongs to the open file: it ends with the last descriptor, however the process ended. A worker takes its lock
before its row exists and keeps it; whoever can lock the file of a known worker knows that it is dead. A missing file
proves nothing (somebody tidied up), nor does another one under its name. Descriptors are closed in forked children,
which would otherwise keep a dead parent alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from enum import Enum

from holdfast.base import clock
from holdfast.errors import StoreError
from holdfast.model import WorkerId
from holdfast.store import forks
from holdfast.store.sqlite.owners import Owners, open_unlinked

_OPENING = "open"


class LockState(Enum):
    """What a worker's lock file says."""

    alive = "alive"
    dead = "dead"
    unknown = "unknown"


class WorkerLocks:
    """The lock files of one store, in a directory next to it."""

    def __init__(self, directory: str, owners: Owners | None = None) -> None:
        self.directory = directory
        self._owners = owners or Owners()
        self._held: dict[WorkerId, int] = {}
        forks.register(self)

    def forked(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    @property
    def own(self) -> frozenset[WorkerId]:
        """Workers whose locks this process holds."""
        return frozenset(self._held)

    def prepare(self) -> None:
        self._owners.take_folder(self.directory)

    def take(self, worker_id: WorkerId) -> int:
        """Hold a worker's lock until `drop` or death; the number of the file, by which others know it."""
        if worker_id in self._held:
            return os.fstat(self._held[worker_id]).st_ino
        self.prepare()
        descriptor = self._owners.open(self._file(worker_id), os.O_RDWR | os.O_CREAT)
        try:
            if not _lock(descriptor, self.directory):
                raise StoreError(f"Worker {worker_id} is locked by another process; worker ids must be unique.")
        except StoreError:
            os.close(descriptor)
            raise
        self._held[worker_id] = descriptor
        return os.fstat(descriptor).st_ino

    def drop(self, worker_id: WorkerId) -> None:
        """Delete a worker's lock file, own or of a dead one."""
        with contextlib.suppress(OSError):
            os.unlink(self._file(worker_id))
        descriptor = self._held.pop(worker_id, None)
        if descriptor is not None:
            os.close(descriptor)

    def drop_all(self) -> None:
        """Let go of everything held, leaving the files: their rows are still there."""
        while self._held:
            os.close(self._held.popitem()[1])

    def look(self, worker_id: WorkerId, inode: int | None) -> LockState:
        """Whether a worker's process lives; never waits, leaves nothing locked. `inode`: of the file that it locked."""
        if worker_id in self._held:
            return LockState.alive
        try:
            return self._look(self._file(worker_id), inode=inode) if inode is not None else LockState.unknown
        except StoreError:
            return LockState.unknown  # a damaged row must not hide the other workers

    def is_replaced(self, worker_id: WorkerId, inode: int) -> bool:
        """Whether another file has the name of the one that a worker locked."""
        try:
            return os.lstat(self._file(worker_id)).st_ino != inode
        except (OSError, StoreError):
            return False

    def any_alive(self) -> bool:
        """Whether any worker of this store lives, in this process or another."""
        if self._held:
            return True
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return False
        return any(
            self._look(os.path.join(self.directory, name)) is LockState.alive
            for name in names
            if name.endswith(".lock") and name != f"{_OPENING}.lock"
        )

    def _look(self, path: str, *, inode: int | None = None) -> LockState:
        try:
            descriptor = open_unlinked(path, os.O_RDONLY)
        except OSError:
            return LockState.unknown
        try:
            if inode is not None and os.fstat(descriptor).st_ino != inode:
                return LockState.unknown
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return LockState.dead
        except BlockingIOError:
            return LockState.alive
        except OSError:
            return LockState.unknown  # a file system without flock
        finally:
            os.close(descriptor)

    def _file(self, worker_id: str) -> str:
        if not worker_id or not worker_id.isascii() or not worker_id.replace("_", "").replace("-", "").isalnum():
            raise StoreError(f"Worker id {worker_id!r} cannot name a file; use letters, digits, - and _.")
        return os.path.join(self.directory, f"{worker_id}.lock")

    @contextlib.contextmanager
    def opening(self, timeout_s: float) -> Iterator[None]:
        """One process at a time creates, checks and migrates the store."""
        self.prepare()
        descriptor = self._owners.open(os.path.join(self.directory, f"{_OPENING}.lock"), os.O_RDWR | os.O_CREAT)
        try:
            give_up = clock.monotonic_us() + int(timeout_s * 1e6)
            while not _lock(descriptor, self.directory):
                if clock.monotonic_us() > give_up:
                    raise StoreError(
                        f"Another process has been opening this store for {timeout_s:g} s; "
                        f"look for a hung one: `fuser {self.directory}/*`."
                    )
                time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int, directory: str) -> bool:
    """Lock a file, unless somebody has; StoreError where files cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"Files in {directory} cannot be locked ({error.strerror}), so it could not be told which processes live. "
            "Use a path on a disk of this machine."
        ) from error
    return True
