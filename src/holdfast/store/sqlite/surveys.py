"""Reads over many runs of a SQLite store."""

from __future__ import annotations

import json
from typing import Any

import apsw

from holdfast.model import Act, ActFilter, QuestionRow, Record, RunFilter, RunId, RunRow, WorkerId
from holdfast.store import rows
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import reads
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.rows import read_records, read_rows
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

_QUERIES = load_queries("sqlite")


class SqliteSurveys:
    """See `holdfast.store.surveys.Surveys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def histogram(self, which: RunFilter, *, width: int, most: int) -> Bins:
        survey = survey_of(which)
        if survey is None:
            listed = await self._database.read(lambda connection: reads.runs(connection, few(which)))
            return bins_of(which, listed, width)
        name, filters = survey
        filters |= {"statuses": json.dumps(filters["statuses"]), "width": width, "limit": most}
        found = await self._rows(name, filters)
        return read_bins((status, *each) for status, bins in found for each in bins)

    async def agents(self) -> list[str]:
        found: list[Any] = await self._rows("agents", {})
        return found

    async def owned_counts(self) -> dict[WorkerId, int]:
        return {WorkerId(owner): count for owner, count in await self._rows("owned_counts", {})}

    async def questions(
        self, *, only_open: bool, limit: int, after: tuple[int, str] | None = None
    ) -> list[QuestionRow]:
        at, last = after or ((rows.EVER, "") if only_open else (-rows.EVER, ""))
        name = "open_questions_after" if only_open else "questions_before"
        return list(map(rows.read_question, await self._rows(name, {"at": at, "id": last, "limit": limit})))

    async def moves(self, after: str | None) -> Moves:
        def work(connection: apsw.Connection) -> Moves:
            last = connection.execute(_QUERIES["move_position"]).get
            assert isinstance(last, int)
            known = _position(after)
            if after is None or known is None or known > last:
                return Moves([], f"s{last}", is_known=after is None)
            found = _found(connection, "moves", {"after": known, "limit": MOST_MOVES + 1})
            if len(found) > MOST_MOVES:
                return Moves([], f"s{last}", is_known=False)
            return Moves([rows.read_run(values, lenient=True) for values in found], f"s{last}")

        return await self._database.read(work)

    async def owned(self, *, limit: int) -> list[RunRow]:
        return [rows.read_run(values, lenient=True) for values in await self._rows("owned", {"limit": limit})]

    async def open_questions(self, *, limit: int) -> dict[str, RunId]:
        found = await self._rows("open_question_ids", {"limit": limit})
        return {question: RunId(run_id) for question, run_id in found}

    def commits(self) -> bytes | None:
        return self._database.commits()

    async def acts(self, which: ActFilter) -> list[tuple[int, Act]]:
        name, filters = acts_query(which)
        return list(map(read_act, await self._rows(name, filters)))

    async def outline(self, run_id: RunId, *, after: int = 0, limit: int = 1_000_000) -> Outline | None:
        def work(connection: apsw.Connection) -> Outline | None:
            row = reads.run(connection, run_id)
            if row is None:
                return None
            found = _found(connection, "outline", (run_id, after, limit))
            return Outline(row, [Record._make((*values[:-1], b"")) for values in found])

        return await self._database.read(work, run_id=run_id)

    async def record(self, run_id: RunId, seq: int) -> Record | None:
        found = await self._rows("record", (run_id, seq))
        return read_records(run_id, found)[0] if found else None

    async def _rows(self, name: str, parameters: Any) -> list[list[Any]]:
        return await self._database.read(lambda connection: _found(connection, name, parameters))


def _found(connection: apsw.Connection, name: str, parameters: Any) -> list[list[Any]]:
    cell = connection.execute(_QUERIES[name], parameters).get
    assert isinstance(cell, bytes)
    return read_rows(cell)


def _position(cursor: str | None) -> int | None:
    """The commit that a cursor of ours names."""
    number = (cursor or "")[1:]
    return int(number) if (cursor or "").startswith("s") and number.isdecimal() and len(number) < 19 else None
