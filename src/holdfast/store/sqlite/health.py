"""What a SQLite store finds out about itself, for `holdfast doctor` and `holdfast verify`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import apsw

from holdfast.model import RunId
from holdfast.store import migrate
from holdfast.store.problems import Concern, Problem
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import liveness, schema
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.files import network_file_system
from holdfast.store.sqlite.owners import user_name

#: What was acknowledged survives power loss; there is no weaker mode.
DURABILITY = "full"


class Health:
    """The part of a store that looks at it as a whole. See `holdfast.store.upkeep.Upkeep`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check(self) -> list[Problem]:
        path, locks, owners = self._database.path, self._database.locks, self._database.owners

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
                f"the lock file of worker {worker} in {locks.directory} is not the one that it locked, so it "
                "proves nothing; find out who replaced it"
                for worker in liveness.replaced(connection, locks)
            ]
            return _problems(Concern.damage, damage) + _problems(Concern.owner, replaced)

        problems = await self._database.read(work)
        file_system = network_file_system(path)
        if file_system is not None:
            told = f"{path} is on a {file_system} file system, where SQLite's locks do not work reliably"
            problems.append(Problem(Concern.place, f"{told}; use a local disk"))
        problems += _problems(Concern.owner, owners.foreign(path, locks.directory))
        problems += _problems(Concern.access, owners.too_open(path, locks.directory))
        return problems

    async def largest(self, limit: int) -> list[tuple[RunId, int, int]]:
        def work(connection: apsw.Connection) -> list[tuple[RunId, int, int]]:
            found = connection.execute(load_queries("sqlite")["largest_runs"], (limit,))
            return [(RunId(str(run_id)), int(records), int(size)) for run_id, records, size in found]

        return await self._database.read(work)

    async def statistics(self) -> dict[str, int | str]:
        path = self._database.path

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
                "durability": DURABILITY,
            }

        found = await self._database.read(work)
        for name, file in (("file_bytes", path), ("wal_bytes", f"{path}-wal")):
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(file).st_size
        with contextlib.suppress(FileNotFoundError):
            found["owner"] = user_name(os.stat(path).st_uid)
        file_system = network_file_system(path)
        if file_system is not None:
            found["network_file_system"] = file_system
        if self._database.trouble is not None:
            found["trouble"] = self._database.trouble
        return found


def _problems(concern: Concern, texts: Iterable[str]) -> list[Problem]:
    return [Problem(concern, text) for text in texts]
