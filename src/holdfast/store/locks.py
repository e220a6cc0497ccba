"""Locks that the operating system drops when a process dies: one file per worker, and one for opening the store.

`flock` belongs to the open file: it ends with the last descriptor, however the process ended. A worker takes its lock
before its row exists and keeps it; whoever can lock the file of a known worker knows that it is dead. A missing file
proves nothing (somebody tidied up). Descriptors are closed in forked children, which would otherwise keep a dead
parent alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from enum import Enum

from holdfast import clock
from holdfast.errors import StoreError
from holdfast.model import Worker, WorkerId
from holdfast.store import forks

_OPENING = "open"


class Life(Enum):
    """What a worker's lock file says."""

    alive = "alive"
    dead = "dead"
    unknown = "unknown"


class WorkerLocks:
    """The lock files of one store, in a directory next to it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
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
        os.makedirs(self.directory, mode=0o700, exist_ok=True)

    def take(self, worker_id: WorkerId) -> None:
        """Hold a worker's lock until `drop` or death."""
        if worker_id in self._held:
            return
        self.prepare()
        descriptor = os.open(self._file(worker_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"Worker {worker_id} is locked by another process; worker ids must be unique.") from error
        self._held[worker_id] = descriptor

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

    def look(self, worker_id: WorkerId) -> Life:
        """Whether a worker's process lives; never waits, leaves nothing locked."""
        if worker_id in self._held:
            return Life.alive
        try:
            return self._look(self._file(worker_id))
        except StoreError:
            return Life.unknown  # a damaged row must not hide the other workers

    def proof_of_death(self, worker: Worker, now_ms: int) -> str | None:
        """What shows that a worker is gone, if anything; `now_ms`: of the clock of leases."""
        if worker.id in self.own:
            return None
        if worker.boot_id != clock.boot_id():
            return "boot"
        if self.look(worker.id) is Life.dead:
            return "lock"
        return "lease" if worker.lease_until_ms < now_ms else None

    def any_alive(self) -> bool:
        """Whether any worker of this store lives, in this process or another."""
        if self._held:
            return True
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return False
        return any(
            self._look(os.path.join(self.directory, name)) is Life.alive
            for name in names
            if name.endswith(".lock") and name != f"{_OPENING}.lock"
        )

    def _look(self, path: str) -> Life:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return Life.unknown
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return Life.dead
        except BlockingIOError:
            return Life.alive
        except OSError:
            return Life.unknown  # a file system without flock
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
        descriptor = os.open(
            os.path.join(self.directory, f"{_OPENING}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            give_up = clock.monotonic_us() + int(timeout_s * 1e6)
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if clock.monotonic_us() > give_up:
                        raise StoreError(
                            f"Another process has been opening this store for {timeout_s:g} s; "
                            f"look for a hung one: `fuser {self.directory}/*`."
                        ) from None
                    time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)
