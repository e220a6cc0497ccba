"""Runs, signals and events that come to be with a transaction of the user's own, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf

SETTINGS = hf.Settings(sweep_s=0.05)
number = hf.Signal("number", int)


@hf.agent(signals=[number])
async def adds(first: int) -> int:
    return first + await hf.receive(number)


@hf.agent
async def told(value: int) -> int:
    return value


def apsw_connection(path: str) -> Any:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    return connection


async def all_three(app: hf.Holdfast, connection: Any) -> hf.Run[int]:
    run = await app.start(adds(1), id="sum", tags={"by": "test"}, transaction=connection)
    assert await run.send(number, 2, transaction=connection)
    await app.emit("order", 7, dedup="order-7", transaction=connection)
    return run


def test_what_is_committed_happens_once_and_what_is_not_does_not(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with (
            hf.connect(url) as client,
            hf.connect(url, agents=[adds, told], settings=SETTINGS) as app,
            hf.connect(url, agents=[adds, told], settings=SETTINGS),
        ):
            await app.on("order", told, name="orders")
            connection = apsw_connection(url)
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders VALUES (1)")
            await all_three(client, connection)
            connection.execute("ROLLBACK")
            await asyncio.sleep(0.3)
            assert await client.runs() == []
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders VALUES (2)")
            run = await all_three(client, connection)
            with pytest.raises(hf.RunNotFound):
                await run.status()
            connection.execute("COMMIT")
            while not await client.runs(agent="adds"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await run.result(timeout=60) == 3
            while not (runs := await client.runs(agent="told", status="done")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(runs) == 1
            assert list(connection.execute("SELECT id FROM orders")) == [(2,)]
            assert await app._store.definitions("outbox") == []
            connection.close()

    asyncio.run(main())


def test_in_postgresql_too(postgres_url: str) -> None:
    async def main() -> None:
        async with (
            hf.connect(postgres_url) as client,
            hf.connect(postgres_url, agents=[adds, told], settings=SETTINGS) as app,
        ):
            await app.on("order", told, name="orders")
            connection = await asyncpg.connect(postgres_url)
            await connection.execute("CREATE TABLE orders (id INTEGER)")
            with pytest.raises(hf.UsageError, match="open transaction"):
                await client.start(adds(1), transaction=connection)
            run: hf.Run[int] | None = None
            for is_committed in (False, True):
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute("INSERT INTO orders VALUES (1)")
                run = await all_three(client, connection)
                assert await connection.fetchval("SHOW synchronous_commit") == "on"
                await asyncio.sleep(0.2)
                assert await client.runs() == []
                await (transaction.commit() if is_committed else transaction.rollback())
            while not await client.runs(agent="adds"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert run is not None
            assert await run.result(timeout=60) == 3
            while not await client.runs(agent="told", status="done"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await connection.fetchval("SELECT count(*) FROM orders") == 1
            await connection.close()

    asyncio.run(main())


def test_what_cannot_be_is_refused_before_it_is_written(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with hf.connect(url, agents=[adds]) as app:
            run = await app.start(adds(1), id="sum")
            connection = apsw_connection(url)
            with pytest.raises(hf.UsageError, match="open transaction"):
                await app.start(adds(1), transaction=connection)
            other = apsw_connection(str(tmp_path / "other.db"))
            other.execute("BEGIN")
            with pytest.raises(hf.UsageError, match=r"other\.db"):
                await app.start(adds(1), transaction=other)
            with pytest.raises(hf.UsageError, match="got str"):
                await app.emit("order", transaction="connection")
            theirs = sqlite3.connect(":memory:")
            theirs.execute("BEGIN")
            with pytest.raises(hf.UsageError, match=r"apsw\.Connection.*got sqlite3\.Connection"):
                await app.start(adds(1), transaction=theirs)
            with pytest.raises(hf.UsageError, match=r"apsw\.Connection.*got sqlite3\.Connection"):
                await run.send(number, 1, transaction=theirs)
            theirs.close()
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(hf.UsageError, match="does not fit"):
                await run.send("number", "two", transaction=connection)
            with pytest.raises(hf.UsageError, match="takes 1 to 200"):
                await app.start(adds(1), id="", transaction=connection)
            connection.execute("COMMIT")
            assert await app._store.definitions("outbox") == []
            await run.send(number, 1)
            connection.close()
            other.close()
            assert await run.result(timeout=60) == 2

    asyncio.run(main())


def test_what_nobody_can_take_any_more_is_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with hf.connect(url, agents=[adds], settings=SETTINGS) as app:
            connection = apsw_connection(url)
            connection.execute("BEGIN IMMEDIATE")
            await app.get("nobody").send(number, 1, transaction=connection)
            connection.execute("COMMIT")
            connection.close()
            while await app._store.definitions("outbox"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert "outbox.refused" in caplog.text
    assert "nobody" in caplog.text
