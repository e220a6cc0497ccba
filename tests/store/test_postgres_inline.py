"""Answers that the loop's own thread waits for: what comes in time, what comes late, and what never comes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.by_hand import hurried
from holdfast.store.postgres_answers import Answers
from holdfast.testing.postgres import PostgresServer


class Told(Answers):
    """Says how often it had an answer, and how often not."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.told: list[bool] = []

    def wait(self, answer: asyncio.Future[Any]) -> bool:
        self.told.append(super().wait(answer))
        return self.told[-1]


async def opened(url: str) -> tuple[Any, Told]:
    connection = await asyncpg.connect(url)
    return connection, Told(connection)


def test_an_answer_is_taken_without_a_turn_of_the_loop(postgres_url: str) -> None:
    async def main() -> None:
        connection, answers = await opened(postgres_url)
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


def test_a_refusal_is_an_answer(postgres_url: str) -> None:
    async def main() -> None:
        connection, answers = await opened(postgres_url)
        statement = await connection.prepare("SELECT 1 / $1::int")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await hurried(statement.fetchval(0), answers.wait)
        assert await hurried(statement.fetchval(1), answers.wait) == 1
        assert answers.told == [True, True]
        await connection.close()

    asyncio.run(main())


def test_a_late_answer_comes_with_the_loop_and_the_next_ones_too(postgres_url: str) -> None:
    async def main() -> None:
        connection, answers = await opened(postgres_url)
        statement = await connection.prepare("SELECT pg_sleep($1::float)::text")
        began = time.monotonic()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        assert await hurried(statement.fetchval(0.3), answers.wait) == ""
        assert time.monotonic() - began >= 0.3
        assert ticks >= 5, "the loop turned meanwhile"
        assert await hurried(statement.fetchval(0), answers.wait) == ""
        assert answers.told == [False, False], "a server that was slow is left to the loop for a while"
        ticking.cancel()
        await connection.close()

    asyncio.run(main())


def test_an_answer_that_never_comes_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        with PostgresServer(tmp_path / "server", fsync=False) as server:
            connection, answers = await opened(server.url())
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
        return await opened(server.url())

    asyncio.run(main())


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
