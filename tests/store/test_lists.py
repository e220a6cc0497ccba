"""A page of a list costs as much as the page, however many runs there are: counted, not timed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from holdfast.model import FINAL, RunFilter, RunId, Status
from holdfast.store import indexes, rows
from holdfast.store.contract import Store
from holdfast.store.postgres.connection import Role, Target
from holdfast.store.postgres.reads import listing_parameters, size_parameters
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import reads as sqlite_reads
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import START, new_run, opened

_RUNS = 2_000
_PAGE = 5
_RARE = "rare"


async def fill(store: Store) -> None:
    """Most runs have ended, in one queue; the oldest of each sort are as old as can be."""
    statuses = [Status.failed, Status.sleeping, Status.waiting, *[Status.done] * 7]
    await asyncio.gather(
        *(
            store.create(
                new_run(
                    f"r_{number:05d}",
                    agent=f"agent{number % 2}",
                    thread_id="t_all",
                    queue=_RARE if number in (7, 1007) else "default",
                    created_at=START + number * 1_000_000,
                    status=Status.running if number % 100 == 50 else statuses[number % 10],
                    summary={"tags": {"sort": "any", "is": _RARE if number in (7, 1007) else "usual"}},
                ),
                owner=None,
            )
            for number in range(_RUNS)
        )
    )


def page(**filters: Any) -> RunFilter:
    return RunFilter(limit=_PAGE, **filters)


_LAST = RunId("r_00090")
_RECENT = START + (_RUNS - 20) * 1_000_000
_ALL = (("sort", "any"),)
_NONE = frozenset({Status.blocked})
#: A filter, and how many runs it finds.
LISTS: dict[str, tuple[RunFilter, int]] = {
    "the last page": (page(before_id=_LAST), 5),
    "the last page of an agent": (page(agent="agent0", before_id=_LAST), 5),
    "the last page of a status": (page(status=frozenset({Status.done}), before_id=_LAST), 5),
    "the last page of what has not ended": (page(status=frozenset(Status) - FINAL, before_id=_LAST), 5),
    "the last page of what has ended": (page(status=FINAL, before_id=_LAST), 5),
    "the last page of a queue": (page(queue="default", before_id=_LAST), 5),
    "recent ones": (page(since=_RECENT), 5),
    "recent ones, of which there are none": (page(since=START + _RUNS * 1_000_000), 0),
    "recent ones of an agent": (page(agent="agent1", since=_RECENT + 18_000_000), 1),
    "the oldest ones": (page(until=START + 3_000_000), 3),
    "the oldest ones of an agent": (page(agent="agent1", until=START + 3_000_000), 1),
    "an agent with none": (page(agent="nobody", status=FINAL), 0),
    "few of an agent with many": (page(agent="agent1", status=frozenset({Status.blocked})), 0),
    "running ones of an agent": (page(agent="agent0", status=frozenset({Status.running})), 5),
    "recent ones of a status": (page(status=frozenset({Status.failed}), since=_RECENT), 2),
    "recent ones of a queue": (page(queue=_RARE, since=_RECENT), 0),
    "a queue with few": (page(queue=_RARE), 2),
    "a queue with none": (page(queue="none"), 0),
    "a queue with few, of a status": (page(queue=_RARE, status=frozenset({Status.done})), 2),
    "running ones of a queue": (page(queue="default", status=frozenset({Status.running})), 5),
    "running ones of a queue that has none": (page(queue=_RARE, status=frozenset({Status.running})), 0),
    "few of a queue with many": (page(queue="default", status=frozenset({Status.blocked})), 0),
    "the last page of a tag": (page(tags=(("sort", "any"),), before_id=_LAST), 5),
    "a tag that few have": (page(tags=(("is", _RARE),)), 2),
    "a tag that few have, and one that all have": (page(tags=(("is", _RARE), ("sort", "any"))), 2),
    "a tag that nobody has": (page(tags=(("is", "none"),)), 0),
    "recent ones of a tag": (page(tags=(("sort", "any"),), since=_RECENT), 5),
    "of a tag and a status": (page(tags=(("sort", "any"),), status=frozenset({Status.done})), 5),
    "a tag that all have, of a status that none has": (page(tags=_ALL, status=_NONE), 0),
    "a tag that all have, of an agent with none": (page(tags=_ALL, agent="nobody"), 0),
    "a tag that all have, in a queue with few": (page(tags=_ALL, queue=_RARE), 2),
    "ids that few begin with": (page(id_prefix="r_0000"), 5),
    "ids that none begin with": (page(id_prefix="zzz"), 0),
    "ids that many begin with": (page(id_prefix="r_0"), 5),
    "the last page of ids that many begin with": (page(id_prefix="r_0", before_id=_LAST), 5),
    "ids that many begin with, recently none": (page(id_prefix="r_0", since=START + _RUNS * 1_000_000), 0),
    "ids that many begin with, of a status that none has": (page(id_prefix="r_0", status=_NONE), 0),
    "ids that many begin with, of an agent with none": (page(id_prefix="r_0", agent="nobody"), 0),
    "ids that many begin with, with a tag that few have": (page(id_prefix="r_0", tags=(("is", _RARE),)), 2),
    "a queue with many, of an agent with none": (page(queue="default", agent="nobody"), 0),
    "an agent with many, in a queue with few": (page(queue=_RARE, agent="agent1"), 2),
    "a thread with many": (page(thread_id="t_all"), 5),
    "a thread with many, of a status that none has": (page(thread_id="t_all", status=_NONE), 0),
    "a thread with many, of an agent with none": (page(thread_id="t_all", agent="nobody"), 0),
    "failed ones": (page(status=frozenset({Status.failed, Status.cancelled})), 5),
}
#: Entries of an index that are few: of each that a filter has so many are counted.
_FEW = 20
#: Rows that one page may touch: itself, once for each status that is merged into it, those that are counted, and some.
_MOST = _PAGE * len(Status) + 4 * _FEW + 10


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "FEW_ENTRIES", _FEW)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "runs.db"

    async def filled() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await fill(store)

    asyncio.run(filled())
    return path


@pytest.mark.parametrize("name", LISTS)
def test_a_page_in_sqlite_touches_little_more_than_itself(name: str, path: Path) -> None:
    which, count = LISTS[name]
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    steps = 0

    def note() -> bool:
        nonlocal steps
        steps += 10
        return False

    try:
        sqlite_reads.runs(connection, page(queue="warm"))
        connection.set_progress_handler(note, 10)
        found = sqlite_reads.runs(connection, which)
    finally:
        connection.close()
    assert len(found) == count
    assert steps < 60 * _MOST  # of SQLite's machine: some dozens for each row


def test_a_page_in_postgres_touches_little_more_than_itself(postgres_url: str) -> None:
    queries = load_queries("postgres", "holdfast")

    async def explained(connection: Any, name: str, parameters: list[Any]) -> int:
        found = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {queries[name]}", *parameters)
        return _touched(json.loads(found)[0]["Plan"])

    async def touched(connection: Any, which: RunFilter) -> int:
        before_at = -rows.EVER if which.until is None else which.until
        if which.before_id is not None:
            before_at = await connection.fetchval(queries["cursor_position"], which.before_id)
        sizes, counted = None, 0
        if indexes.has_choice(which):
            asked = size_parameters(which, before_at)
            sizes = dict(await connection.fetchrow(queries["sizes"], *asked))
            counted = await explained(connection, "sizes", asked)
        name, filters = indexes.listing(which, sizes)
        parameters = listing_parameters(name, filters | {"before_at": before_at})
        return counted + await explained(connection, name, parameters)

    async def main() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await fill(store)
            for name, (which, count) in LISTS.items():
                assert len(await store.runs(which)) == count, name
        connection = await Target.of(postgres_url).connect(Role.read)
        try:
            for known in ("nothing", "all"):  # what the server knows of the tables: it looks at them when it likes to
                for plans in ("force_custom_plan", "force_generic_plan"):
                    await connection.execute(f"SET plan_cache_mode = {plans}")
                    most = {name: await touched(connection, which) for name, (which, _) in LISTS.items()}
                    too_many = {name: rows for name, rows in most.items() if rows > _MOST}
                    assert too_many == {}, (plans, known)
                await analyze(postgres_url)
        finally:
            await connection.close()

    asyncio.run(main())


async def analyze(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("ANALYZE")
    await connection.close()


def _touched(plan: dict[str, Any]) -> int:
    """Rows that were read from the table."""
    own = 0
    if "Scan" in plan["Node Type"] and "Relation Name" in plan:
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(map(_touched, plan.get("Plans", ())))
