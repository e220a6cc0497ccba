"""What a worker asks of SQLite again and again: nothing is read while nothing is committed; all that is, is seen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.errors import StoreReplaced
from holdfast.model import Definition, RunRow, Status
from holdfast.store.contract import Store
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, BOB, START, left, mail_for, new_run, new_worker, opened
from tests.eventually import eventually

#: Often, and with no commit of its own.
_IDLE = hf.Settings(sweep_s=0.01, renew_s=3600, lease_s=7200)
_LOOKS = 30


@hf.agent
async def greets(name: str) -> str:
    return f"hello {name}"


@contextmanager
def reads(store: Store) -> Iterator[Counter[str]]:
    """What SQLite is asked meanwhile; each BEGIN is a trip to another thread."""
    assert isinstance(store, SqliteStore)
    connection, asked = store._database.reader, Counter[str]()
    assert connection is not None

    def note(_: apsw.Cursor, sql: str, bindings: object) -> bool:
        asked[sql] += 1
        return True

    connection.exec_trace = note
    try:
        yield asked
    finally:
        connection.exec_trace = None


async def looks(app: hf.Holdfast, count: int) -> None:
    """Return when the worker has looked at everything so many times."""
    attendant = app._parts.attendant
    assert attendant is not None
    until = attendant._looks + count
    await eventually(lambda: attendant._looks >= until)


def _store(folder: Path) -> SqliteStore:
    return SqliteStore(folder / "runs.db")


async def _ready(store: Store, now: int) -> list[RunRow]:
    return await store.ready(agents=["agent"], queues=None, now=now, limit=10)


async def _everything(store: Store) -> None:
    """All that is kept: of what time alone changes, that there is nothing yet."""
    await _ready(store, START - 1000)
    await store.next_wake()
    await store.mail_counts(ALICE)
    await store.definitions("queue")
    await store.definitions("queue", due=START - 1000)
    await store.dead_workers()


@pytest.mark.sqlite_alone("counts what is asked of SQLite")
def test_an_idle_worker_reads_nothing_while_nothing_is_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[greets], settings=_IDLE) as app:
            await looks(app, 5)
            with reads(app._store) as asked:
                await looks(app, _LOOKS)
            assert not asked.total(), f"in {_LOOKS} sweeps: {asked.most_common()}"

    asyncio.run(main())


@pytest.mark.sqlite_alone("counts what is asked of SQLite")
def test_an_idle_worker_asks_once_after_each_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[greets], settings=_IDLE) as app:
            await looks(app, 5)
            with reads(app._store) as asked:
                for revision in (1, 2, 3):
                    await app._store.define([Definition("other", "a", "{}", revision)])
                    await looks(app, _LOOKS)
            # About ten questions; a few more, if a commit falls into a sweep.
            assert 3 <= asked["BEGIN"] <= 3 * 20, f"in {3 * _LOOKS} sweeps: {asked.most_common()}"

    asyncio.run(main())


def test_every_answer_is_new_after_a_commit_of_somebody_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: _store(tmp_path)) as store, opened(lambda: _store(tmp_path)) as other:
            mine = await store.create(new_run(), owner=ALICE)
            for number in range(3):
                await _everything(store)
                with reads(store) as asked:
                    await _everything(store)
                assert not asked.total(), asked
                await other.define([Definition("queue", f"q{number}", "{}", 1, due_at=START)])
                assert len(await store.definitions("queue")) == number + 1
                assert len(await store.definitions("queue", due=START)) == number + 1
                await other.send(mail_for(mine.id), wake=left)
                assert await store.mail_counts(ALICE) == {mine.id: (1, number + 1)}
                await other.create(new_run(status=Status.queued, wake_at=START - number), owner=None)
                assert len(await _ready(store, START)) == number + 1
                assert await store.next_wake() == START - number

    asyncio.run(main())


def test_what_is_given_out_is_the_callers_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: _store(tmp_path)) as store:
            run = await store.create(new_run(), owner=ALICE)
            await store.define([Definition("queue", "q", "{}", 1)])
            for _ in range(3):
                named, counts, dead = (
                    await store.definitions("queue"),
                    await store.mail_counts(ALICE),
                    await store.dead_workers(),
                )
                assert [each.name for each in named] == ["q"]
                assert counts == {run.id: (1, 0)}
                assert dead == {ALICE: "gone"}
                named.clear()
                counts.clear()
                dead.clear()

    asyncio.run(main())


def test_a_worker_that_dies_is_noticed_though_nothing_is_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: _store(tmp_path)) as store, opened(lambda: _store(tmp_path)) as other:
            until_ms = store.lease_clock_ms() + 3_600_000
            await store.add_worker(new_worker(ALICE, lease_until_ms=until_ms))
            await other.add_worker(new_worker(BOB, lease_until_ms=until_ms))
            assert await store.dead_workers() == {}
            assert await store.dead_workers() == {}
            assert isinstance(other, SqliteStore)
            other._database.locks.drop_all()  # as the system does when a process dies
            assert await store.dead_workers() == {BOB: "lock"}

    asyncio.run(main())


def test_an_answer_that_is_known_is_not_given_when_the_file_was_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: _store(tmp_path)) as store:
            await store.create(new_run(), owner=ALICE)
            await _everything(store)
            (tmp_path / "runs.db").rename(tmp_path / "elsewhere.db")

            async def is_noticed() -> bool:
                try:
                    return not await store.definitions("queue", due=START) and False
                except StoreReplaced:
                    return True

            with reads(store) as asked:
                assert await eventually(is_noticed)  # the files are looked at every 100 ms
            assert not asked.total(), asked

    asyncio.run(main())


def test_a_store_that_is_opened_again_knows_nothing_of_before(tmp_path: Path) -> None:
    async def main() -> None:
        store = _store(tmp_path)
        for number in range(3):
            await store.open()
            assert len(await store.definitions("queue")) == number
            await store.close()
            async with opened(lambda: _store(tmp_path)) as other:
                await other.define([Definition("queue", f"q{number}", "{}", 1)])

    asyncio.run(main())


def test_a_store_that_is_opened_to_read_reads_each_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            opened(lambda: _store(tmp_path)) as store,
            opened(lambda: _store(tmp_path), read_only=True) as reader,
        ):
            for number in range(3):
                assert len(await reader.definitions("queue")) == number
                await store.define([Definition("queue", f"q{number}", "{}", 1)])

    asyncio.run(main())
