"""What a SQLite store finds out about itself, for `holdfast doctor` and `holdfast verify`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

import apsw

from holdfast.model import RunId
from holdfast.store import migrate
from holdfast.store.problems import Concern, Problem
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import lives, schema
from holdfast.store.sqlite.files import network_file_system
from holdfast.store.sqlite.locks import WorkerLocks
from holdfast.store.sqlite.owners import Owners, user_name

T = TypeVar("T")


class Health:
    """The part of a store that looks at it as a whole. See `holdfast.store.contract.Store`."""

    path: str
    _locks: WorkerLocks
    _owners: Owners

    @property
    def durability(self) -> str:
        return "full"

    @property
    def trouble(self) -> str | None:
        raise NotImplementedError

    async def _read(self, work: Callable[[apsw.Connection], T], *, run_id: RunId | None = None) -> T:
        raise NotImplementedError

    async def check(self) -> list[Problem]:
        def work(connection: apsw.Connection) -> list[Problem]:
            try:
                damage = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)") if row[0] != "ok"]
            except apsw.CorruptError as error:
                damage = [f"the integrity check itself failed: {error}"]
            known = {migration.number: migration for migration in migrate.migrations("sqlite")}
            for number, name, sha in migrate.applied(connection):
                if number in known and known[number].sha256 != sha:
                    damage.append(f"migration {number} ({name}) was applied with another text than this Holdfast has")
            damage += schema.problems(connection)
            replaced = [
                f"the lock file of worker {worker} in {self._locks.directory} is not the one that it locked, so it "
                "proves nothing; find out who replaced it"
                for worker in lives.replaced(connection, self._locks)
            ]
            return _problems(Concern.damage, damage) + _problems(Concern.owner, replaced)

        problems = await self._read(work)
        file_system = network_file_system(self.path)
        if file_system is not None:
            told = f"{self.path} is on a {file_system} file system, where SQLite's locks do not work reliably"
            problems.append(Problem(Concern.place, f"{told}; use a local disk"))
        problems += _problems(Concern.owner, self._owners.foreign(self.path, self._locks.directory))
        problems += _problems(Concern.access, self._owners.too_open(self.path, self._locks.directory))
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
        with contextlib.suppress(FileNotFoundError):
            found["owner"] = user_name(os.stat(self.path).st_uid)
        file_system = network_file_system(self.path)
        if file_system is not None:
            found["network_file_system"] = file_system
        if self.trouble is not None:
            found["trouble"] = self.trouble
        return found


def _problems(concern: Concern, texts: Iterable[str]) -> list[Problem]:
    return [Problem(concern, text) for text in texts]
