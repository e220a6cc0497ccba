"""The SQLite store with many runs that wait: what it costs, and what a crash leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import CorruptJournal
from holdfast.model import (
    Append,
    Applied,
    Claim,
    Definition,
    Kind,
    Loaded,
    Outgoing,
    QuestionState,
    RunId,
    RunRow,
    Sent,
    Status,
)
from holdfast.store import rows as store_rows
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import (
    ALICE,
    START,
    amended,
    append,
    left,
    mail_for,
    new_run,
    opened,
    parked,
    question_of,
    taken_over,
    woken,
)
from tests.store.statements import statements


class FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self._vfs.failing_syncs:
            self._vfs.failing_syncs -= 1
            raise OSError(5, "Input/output error")


class FailingDisk(apsw.VFS):
    """A disk that syncs and says that it could not: what was written is there, and nobody knows."""

    def __init__(self) -> None:
        self.name = f"failing-{id(self)}"
        self.failing_syncs = 0
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    vfs = FailingDisk()
    yield vfs
    vfs.unregister()


def reader_of(store: object) -> apsw.Connection:
    connection = store._database.reader  # type: ignore[attr-defined]
    assert isinstance(connection, apsw.Connection)
    return connection


# unknown outcomes


def test_writes_whose_commit_was_not_heard_of_are_done_once(tmp_path: Path, disk: FailingDisk) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            owned = [await store.create(new_run(), owner=ALICE) for _ in range(4)]
            queued = [await store.create(new_run(status=Status.queued, wake_at=START), owner=None) for _ in range(3)]
            waits = await store.create(new_run(status=Status.waiting), owner=None)
            asks = await store.create(new_run(status=Status.waiting), owner=None)
            await store.open_question(question_of(asks.id))
            parks: list[Append] = [
                parked(owned[0], Kind.started, mail=0, wake_at=START),
                parked(owned[1], mail=0),
                dataclasses.replace(parked(owned[2], mail=0), outgoing=Outgoing(mail_for(owned[3].id, "told"), woken)),
            ]
            claims = [Claim(taken_over(row, wake_at=None), 1, None) for row in queued[:2]]
            answer = mail_for(asks.id, '{"by":"ann"}', kind="answer", key="ask#1")
            disk.failing_syncs = 1
            results = await asyncio.gather(
                append(store, *parks),
                store.claim_many(claims, owner=ALICE),
                store.amend(amended(queued[2], Kind.noted, status=Status.paused, wake_at=None)),
                store.send(mail_for(waits.id, dedup="d"), wake=woken),
                store.send(answer, wake=woken, decides=(QuestionState.answered, "shown 1")),
                store.define([Definition("queue", "a", "{}", 1), Definition("queue", "b", "{}", 2)]),
                store.close_question(waits.id, "ask#1", QuestionState.expired, START),
            )
            assert disk.failing_syncs == 0
            assert results == [
                [Applied.committed] * 3, [True, True], True, Sent(1, is_new=True), Sent(1, is_new=True), [True, False],
                None,
            ]  # fmt: skip
            for park in parks:
                assert await store.run(park.row.id) == dataclasses.replace(park.row, owner=None)
            assert [mail.body for mail in await store.mail(owned[3].id, after=0)] == ["told"]
            assert len(await store.mail(waits.id, after=0)) == len(await store.mail(asks.id, after=0)) == 1
            for claim in claims:
                assert await store.run(claim.row.id) == dataclasses.replace(claim.row, owner=ALICE, claims=1)
            assert len(await store.records(queued[2].id)) == 2

    asyncio.run(main())


POINTS = {
    "send": "await store.send(mail_for(row.id), wake=woken)",
    "amend": "await store.amend(amended(row, 'noted', status=Status.paused))",
    "claim": "await store.claim_many([Claim(taken_over(row), 1, None)], owner=ALICE)",
    "question": "await store.open_question(question_of(row.id))",
    "define": "await store.define([Definition('queue', 'a', '{}', 1)])",
}


@pytest.mark.parametrize("name", POINTS)
def test_a_kill_around_the_commit_leaves_all_or_nothing(tmp_path: Path, name: str) -> None:
    script = f"""
import asyncio, sys
from holdfast.model import Claim, Definition, Status
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import *
from holdfast.testing.samples import amended, mail_for, question_of, taken_over, woken

async def main():
    async with opened(lambda: SqliteStore(sys.argv[1])) as store:
        row = await store.create(new_run("r_1", status=Status.waiting), owner=None)
        {POINTS[name]}
        print("acknowledged", flush=True)

asyncio.run(main())
"""

    async def found(path: Path) -> tuple[Loaded, int, int]:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.check() == []
            (loaded,) = await store.load_many([RunId("r_1")])
            return loaded, len(await store.questions()), len(await store.definitions("queue"))

    states = []
    for moment in ("before", "after"):
        path = tmp_path / f"{moment}.db"
        fault = f"{name}.{moment}_commit:kill"
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)],
            env=os.environ | {"HOLDFAST_FAULT": fault},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == -9, done.stderr
        assert "acknowledged" not in done.stdout
        states.append(asyncio.run(found(path)))
    before, after = states
    assert (before[0].row.status, before[0].row.epoch, before[0].mail, *before[1:]) == (Status.waiting, 1, [], 0, 0)
    row = after[0].row
    expected = {
        "send": (row.status, row.mail, len(after[0].mail)) == (Status.queued, 1, 1),
        "amend": (row.status, row.epoch, len(after[0].records)) == (Status.paused, 2, 2),
        "claim": (row.owner, row.epoch, row.claims) == (ALICE, 2, 1),
        "question": after[1] == 1,
        "define": after[2] == 1,
    }
    assert expected[name]


# what it costs


def fill(path: Path, rows: Iterable[RunRow]) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "off")
    with connection:
        connection.executemany(
            load_queries("sqlite").rows("create_runs", 1), (store_rows.run_parameters(row, None) for row in rows)
        )
    connection.close()


def queued(count: int, key: Callable[[int], str], **changes: Any) -> Iterator[RunRow]:
    row = new_run(None, status=Status.queued, wake_at=START, **changes).row
    for number in range(count):
        yield dataclasses.replace(
            row, id=RunId(f"r_{number:06}"), queue_key=key(number), priority=number % 3, wake_at=START + number % 97
        )


async def steps(path: Path, rows: Iterable[RunRow]) -> int:
    """How many steps SQLite takes to say which runs are ready, and when the next one is."""
    async with opened(lambda: SqliteStore(path)) as store:
        fill(path, rows)
        counted = 0

        def count() -> bool:
            nonlocal counted
            counted += 1
            return False

        reader_of(store).set_progress_handler(count, 50)
        found = await store.ready(agents=["agent"], queues=None, now=START + 1000, limit=20, after="k5")
        assert len(found) == 20
        await store.next_wake()
        return counted


def test_finding_ready_runs_costs_the_same_however_many_wait(tmp_path: Path) -> None:
    def in_keys(count: int) -> Callable[[int], str]:
        return lambda number: f"k{number % count}"

    cost = {
        name: asyncio.run(steps(tmp_path / f"{name}.db", rows))
        for name, rows in {
            "few, one key": queued(3_000, in_keys(1)),
            "few, many keys": queued(3_000, in_keys(1_000)),
            "many, one key": queued(40_000, in_keys(1)),
            "many, many keys": queued(40_000, in_keys(13_000)),
        }.items()
    }
    assert max(cost.values()) < 2 * min(cost["few, one key"], cost["few, many keys"]), cost


def test_runs_that_nobody_here_can_execute_cost_nothing(tmp_path: Path) -> None:
    ours = [dataclasses.replace(new_run(status=Status.queued, wake_at=START).row) for _ in range(50)]
    alone = asyncio.run(steps(tmp_path / "alone.db", ours))
    foreign = queued(20_000, str, agent="foreign")
    late = (
        dataclasses.replace(row, id=RunId(f"r_late{row.id}"), wake_at=START + 10**9)
        for row in queued(20_000, lambda number: f"late {number}")
    )
    among = asyncio.run(steps(tmp_path / "among.db", [*ours, *foreign, *late]))
    assert among < 2 * alone + 20


def test_appends_that_keep_the_status_touch_no_index(tmp_path: Path) -> None:
    """Each index would cost every step of every run."""
    queries = load_queries("sqlite")
    connection = apsw.Connection(":memory:")
    migrations = Path(store_rows.__file__).parent / "sql" / "sqlite" / "migrations"
    for file in sorted(migrations.iterdir()):
        connection.execute(file.read_text("utf-8"))
    for name in ("append_keep_one", "append_keep"):
        sql = queries.rows(name, 1)
        opened_to_write = [
            row for row in connection.execute(f"EXPLAIN {sql}", (None,) * sql.count("?")) if row[1] == "OpenWrite"
        ]
        assert len(opened_to_write) == 1, name


def test_a_batch_with_unread_mail_does_not_starve(tmp_path: Path) -> None:
    """What does not match is sorted out at once, not looked for one by one."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(300)]
            await store.send(mail_for(rows[7].id), wake=left)
            mother = rows[-1]
            parks = [
                dataclasses.replace(
                    parked(row, Kind.noted, mail=0, wake_at=START), outgoing=Outgoing(mail_for(mother.id, row.id), left)
                )
                for row in rows[:-1]
            ]
            with statements(store) as done:
                results = await append(store, *parks)
            assert results.count(Applied.unread) == 1
            assert results.count(Applied.committed) == 298
            assert len(await store.mail(mother.id, after=0)) == 298
            assert 0 < len(done) < 200, "one by one it would be more than 1200, each of which waits for the interpreter"

    asyncio.run(main())


# damage


def test_a_damaged_run_is_left_out_and_the_others_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            rows = [await store.create(new_run(f"r_{number}"), owner=None) for number in range(6)]
            for row in rows[1:3]:
                await store.send(mail_for(row.id), wake=left)
            connection = apsw.Connection(str(path))
            connection.execute("PRAGMA ignore_check_constraints = 1")
            connection.execute("UPDATE runs SET summary = '[' WHERE id = 'r_1'")
            connection.execute("UPDATE runs SET status = 'unheard of' WHERE id = 'r_3'")
            connection.close()
            loaded = await store.load_many([row.id for row in rows])
            assert [each.row.id for each in loaded] == ["r_0", "r_2", "r_4", "r_5"]
            assert [len(each.mail) for each in loaded] == [0, 1, 0, 0]
            with pytest.raises(CorruptJournal, match="r_1"):
                await store.send(mail_for(rows[1].id), wake=left)

    asyncio.run(main())
