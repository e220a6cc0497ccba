"""What is read: statements that need no transaction, apart from those whose answers must be of one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from asyncpg.exceptions import DataError

from holdfast.errors import CorruptJournal, RunNotFound
from holdfast.model import (
    Definition,
    Loaded,
    Mail,
    QuestionRow,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    Worker,
    WorkerId,
)
from holdfast.model.budgets import FamilyUse
from holdfast.store import indexes, rows
from holdfast.store.families import summed, sums_of
from holdfast.store.lines import evenly, few_records
from holdfast.store.queries import Queries

READ_S = 30.0
_RECORDS_AT_ONCE = 5000
_FEW = 2000  # runs that are due, found faster by time than by walking past all those that are not
_FILTERS = "statuses agent thread_id parent_id queue since before_at before_id limit owners prefix".split()
_SIZES = "statuses agent thread_id parent_id queue since before_at prefix tag tag_value most".split()


def listing_parameters(name: str, filters: dict[str, Any]) -> list[Any]:
    """Those that a query which lists runs takes, in its order."""
    names, values = zip(*filters["tags"], strict=True) if filters["tags"] else (None, None)
    parameters = [*(filters[each] for each in _FILTERS), names, values]
    return [*parameters, filters["tag"], filters["tag_value"]] if name == "runs_by_tag" else parameters


def size_parameters(which: RunFilter, before_at: int) -> list[Any]:
    """As `indexes.size_parameters`, in their order."""
    filters = indexes.size_parameters(which, before_at)
    return [filters[each] for each in _SIZES]


class Reads:
    """Reads on one connection; the caller has it for itself."""

    def __init__(self, connection: Any, queries: Queries) -> None:
        self.connection = connection
        self._queries = queries

    async def _rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(self._queries[name], *parameters, timeout=READ_S)]

    async def _value(self, name: str, *parameters: Any) -> Any:
        return await self.connection.fetchval(self._queries[name], *parameters, timeout=READ_S)

    def _of_one_moment(self) -> Any:
        return self.connection.transaction(isolation="repeatable_read", readonly=True)

    # runs

    async def run(self, run_id: RunId) -> RunRow | None:
        found = await self._rows("run", run_id)
        return rows.read_run(found[0]) if found else None

    async def runs(self, which: RunFilter) -> list[RunRow]:
        before_at = -rows.EVER if which.until is None else which.until
        if which.before_at is not None:
            before_at = which.before_at
        elif which.before_id is not None:
            before_at = await self._value("cursor_position", which.before_id)
            if before_at is None:
                raise RunNotFound(f"There is no run {which.before_id} to list on from.")
        sizes = None
        if indexes.has_choice(which):
            asked = size_parameters(which, before_at)
            sizes = dict(await self.connection.fetchrow(self._queries["sizes"], *asked, timeout=READ_S))
        name, filters = indexes.listing(which, sizes)
        parameters = listing_parameters(name, filters | {"before_at": before_at})
        return [rows.read_run(values, lenient=True) for values in await self._rows(name, *parameters)]

    async def records(self, run_id: RunId, after: int, limit: int | None = None) -> list[Record]:
        found = await self.connection.fetch(self._queries["records"], run_id, after, limit, timeout=READ_S)
        return list(map(Record._make, found))

    async def checkpoints(
        self, run_id: RunId, key: str | None, *, after: int, limit: int
    ) -> list[tuple[Record, bytes]]:
        parameters = run_id, key, after, limit
        found = await self.connection.fetch(self._queries["checkpoints"], *parameters, timeout=READ_S)
        return [(Record._make(values), before or b"") for *values, before in found]

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        async with self._of_one_moment():
            row = await self.run(run_id)
            return None if row is None else (row, await self.records(run_id, 0))

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        """Those that can be read, in the order given."""
        stored: dict[RunId, RunRow] = {}
        records: dict[str, list[Record]] = defaultdict(list)
        mail: dict[str, list[Mail]] = defaultdict(list)
        async with self._of_one_moment():
            for values in await self._rows("runs_of_ids", list(set(run_ids))):
                try:
                    stored[RunId(values[0])] = rows.read_run(values)
                except CorruptJournal:
                    continue
            if not stored:
                return []
            cuts = {row.id: cut for row in stored.values() if (cut := row.cut) is not None}
            for each, cut in cuts.items():
                parameters = each, cut.prologue, cut.seq
                found = await self.connection.fetch(self._queries["records_of_turn"], *parameters, timeout=READ_S)
                records[each] = list(map(Record._make, found))
                mail[each] = await self.mail(each, cut.mail)
            whole = [row for row in stored.values() if row.id not in cuts]
            for few in few_records(whole, _RECORDS_AT_ONCE):
                for run_id, *values_of_record in await self.connection.fetch(
                    self._queries["records_of_runs"], [row.id for row in few], timeout=READ_S
                ):
                    records[run_id].append(Record._make(values_of_record))
            if any(row.mail for row in whole):
                for values in await self._rows("mail_of_runs", [row.id for row in whole if row.mail]):
                    mail[values[0]].append(rows.read_mail(values))
        return [Loaded(stored[each], records[each], mail[each]) for each in run_ids if each in stored]

    async def mail(self, run_id: RunId, after: int, limit: int | None = None) -> list[Mail]:
        return [rows.read_mail(values) for values in await self._rows("mail", run_id, after, limit)]

    async def mail_of_numbers(self, run_id: RunId, numbers: Sequence[int]) -> list[Mail]:
        return [rows.read_mail(values) for values in await self._rows("mail_of_numbers", run_id, list(numbers))]

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        return rows.counts_of(queues, await self._rows("queue_counts", list(queues)))

    async def family_use(self, owner: RunId, asks: RunId) -> FamilyUse:
        try:
            found = (await self._rows("family_use", owner, asks))[0]
        except DataError:  # a row that is damaged holds up nobody but itself
            return summed(await self._rows("family_rows", owner), owner, asks)
        return sums_of(found)

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        return {RunId(run_id): (epoch, count) for run_id, epoch, count in await self._rows("mail_counts", owner)}

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        packed: dict[str, list[bytes]] = {}
        for digest, data in await self._rows("blobs", run_id, list(digests)):
            packed.setdefault(digest, []).append(data)
        return {digest: rows.unpack_blob(run_id, digest, b"".join(chunks)) for digest, chunks in packed.items()}

    # who may be claimed

    async def ready(
        self, which: tuple[list[str], list[str] | None, int, list[str]], *, limit: int, after: str
    ) -> list[RunRow]:
        """`which`: of these agents, and these queues (None: any), due by now, and not of those queues."""
        now = which[2]
        parked = [run_id for (run_id,) in await self._rows("ready_parked", *which, limit)]
        # Neither those who wait in line nor those whose time has come keep the others out.
        in_line = await self._in_line(which, limit, after)
        chosen = parked[: max(limit // 2, limit - len(in_line))]
        chosen += in_line[: limit - len(chosen)]
        if not chosen:
            return []
        found = {}
        for values in await self._rows("runs_of_ids", chosen):
            row = rows.read_run(values, lenient=True)
            # Of another moment than what was found above: somebody may have claimed it, or parked it again, since.
            if row.owner is None and row.wake_at is not None and row.wake_at <= now:
                found[row.id] = row
        return [found[run_id] for run_id in chosen if run_id in found]

    async def _in_line(self, which: tuple[Any, Any, int, Any], limit: int, after: str) -> list[str]:
        """Ids of queued runs, evenly from all keys.

        If few are due, they are found by time, however many keys there are. If many are, there is no need to look at
        all of them: the line is walked from key to key until there are enough.
        """
        most = max(4 * limit, _FEW)
        few = await self._value("due_in_line", *which, most)
        if not few:
            return []
        if few < most:
            return evenly(await self._rows("line_of_few", *which, most), after, limit)
        keys = await self._rows("keys_in_line", *which, after, limit)
        if not keys:
            return []
        agents, _, now, _ = which
        queues_of, keys_of = zip(*keys, strict=True)
        each = -(-limit // len(keys))
        while True:
            line = await self._rows("line_of_keys", agents, queues_of, now, keys_of, each)
            if len(line) >= limit or each >= limit:
                return evenly(line, after, limit)
            each = min(4 * each, limit)  # some keys have fewer than their share: the others fill it

    async def next_wake(self) -> int | None:
        found: int | None = await self._value("next_wake")
        return found

    # questions and definitions

    async def questions(
        self, *, run_id: RunId | None, id_prefix: str | None, only_open: bool, limit: int
    ) -> list[QuestionRow]:
        if run_id is not None:
            found = await self._rows("questions_of_run", run_id, only_open, id_prefix or None, limit)
        elif id_prefix:
            found = await self._rows("questions_by_prefix", id_prefix, only_open, limit)
        else:
            found = await self._rows("questions_open" if only_open else "questions", limit)
        return list(map(rows.read_question, found))

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None, due: int | None, limit: int
    ) -> list[Definition]:
        if names is not None:
            found = await self._rows("definitions_by_name", kind, list(names), due, limit)
        elif due is not None:
            found = await self._rows("definitions_due", kind, due, limit)
        else:
            found = await self._rows("definitions", kind, limit)
        return list(map(rows.read_definition, found))

    # workers

    async def workers(self) -> list[Worker]:
        return list(map(rows.read_worker, await self._rows("workers")))

    async def ownerless(self) -> list[WorkerId]:
        return [WorkerId(owner) for (owner,) in await self._rows("ownerless")]

    async def worker_signs(self, lease_us: int) -> list[tuple[Any, ...]]:
        return await self._rows("worker_signs", lease_us)

    # for what is read elsewhere

    async def found(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return await self._rows(name, *parameters)

    def moment(self) -> Any:
        """A block whose reads are of one moment."""
        return self._of_one_moment()
