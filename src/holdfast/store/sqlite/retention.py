"""What a SQLite store removes, what it takes in from elsewhere, and copies of the whole file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.base import system
from holdfast.errors import StoreError, UsageError
from holdfast.model import Act, Append, Ended, Removal, RunId, RunRow, SchemaStep, Whole
from holdfast.store import migrate, rows
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import reads
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.errors import explain
from holdfast.store.sqlite.files import close_quietly, distrust_schema, sync_folder
from holdfast.store.sqlite.marks import go_ahead
from holdfast.store.sqlite.owners import open_unlinked
from holdfast.store.sqlite.rows import read_rows

_QUERIES = load_queries("sqlite")
_PRUNE_POINTS = ("prune.before_commit", "prune.after_commit")
_COPY_POINTS = ("copy.before_commit", "copy.after_commit")
_MOST_QUESTIONS = 1_000_000


class SqliteRetention:
    """The part of a store that removes runs, takes them in and copies them. See `holdfast.store.upkeep.Upkeep`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ended(
        self, agent: str, *, before: int, limit: int, after: tuple[int, RunId] | None = None
    ) -> list[Ended]:
        after_at, after_id = after or (-(2**62), "")
        which = {"agent": agent, "before": before, "after_at": after_at, "after_id": after_id, "limit": limit}

        def work(connection: apsw.Connection) -> list[Ended]:
            found = _rows(connection, "ended", which)
            return [Ended(rows.read_run(values, lenient=True), bool(is_free)) for values, is_free in found]

        return await self._database.read(work)

    async def ended_agents(self) -> list[str]:
        def work(connection: apsw.Connection) -> list[str]:
            found: list[Any] = _rows(connection, "ended_agents", ())
            return found

        return await self._database.read(work)

    async def prune(self, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int) -> list[Removal]:
        return await self._database.write(
            lambda transaction, _: _prune(transaction, tombstones, before=before, most=most, now=now), _PRUNE_POINTS
        )

    async def tombstones(
        self, *, before: int, limit: int, agent: str | None = None, after: RunId | None = None
    ) -> list[RunRow]:
        which = {"before": before, "limit": limit, "agent": agent, "after": after or ""}
        return await self._database.read(
            lambda connection: [
                rows.read_run(values, lenient=True) for values in _rows(connection, "tombstones", which)
            ]
        )

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        def work(transaction: Transaction, again: bool) -> int:
            which = {"ids": json.dumps(list(run_ids))}
            transaction.execute(_QUERIES["forget_runs"], which)
            count = transaction.connection.changes()
            transaction.execute(_QUERIES["forget_mail"], which)
            return count

        return await self._database.write(work, _PRUNE_POINTS)

    async def whole(self, run_id: RunId, *, bare: bool) -> Whole | None:
        read = _bare if bare else _whole
        return await self._database.read(lambda connection: read(connection, run_id), run_id=run_id)

    async def put(self, whole: Whole, *, instead_of: RunRow | None = None, act: Act | None = None) -> RunRow:
        return await self._database.write(
            lambda transaction, _: _put(transaction, whole, instead_of, act=act),
            _COPY_POINTS,
            rings=whole.row.wake_at is not None,
        )

    async def schema(self) -> list[SchemaStep]:
        def work(connection: apsw.Connection) -> list[SchemaStep]:
            found = connection.execute(_QUERIES["applied_at"]) if migrate.applied(connection) else ()
            steps = {number: SchemaStep(number, name, at) for number, name, at in found}
            steps = {step.number: step for step in self.known_schema()} | steps
            return [steps[number] for number in sorted(steps)]

        return await self._database.read(work)

    def known_schema(self) -> list[SchemaStep]:
        return [SchemaStep(known.number, known.name, None) for known in migrate.migrations("sqlite")]

    async def backup(self, path: str) -> int:
        unfinished = f"{path}.unfinished"

        def work(connection: apsw.Connection) -> int:
            if os.path.exists(path):
                raise UsageError(f"{path} exists; a backup is written to a new file. Name another one, or remove it.")
            try:
                return _copied(self._database.path, unfinished, path)
            except (apsw.Error, OSError) as error:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
                raise explain(error, path) from error

        return await self._database.read(work)


def _rows(connection: apsw.Connection, name: str, parameters: Any) -> list[list[Any]]:
    cell = connection.execute(_QUERIES[name], parameters).get
    assert isinstance(cell, bytes)
    return read_rows(cell)


# removing


def _prune(
    transaction: Transaction, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int
) -> list[Removal]:
    wanted = list(tombstones)
    if before is not None:
        which = {"ids": json.dumps([row.id for row in wanted]), "before": before}
        free: set[Any] = set(_rows(transaction.connection, "free_runs", which))
        wanted = [row for row in wanted if row.id in free]
    transaction.write("entomb", [rows.tombstone_parameters(row) for row in wanted])
    stored: set[Any] = set(transaction.found("entombed", [(row.id, row.epoch, row.digest) for row in wanted]))
    ids = json.dumps(sorted(stored))
    left = most
    for name, weight in rows.EMPTYING:
        if left < weight:
            break
        transaction.execute(_QUERIES[name], {"ids": ids, "most": left // weight})
        left -= transaction.connection.changes() * weight
    more: set[Any] = set(_rows(transaction.connection, "not_empty", {"ids": ids}))
    transaction.execute(_QUERIES["mark_pruned"], {"ids": json.dumps(sorted(stored - more)), "now": now})
    return rows.pruned(tombstones, stored=stored, more=more)


# taking in


def _whole(connection: apsw.Connection, run_id: RunId) -> Whole | None:
    loaded = reads.load(connection, run_id)
    if loaded is None:
        return None
    packed: dict[str, list[bytes]] = {}
    for digest, data in connection.execute(_QUERIES["blobs_of_run"], (run_id,)):
        packed.setdefault(str(digest), []).append(data if isinstance(data, bytes) else b"")
    return Whole(
        row=loaded[0],
        records=tuple(loaded[1]),
        blobs={digest: rows.unpack_blob(run_id, digest, b"".join(chunks)) for digest, chunks in packed.items()},
        mail=tuple(reads.mail(connection, run_id, 0)),
        questions=tuple(
            reads.questions(connection, run_id=run_id, id_prefix=None, only_open=False, limit=_MOST_QUESTIONS)
        ),
        landed=tuple(connection.execute(_QUERIES["landed_of_run"], (run_id,))),
    )


def _bare(connection: apsw.Connection, run_id: RunId) -> Whole | None:
    row = reads.run(connection, run_id)
    if row is None:
        return None
    return Whole(row, (), {}, (), (), tuple(connection.execute(_QUERIES["landed_of_run"], (run_id,))))


def _put(transaction: Transaction, whole: Whole, instead_of: RunRow | None, *, act: Act | None) -> RunRow:
    row = whole.row
    if instead_of is not None:
        _remove(transaction, instead_of)
    new = Append(row, 0, b"", whole.records, tuple(whole.blobs.items()))
    if transaction.create(new, None):
        transaction.write("insert_mail", [rows.mail_parameters(mail, mail.number) for mail in whole.mail])
        for question in whole.questions:
            transaction.open_question(question)
        for landed in whole.landed:
            transaction.execute(_QUERIES["insert_landed"], (row.id, *landed))
        transaction.add_act(act)
    stored = transaction.run(row.id)
    assert stored is not None
    return stored


def _remove(transaction: Transaction, row: RunRow) -> None:
    """Remove a run with all it has, if it is this one."""
    transaction.execute(_QUERIES["remove_run"], {"id": row.id, "epoch": row.epoch, "digest": row.digest})
    if not transaction.connection.changes():
        return
    which = {"ids": json.dumps([row.id]), "most": -1}
    for name in ("empty_records", "empty_blobs", "empty_questions", "empty_landed", "empty_tags", "empty_mail"):
        transaction.execute(_QUERIES[name], which)
    transaction.execute(_QUERIES["forget_mail"], which)


# copies of the file


def _copied(source: str, unfinished: str, path: str) -> int:
    """Written under another name, checked and synced: what has the right name is whole."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    live = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        live.set_busy_timeout(30_000)
        distrust_schema(live)
        live.execute(_QUERIES["backup"], (unfinished,))
    finally:
        close_quietly(live, checkpoint=False)
    copy = apsw.Connection(unfinished, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        distrust_schema(copy)
        go_ahead(copy)
        problems = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
    finally:
        copy.close()
    if problems:
        os.unlink(unfinished)
        raise StoreError(f"The copy of {source} is damaged, so it was removed: {'; '.join(problems)}.")
    descriptor = open_unlinked(unfinished, os.O_RDONLY)
    try:
        system.sync(descriptor)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    os.link(unfinished, path)  # unlike a rename, it never replaces what somebody else wrote meanwhile
    os.unlink(unfinished)
    sync_folder(os.path.dirname(os.path.abspath(path)))
    return size
