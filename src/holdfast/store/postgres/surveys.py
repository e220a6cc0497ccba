"""Reads over many runs of a PostgreSQL store."""

from __future__ import annotations

from typing import Any

from holdfast.model import Act, ActFilter, QuestionRow, Record, RunFilter, RunId, RunRow, WorkerId
from holdfast.store import rows
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.reads import Reads
from holdfast.store.surveys import (
    MOST_MOVES,
    Bins,
    Moves,
    Outline,
    acts_query,
    bins_of,
    few,
    read_act,
    read_bins,
    survey_of,
)

_FILTERS = ("agent", "queue")
#: Transactions that a cursor names: it is part of the id of every event.
_HELD = 20
_TAKEN = {"histogram_by_statuses": 0, "histogram_by_agent": 1, "histogram_by_queue": 2}


class PostgresSurveys:
    """See `holdfast.store.surveys.Surveys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def histogram(self, which: RunFilter, *, width: int, most: int) -> Bins:
        survey = survey_of(which)
        if survey is None:
            listed = await self._database.read(lambda reads: reads.runs(few(which)))
            return bins_of(which, listed, width)
        name, filters = survey
        taken = [filters[each] for each in _FILTERS[: _TAKEN[name]]]
        spans = (filters["statuses"], filters["since"], filters["before_at"], width, most)
        return read_bins(await self._rows(name, *spans, *taken))

    async def agents(self) -> list[str]:
        return [agent for (agent,) in await self._rows("agents")]

    async def owned_counts(self) -> dict[WorkerId, int]:
        return {WorkerId(owner): count for owner, count in await self._rows("owned_counts")}

    async def questions(
        self, *, only_open: bool, limit: int, after: tuple[int, str] | None = None
    ) -> list[QuestionRow]:
        at, last = after or ((rows.EVER, "") if only_open else (-rows.EVER, ""))
        name = "open_questions_after" if only_open else "questions_before"
        return list(map(rows.read_question, await self._rows(name, at, last, limit)))

    async def moves(self, after: str | None) -> Moves:
        async def work(reads: Reads) -> Moves:
            async with reads.moment():
                ((new, held, following, database),) = await reads.found("move_position")
                cursor = _cursor(database, new, held)
                known = _position(after, database)
                if known is None or known[0] > following:
                    return Moves([], cursor, is_known=after is None)
                found = await reads.found("moves", known[0], following, MOST_MOVES + 1, known[1:])
            if len(found) > MOST_MOVES:
                return Moves([], cursor, is_known=False)
            return Moves([rows.read_run(values, lenient=True) for values in found], cursor)

        return await self._database.read(work)

    async def owned(self, *, limit: int) -> list[RunRow]:
        return [rows.read_run(values, lenient=True) for values in await self._rows("owned", limit)]

    async def open_questions(self, *, limit: int) -> dict[str, RunId]:
        return {question: RunId(run_id) for question, run_id in await self._rows("open_question_ids", limit)}

    def commits(self) -> bytes | None:
        return None

    async def acts(self, which: ActFilter) -> list[tuple[int, Act]]:
        name, filters = acts_query(which)
        taken = list(filters.values())[: {"acts": 4, "acts_by": 5, "acts_of_run": 6}[name]]
        return list(map(read_act, await self._rows(name, *taken)))

    async def outline(self, run_id: RunId, *, after: int = 0, limit: int = 1_000_000) -> Outline | None:
        async def work(reads: Reads) -> Outline | None:
            async with reads.moment():
                row = await reads.run(run_id)
                if row is None:
                    return None
                found = await reads.found("outline", run_id, after, limit)
            return Outline(row, list(map(Record._make, found)))

        return await self._database.read(work)

    async def record(self, run_id: RunId, seq: int) -> Record | None:
        found = await self._rows("record", run_id, seq)
        return Record._make(found[0]) if found else None

    async def _rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda reads: reads.found(name, *parameters))


def _cursor(database: int, new: int, held: list[int]) -> str:
    """From which transaction on nothing was told yet, and those before it that are still to end.

    Somebody may keep one open for hours: what has moved since it began is not told at every look. Of very many it
    names the first; what is behind them is told again.
    """
    if len(held) > _HELD:
        new, held = held[_HELD], held[:_HELD]
    return ".".join([f"p{database}", str(new), *map(str, held)])


def _position(cursor: str | None, database: int) -> list[int] | None:
    """The transactions that a cursor of this database names."""
    begin, *numbers = (cursor or "").split(".")
    is_ours = begin == f"p{database}" and 0 < len(numbers) <= 1 + _HELD
    if not is_ours or not all(each.isdecimal() and len(each) < 19 for each in numbers):
        return None
    return list(map(int, numbers))
