"""What the writes do, each with one call of a function of the database where that is possible.

A call is a transaction of its own. It takes columns, not rows: an array of each, for as many runs as there are. Runs
come in the order of their ids, which is the order in which the database locks them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from holdfast.base import clock, faults
from holdfast.base.stepping import hurried
from holdfast.errors import Fenced
from holdfast.model import (
    Act,
    Append,
    Applied,
    Claim,
    Definition,
    Fence,
    Limit,
    QuestionRow,
    QuestionState,
    RunId,
    RunRow,
    WorkerId,
    reasons,
)
from holdfast.store import rows
from holdfast.store.postgres.answers import AnswerTimes
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.queries import Queries

#: By the number that the database answers with; the last one is about amendments.
_APPLIED = (
    Applied.committed,
    Applied.committed,
    Applied.fenced,
    Applied.diverged,
    Applied.unread,
    Applied.diverged,
)
_RECORD_COLUMNS = 14
_FEW_RECORDS = 6
_COMPRESS_HERE = 64 * 1024  # larger values are compressed by another thread

Columns = list[Sequence[Any]]


def columns(table: Sequence[Sequence[Any]], width: int) -> Columns:
    return list(zip(*table, strict=True)) if table else [()] * width


async def _children(appends: Sequence[Append]) -> Columns:
    """The columns of the records and of the blobs, each with the place of its append, from 1 on."""
    places: list[int] = []
    records: list[Any] = []
    blobs: list[rows.Values] = []
    for place, append in enumerate(appends, 1):
        records += append.records
        places += [place] * len(append.records)
        for digest, data in append.blobs:
            chunks = rows.blob_parameters(append.row.id, digest, data)
            found = list(chunks) if len(data) <= _COMPRESS_HERE else await asyncio.to_thread(list, chunks)
            blobs += [(place, *chunk[1:]) for chunk in found]
    return [places, *columns(records, _RECORD_COLUMNS), *columns(blobs, 4)]


def is_small(append: Append) -> bool:
    """Whether `SmallAppends` takes it."""
    return len(append.records) <= _FEW_RECORDS and not append.blobs and append.outgoing is None


class SmallAppends:
    """Small appends on one connection whose commits are synced: the statement itself says nothing of that."""

    def __init__(self, connection: Any, queries: Queries) -> None:
        self.connection = connection
        self._queries = queries
        self._answers = AnswerTimes(connection)
        self._prepared: dict[int, Any] = {}

    async def append(self, append: Append, *, inline: bool = False) -> bool:
        """Apply it. False: it did not match, nothing was changed; `append_all` says why.

        `inline`: nobody else waits for the loop, so its thread may wait for the answer.
        """
        count = len(append.records)
        statement = self._prepared.get(count)
        if statement is None:
            sql = self._queries.rows("append_one", count) if count else self._queries["append_none"]
            statement = self._prepared[count] = await self.connection.prepare(sql, timeout=STATEMENT_S)
        # No timeout here: a timer for each would cost as much as the rest. The lane looks at the clock itself.
        executing = statement.fetch(*rows.move_parameters(append), *chain.from_iterable(append.records))
        await (hurried(executing, self._answers.wait) if inline else executing)
        return not statement.get_statusmsg().endswith(" 0")


async def append_all(
    connection: Any,
    queries: Queries,
    appends: Sequence[Append],
    *,
    seizes: Sequence[bool | None] | None = None,
    again: bool,
) -> list[tuple[Applied, bool]]:
    """Apply appends; what became of each, and whether it was applied now, not by an earlier commit.

    `seizes`: for those that are amendments, whether the run may be taken from its owner.
    """
    order = range(len(appends))
    if len(appends) > 1:
        order = sorted(order, key=lambda place: appends[place].row.id)  # type: ignore[assignment]
        appends = [appends[place] for place in order]
    amended = [None] * len(appends) if seizes is None else [seizes[place] for place in order]
    parameters = columns([rows.move_parameters(append) for append in appends], 17)
    found = await connection.fetchval(
        queries["append"], *parameters, amended, again, *await _children(appends), timeout=STATEMENT_S
    )
    outcomes: list[tuple[Applied, bool]] = [(Applied.fenced, False)] * len(appends)
    for place, outcome in zip(order, found, strict=True):
        outcomes[place] = _APPLIED[outcome], outcome == 0
    return outcomes


async def create_all(
    connection: Any, queries: Queries, new: Sequence[tuple[Append, WorkerId | None, Fence | None]]
) -> list[bool | None]:
    """Store new runs, no id twice; whether each was stored. None: the run it is done for is somebody else's."""
    order = sorted(range(len(new)), key=lambda place: new[place][0].row.id)
    appends = [new[place][0] for place in order]
    fences = [new[place][2] or (None, None, None) for place in order]
    parameters = columns(
        [rows.run_parameters(append.row, new[place][1]) for place, append in zip(order, appends, strict=True)], 23
    )
    stored = [*parameters, *columns(fences, 3), *await _children(appends)]
    tags = [(place, *tag) for place, append in enumerate(appends, 1) for tag in rows.tag_parameters(append.row)]
    if tags:
        found = await connection.fetchval(
            queries["create_tagged_runs"], *stored, *columns(tags, 5), timeout=STATEMENT_S
        )
    else:
        found = await connection.fetchval(queries["create_runs"], *stored, timeout=STATEMENT_S)
    outcomes: list[bool | None] = [False] * len(new)
    for place, outcome in zip(order, found, strict=True):
        outcomes[place] = None if outcome == 2 else outcome == 0
    return outcomes


async def create_by(
    connection: Any, queries: Queries, append: Append, *, owner: WorkerId | None, act: Act
) -> RunRow | None:
    """Store a new run that a person starts, with the act; what is stored now."""
    await connection.execute(queries["begin"], timeout=STATEMENT_S)
    if (await create_all(connection, queries, [(append, owner, None)]))[0]:
        await add_act(connection, queries, act)
    stored = await run(connection, queries, append.row.id)
    faults.point("start.before_commit")
    await connection.execute("COMMIT", timeout=STATEMENT_S)
    return stored


async def run(connection: Any, queries: Queries, run_id: RunId) -> RunRow | None:
    found = await connection.fetchrow(queries["run"], run_id, timeout=STATEMENT_S)
    return None if found is None else rows.read_run(tuple(found))


async def claim_many(
    connection: Any,
    queries: Queries,
    claims: Sequence[Claim],
    owner: WorkerId,
    *,
    limits: Mapping[str, Limit],
    waits: bool,
    again: bool,
) -> list[bool | None]:
    """Take runs over, each if its own conditions hold. `waits`: also for those that somebody is writing to.

    None: somebody keeps the lock under which the limits of its queue are counted.
    """
    if not claims:
        return []
    parameters = columns([rows.taking_parameters(claim) for claim in claims], 15)
    bounds = columns([(queue, limit.concurrency, limit.per_key) for queue, limit in limits.items()], 3)
    found: list[bool | None] = await connection.fetchval(
        queries["claim_runs"], *parameters, owner, waits, again, *bounds, timeout=STATEMENT_S
    )
    return found


async def quarantine(connection: Any, queries: Queries, run_id: RunId, reason: str) -> None:
    why = reasons.text(reasons.Corrupt(reason))
    await connection.execute(queries["quarantine_run"], run_id, why, clock.now_us(), timeout=STATEMENT_S)


# questions and definitions


async def open_question(
    connection: Any, queries: Queries, question: QuestionRow, fence: Fence | None
) -> QuestionRow | None:
    await _fenced(connection, queries["open_question"], rows.question_parameters(question), fence)
    return await _question(connection, queries, question.run_id, question.key)


async def close_question(
    connection: Any, queries: Queries, run_id: RunId, key: str, state: QuestionState, at: int, fence: Fence | None
) -> QuestionRow | None:
    await _fenced(connection, queries["decide_question"], (run_id, key, state.value, at), fence)
    return await _question(connection, queries, run_id, key)


async def _fenced(connection: Any, sql: str, parameters: Iterable[Any], fence: Fence | None) -> None:
    if not await connection.fetchval(sql, *parameters, *(fence or (None, None, None)), timeout=STATEMENT_S):
        assert fence is not None
        raise Fenced(f"Run {fence.run_id} has another owner by now; nothing was changed for it.")


async def _question(connection: Any, queries: Queries, run_id: RunId, key: str) -> QuestionRow | None:
    found = await connection.fetchrow(queries["question"], run_id, key, timeout=STATEMENT_S)
    return None if found is None else rows.read_question(tuple(found))


async def define(
    connection: Any, queries: Queries, definitions: Sequence[Definition], *, again: bool, act: Act | None = None
) -> list[bool]:
    """Written in the order of names, as everybody does: two who write the same ones wait, and do not deadlock."""
    if not definitions:
        return []
    order = sorted(range(len(definitions)), key=lambda place: (definitions[place].kind, definitions[place].name))
    parameters = columns([rows.definition_parameters(definitions[place]) for place in order], 5)
    if act is None:
        found = await connection.fetchval(queries["define"], *parameters, again, timeout=STATEMENT_S)
    else:
        await connection.execute(queries["begin"], timeout=STATEMENT_S)
        # As if it were the first try: what an earlier commit wrote is there with its act.
        found = await connection.fetchval(queries["define"], *parameters, False, timeout=STATEMENT_S)
        if any(found):
            await add_act(connection, queries, act)
        elif again:
            found = await connection.fetchval(queries["define"], *parameters, True, timeout=STATEMENT_S)
        faults.point("define.before_commit")
        await connection.execute("COMMIT", timeout=STATEMENT_S)
    won = [False] * len(definitions)
    for place, is_written in zip(order, found, strict=True):
        won[place] = is_written
    return won


async def define_guarded(
    connection: Any, queries: Queries, definitions: Sequence[Definition], *, again: bool, act: Act | None = None
) -> list[bool]:
    """The first one, and if it is written the others; its row is locked until they are."""
    await connection.execute(queries["begin"], timeout=STATEMENT_S)
    won = await define(connection, queries, definitions[:1], again=False)
    if won[0] and act is not None:
        await add_act(connection, queries, act)
    elif again and not won[0]:
        won = await define(connection, queries, definitions[:1], again=True)  # what a commit before wrote, with its act
    if won[0]:
        won += await define(connection, queries, definitions[1:], again=again)
    faults.point("define.before_commit")
    await connection.execute("COMMIT", timeout=STATEMENT_S)
    return won if won[0] else [False] * len(definitions)


async def forget(
    connection: Any,
    queries: Queries,
    kind: str,
    names: Sequence[str],
    *,
    bodies: Sequence[str] | None,
    act: Act | None = None,
) -> None:
    wanted = None if bodies is None else list(bodies)
    if act is None:
        await connection.execute(queries["forget"], kind, list(names), wanted, timeout=STATEMENT_S)
        return
    await connection.execute(queries["begin"], timeout=STATEMENT_S)
    done = await connection.execute(queries["forget"], kind, list(names), wanted, timeout=STATEMENT_S)
    if not done.endswith(" 0"):
        await add_act(connection, queries, act)
    faults.point("define.before_commit")
    await connection.execute("COMMIT", timeout=STATEMENT_S)


# acts


async def add_act(connection: Any, queries: Queries, act: Act) -> None:
    """In the transaction of the caller, which is synced."""
    await connection.execute(queries["insert_act"], *rows.act_parameters(act), timeout=STATEMENT_S)


async def noted(connection: Any, queries: Queries, act: Act) -> None:
    """An act with nothing else in its commit."""
    await connection.execute(queries["begin"], timeout=STATEMENT_S)
    await add_act(connection, queries, act)
    faults.point("define.before_commit")
    await connection.execute("COMMIT", timeout=STATEMENT_S)
