"""What a SQLite store finds out about itself, for `holdfast doctor` and `holdfast verify`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TypeVar

import apsw

from holdfast.model import RunId
from holdfast.store import migrate
from holdfast.store.locks import WorkerLocks
from holdfast.store.queries import load_queries
from holdfast.store.sqlite_files import network_file_system

T = TypeVar("T")


class Health:
    """The part of a store that looks at it as a whole. See `holdfast.store.base.Store`."""

    path: str
    _locks: WorkerLocks

    @property
    def durability(self) -> str:
        return "full"

    @property
    def trouble(self) -> str | None:
        raise NotImplementedError

    async def _read(self, work: Callable[[apsw.Connection], T], *, run_id: RunId | None = None) -> T:
        raise NotImplementedError

    async def check(self) -> list[str]:
        def work(connection: apsw.Connection) -> list[str]:
            try:
                problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)") if row[0] != "ok"]
            except apsw.CorruptError as error:
                problems = [f"the integrity check itself failed: {error}"]
            known = {migration.number: migration for migration in migrate.migrations("sqlite")}
            for number, name, sha in migrate.applied(connection):
                if number in known and known[number].sha256 != sha:
                    problems.append(f"migration {number} ({name}) was applied with another text than this Holdfast has")
            return problems

        problems = await self._read(work)
        file_system = network_file_system(self.path)
        if file_system is not None:
            problems.append(
                f"{self.path} is on a {file_system} file system, where SQLite's locks do not work reliably; "
                "use a local disk"
            )
        for path in (self.path, f"{self.path}-wal", f"{self.path}-shm", self._locks.directory):
            with contextlib.suppress(OSError):
                mode = os.stat(path).st_mode & 0o777
                if mode & 0o077:
                    problems.append(f"{path} can be accessed by others (mode {mode:04o}); make it {mode & 0o700:04o}")
        return problems

    async def statistics(self) -> dict[str, int | str]:
        def work(connection: apsw.Connection) -> dict[str, int | str]:
            runs, records, blobs, mail, workers = connection.execute(load_queries("sqlite")["counts"]).get
            return {
                "runs": runs,
                "records": records,
                "blob_chunks": blobs,
                "mail": mail,
                "workers": workers,
                "schema": len(migrate.applied(connection)),
                "page_size": connection.pragma("page_size"),
                "free_pages": connection.pragma("freelist_count"),
                "sqlite": apsw.sqlite_lib_version(),
                "durability": self.durability,
            }

        found = await self._read(work)
        for name, path in (("file_bytes", self.path), ("wal_bytes", f"{self.path}-wal")):
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(path).st_size
        file_system = network_file_system(self.path)
        if file_system is not None:
            found["network_file_system"] = file_system
        if self.trouble is not None:
            found["trouble"] = self.trouble
        return found
