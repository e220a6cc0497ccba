"""Answers that the loop's own thread waits for: what comes in time, what comes late, and what never comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.base.stepping import hurried
from holdfast.model import Append, Applied, Kind, RunRow
from holdfast.store.postgres import answers as postgres_answers
from holdfast.store.postgres.answers import AnswerTimes
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.samples import ALICE, BOB, append, extend, new_run, opened
from tests.eventually import eventually
from tests.store.proxy import Proxy, proxied


class Told(AnswerTimes):
    """Says how often it had an answer, and how often not."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.told: list[bool] = []

    def wait(self, answer: asyncio.Future[Any]) -> bool:
        self.told.append(super().wait(answer))
        return self.told[-1]


async def connected(url: str) -> tuple[Any, Told]:
    connection = await asyncpg.connect(url)
    return connection, Told(connection)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is in time, however slow the server is."""
    monkeypatch.setattr(postgres_answers, "_LIMIT_MS", 60_000)


@pytest.mark.usefixtures("patience")
def test_an_answer_is_taken_without_a_turn_of_the_loop(postgres_url: str) -> None:
    async def main() -> None:
        connection, answers = await connected(postgres_url)
        statement = await connection.prepare("SELECT $1::int + 1")
        turns: list[int] = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        assert [await hurried(statement.fetchval(n), answers.wait) for n in range(5)] == [1, 2, 3, 4, 5]
        assert not turns
        assert answers.told == [True] * 5
        large = await connection.prepare("SELECT repeat('x', 3_000_000)")
        assert len(await hurried(large.fetchval(), answers.wait)) == 3_000_000
        await connection.close()

    asyncio.run(main())


@pytest.mark.usefixtures("patience")
def test_a_refusal_is_an_answer(postgres_url: str) -> None:
    async def main() -> None:
        connection, answers = await connected(postgres_url)
        statement = await connection.prepare("SELECT 1 / $1::int")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await hurried(statement.fetchval(0), answers.wait)
        assert await hurried(statement.fetchval(1), answers.wait) == 1
        assert answers.told == [True, True]
        await connection.close()

    asyncio.run(main())


def test_a_late_answer_comes_with_the_loop_and_the_next_ones_too(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_answers, "_REST_US", 600_000_000)

    async def main() -> None:
        other = await asyncpg.connect(postgres_url)
        await other.execute("SELECT pg_advisory_lock(7)")
        connection, answers = await connected(postgres_url)
        statement = await connection.prepare("SELECT pg_advisory_lock($1)::text")

        async def tick() -> None:
            for _ in range(5):
                await asyncio.sleep(0.01)
            await other.execute("SELECT pg_advisory_unlock(7)")  # only if the loop turns, there is an answer

        ticking = asyncio.create_task(tick())
        assert await hurried(statement.fetchval(7), answers.wait) == ""
        assert await hurried(statement.fetchval(8), answers.wait) == ""
        assert answers.told == [False, False], "a server that was slow is left to the loop for a while"
        await ticking
        await connection.close()
        await other.close()

    asyncio.run(main())


def test_an_answer_that_never_comes_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        with PostgresServer(tmp_path / "server", fsync=False) as server:
            connection, answers = await connected(server.url())
            statement = await connection.prepare("SELECT pg_sleep($1::float)::text")
            waiting = asyncio.create_task(hurried(statement.fetchval(60), answers.wait))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(server.stop, "immediate")
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await waiting
            connection, answers = await _again(server)
            statement = await connection.prepare("SELECT pg_terminate_backend(pg_backend_pid())")
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await hurried(statement.fetchval(), answers.wait)

    async def _again(server: PostgresServer) -> tuple[Any, Told]:
        server.start()
        return await connected(server.url())

    asyncio.run(main())


# a store's lone append


async def alone(store: PostgresStore, one: Append) -> Applied | BaseException:
    """What became of it; it is sent by itself."""
    told: asyncio.Future[Applied | BaseException] = asyncio.get_running_loop().create_future()
    sending = store.commit_alone(one, told.set_result)
    assert not isinstance(sending, bool)
    await sending
    return await asyncio.wait_for(told, 60)


@asynccontextmanager
async def begun(url: str) -> AsyncIterator[tuple[Proxy, PostgresStore, RunRow]]:
    """A store behind a proxy, and a run in it; what can be sent alone is."""
    async with proxied(url) as (proxy, store):
        row = await store.create(new_run(), owner=ALICE)
        first = extend(row, Kind.done)
        assert await append(store, first) == [Applied.committed]
        second = extend(first.row, Kind.done, Kind.intent)
        assert await alone(store, second) is Applied.committed
        yield proxy, store, second.row


async def assert_has(url: str, row: RunRow) -> None:
    async with opened(lambda: PostgresStore(url)) as store:
        loaded = await store.load(row.id)
        assert loaded is not None
        assert (loaded[0].head_seq, loaded[0].head_hash) == (row.head_seq, row.head_hash)
        assert [record.seq for record in loaded[1]] == list(range(1, row.head_seq + 1))


@pytest.mark.parametrize("loses", ["reply", "request"])
def test_a_lone_append_whose_answer_is_lost_is_done_once(loses: str, postgres_url: str) -> None:
    async def main() -> None:
        async with begun(postgres_url) as (proxy, store, row):
            for _ in range(3):
                step = extend(row, Kind.done, Kind.intent)
                proxy.loses = loses
                assert await alone(store, step) is Applied.committed
                row = step.row
                usual = extend(row, Kind.done)
                assert await append(store, usual) == [Applied.committed]
                row = usual.row
            assert proxy.lost == 3
        await assert_has(postgres_url, row)

    asyncio.run(main())


def test_a_lone_append_that_does_not_match_is_told_why(postgres_url: str) -> None:
    async def main() -> None:
        async with begun(postgres_url) as (_, store, row):
            for wrong in (
                extend(replace(row, epoch=row.epoch + 1), Kind.done),
                extend(replace(row, owner=BOB), Kind.done),
                replace(extend(row, Kind.done), base_hash=b"x" * 16),
                replace(extend(row, Kind.done), mail=7),
            ):
                assert await alone(store, wrong) in (Applied.fenced, Applied.diverged, Applied.unread)
            assert await alone(store, extend(row, Kind.done)) is Applied.committed
        await assert_has(postgres_url, extend(row, Kind.done).row)

    asyncio.run(main())


def test_whoever_sent_a_lone_append_may_be_cancelled_and_it_is_told_all_the_same(postgres_url: str) -> None:
    async def main() -> None:
        async with begun(postgres_url) as (_, store, row):
            other = await asyncpg.connect(postgres_url)
            held = other.transaction()
            await held.start()
            await other.execute("SELECT 1 FROM holdfast.runs WHERE id = $1 FOR UPDATE", row.id)
            told: asyncio.Future[Applied | BaseException] = asyncio.get_running_loop().create_future()
            step = extend(row, Kind.done)
            sending = store.commit_alone(step, told.set_result)
            assert not isinstance(sending, bool)
            task = asyncio.ensure_future(sending)

            async def waits() -> int:
                return await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")  # type: ignore[no-any-return]

            await eventually(waits)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not told.done()
            await held.rollback()
            assert await asyncio.wait_for(told, 60) is Applied.committed
            await other.close()
        await assert_has(postgres_url, step.row)

    asyncio.run(main())


# a run


@hf.effect
async def act(n: int) -> int:
    return n + 1


@hf.agent
async def acting(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await act(n)
    return n


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_run_that_commits_on_the_thread_of_the_loop_lets_it_turn(
    store: str, tmp_path: Path, postgres_url: str
) -> None:
    async def main() -> None:
        async with hf.connect(
            postgres_url if store == "postgresql" else str(tmp_path / "s.db"), agents=[acting]
        ) as app:
            result = asyncio.create_task((await app.start(acting(1500))).result())
            turns = 0
            while not result.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert await result == 1500
            assert turns >= 20, "the loop stood still"

    asyncio.run(main())
