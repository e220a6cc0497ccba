"""What a PostgreSQL store removes, and what it takes in from elsewhere.

A transaction here removes rows of several runs, each by the key of its own table. Only the look at ancestors and
children crosses runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.base import faults
from holdfast.errors import UsageError
from holdfast.model import Act, Append, Ended, Removal, RunId, RunRow, SchemaStep, Whole
from holdfast.store import rows
from holdfast.store.migrate import migrations
from holdfast.store.postgres import apply, migrate
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.reads import READ_S, Reads
from holdfast.store.queries import Queries

_MOST_QUESTIONS = 1_000_000


class PostgresRetention:
    """The part of a store that removes runs and takes them in. See `holdfast.store.upkeep.Upkeep`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries
        self._target = database.target

    async def ended(
        self, agent: str, *, before: int, limit: int, after: tuple[int, RunId] | None = None
    ) -> list[Ended]:
        after_at, after_id = after or (-(2**62), "")

        async def work(reads: Reads) -> list[Ended]:
            found = await reads.found("ended", before, agent, after_at, after_id, limit)
            return [Ended(rows.read_run(values[:-1], lenient=True), bool(values[-1])) for values in found]

        return await self._database.read(work)

    async def ended_agents(self) -> list[str]:
        async def work(reads: Reads) -> list[str]:
            return [agent for (agent,) in await reads.found("ended_agents")]

        return await self._database.read(work)

    async def prune(self, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int) -> list[Removal]:
        async def work(connection: Any, again: bool) -> list[Removal]:
            await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
            found = await _prune(connection, self._queries, tombstones, before=before, most=most, now=now)
            faults.point("prune.before_commit")
            await connection.execute("COMMIT", timeout=STATEMENT_S)
            return found

        pruned: list[Removal] = await self._database.write(work, ("", "prune.after_commit"))
        return pruned

    async def tombstones(
        self, *, before: int, limit: int, agent: str | None = None, after: RunId | None = None
    ) -> list[RunRow]:
        async def work(reads: Reads) -> list[RunRow]:
            found = await reads.found("tombstones", before, agent, after or "", limit)
            return [rows.read_run(values, lenient=True) for values in found]

        return await self._database.read(work)

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        async def work(connection: Any, again: bool) -> int:
            await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
            gone = await connection.fetch(self._queries["forget_runs"], sorted(run_ids), timeout=STATEMENT_S)
            ids = [run_id for (run_id,) in gone]
            await connection.execute(self._queries["forget_mail"], ids, timeout=STATEMENT_S)
            faults.point("prune.before_commit")
            await connection.execute("COMMIT", timeout=STATEMENT_S)
            return len(ids)

        return int(await self._database.write(work, ("", "prune.after_commit")))

    async def whole(self, run_id: RunId, *, bare: bool) -> Whole | None:
        async def work(reads: Reads) -> Whole | None:
            async with reads.moment():
                row = await reads.run(run_id)
                if row is None:
                    return None
                landed = await reads.connection.fetch(self._queries["landed_of_run"], run_id, timeout=READ_S)
                if bare:
                    return Whole(row, (), {}, (), (), tuple(map(tuple, landed)))
                packed: dict[str, list[bytes]] = {}
                for digest, data in await reads.found("blobs_of_run", run_id):
                    packed.setdefault(digest, []).append(data)
                return Whole(
                    row=row,
                    records=tuple(await reads.records(run_id, 0)),
                    blobs={
                        digest: rows.unpack_blob(run_id, digest, b"".join(chunks)) for digest, chunks in packed.items()
                    },
                    mail=tuple(await reads.mail(run_id, 0)),
                    questions=tuple(
                        await reads.questions(run_id=run_id, id_prefix=None, only_open=False, limit=_MOST_QUESTIONS)
                    ),
                    landed=tuple(map(tuple, landed)),
                )

        return await self._database.read(work)

    async def put(self, whole: Whole, *, instead_of: RunRow | None = None, act: Act | None = None) -> RunRow:
        async def work(connection: Any, again: bool) -> RunRow:
            await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
            stored = await _put(connection, self._queries, whole, instead_of=instead_of, act=act)
            faults.point("copy.before_commit")
            await connection.execute("COMMIT", timeout=STATEMENT_S)
            return stored

        row: RunRow = await self._database.write(work, ("", "copy.after_commit"))
        if row.wake_at is not None:
            self._database.ring()
        return row

    async def schema(self) -> list[SchemaStep]:
        async def work(reads: Reads) -> list[SchemaStep]:
            has_any = await migrate.applied(reads.connection, self._queries, self._target)
            found = await reads.connection.fetch(self._queries["applied_at"], timeout=READ_S) if has_any else []
            steps = {number: SchemaStep(number, name, at) for number, name, at in found}
            steps = {step.number: step for step in self.known_schema()} | steps
            return [steps[number] for number in sorted(steps)]

        return await self._database.read(work)

    def known_schema(self) -> list[SchemaStep]:
        return [SchemaStep(known.number, known.name, None) for known in migrations("postgres")]

    async def backup(self, path: str) -> int:
        raise UsageError(
            f"{self._target.shown} is a PostgreSQL database, and is backed up by its own programs: "
            f"`pg_dump --format=custom --schema={self._target.schema} --file={path} URL` for a copy of one moment, "
            "`pg_basebackup` with archived write-ahead logs for a state of any moment."
        )


async def _prune(
    connection: Any, queries: Queries, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int
) -> list[Removal]:
    wanted = sorted(tombstones, key=lambda row: row.id)
    ids = [row.id for row in wanted]
    await connection.execute(queries["lock_families"], ids, timeout=STATEMENT_S)
    if before is not None:
        free = {each for (each,) in await connection.fetch(queries["free_runs"], before, ids, timeout=STATEMENT_S)}
        wanted = [row for row in wanted if row.id in free]
    values = apply.columns([rows.tombstone_parameters(row) for row in wanted], 8)
    await connection.execute(queries["entomb"], *values, timeout=STATEMENT_S)
    made = apply.columns([(row.id, row.epoch, row.digest) for row in wanted], 3)
    stored = {each for (each,) in await connection.fetch(queries["entombed"], *made, timeout=STATEMENT_S)}
    left = most
    for name, weight in rows.EMPTYING:
        if left < weight:
            break
        count = await connection.fetchval(queries[name], sorted(stored), left // weight, timeout=STATEMENT_S)
        left -= count * weight
    more = {each for (each,) in await connection.fetch(queries["not_empty"], sorted(stored), timeout=STATEMENT_S)}
    await connection.execute(queries["mark_pruned"], sorted(stored - more), now, timeout=STATEMENT_S)
    return rows.pruned(tombstones, stored=stored, more=more)


async def _put(
    connection: Any, queries: Queries, whole: Whole, *, instead_of: RunRow | None, act: Act | None
) -> RunRow:
    row = whole.row
    if instead_of is not None:
        parameters = (instead_of.id, instead_of.epoch, instead_of.digest)
        if await connection.fetchval(queries["remove_run"], *parameters, timeout=STATEMENT_S):
            for name in ("empty_records", "empty_blobs", "empty_questions", "empty_landed", "empty_tags"):
                await connection.execute(queries[name], [row.id], None, timeout=STATEMENT_S)
            await connection.execute(queries["forget_mail"], [row.id], timeout=STATEMENT_S)
    new = Append(row, 0, b"", whole.records, tuple(whole.blobs.items()))
    (is_new,) = await apply.create_all(connection, queries, [(new, None, None)])
    if is_new:
        mail = apply.columns([rows.mail_parameters(each, each.number) for each in whole.mail], 8)
        await connection.execute(queries["insert_mail"], *mail, timeout=STATEMENT_S)
        for question in whole.questions:
            await apply.open_question(connection, queries, question, None)
        for landed in whole.landed:
            await connection.execute(queries["insert_landed"], row.id, *landed, timeout=STATEMENT_S)
        if act is not None:
            await apply.add_act(connection, queries, act)
    stored = await apply.run(connection, queries, row.id)
    assert stored is not None
    return stored
