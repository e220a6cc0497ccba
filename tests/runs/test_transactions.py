"""Effects on the user's own tables, in the store's database, are never in doubt."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.store.sqlite.user_transactions import OWN
from holdfast.testing.processes import environment
from holdfast.verbs.effect.transactions import transaction, uses_transaction
from tests.eventually import eventually_now
from tests.scripts import Script
from tests.stopped import is_stopped

PAID = [(1, 10), (2, 20), (3, 30)]
RESULT = "['1 paid 1 times', '2 paid 1 times', '3 paid 1 times']"


def started(url: str, fault: str = "", **env: str) -> Script:
    env["HOLDFAST_FAULT"] = fault
    return Script("-m", "tests.runs.paying", url, env=environment(env))


def ended(process: Script) -> tuple[int, list[str]]:
    ended = process.ended()
    return ended.returncode, ended.stdout.splitlines()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def paid(url: str) -> list[Any]:
    query = "SELECT id, amount FROM payments ORDER BY id"
    if url.startswith("postgres"):
        return [tuple(row) for row in asyncio.run(fetched(url, query))]
    connection = apsw.Connection(url)
    try:
        return list(connection.execute(query))
    finally:
        connection.close()


async def fetched(url: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("point", "attempts"),
    [
        ("effect.after_intent", 1),
        ("land.before_commit", 2),
        ("land.after_commit", 1),
        ("effect.after_body", 1),
        ("effect.after_outcome", 1),
    ],
)
def test_killed_anywhere_it_happens_once(point: str, attempts: int, url: str) -> None:
    """And nobody is asked: the store says whether it happened."""
    code, said = ended(started(url, f"{point}:kill@2"))
    assert code == -signal.SIGKILL
    code, said_then = ended(started(url))
    assert code == 0
    assert said_then[-1] == RESULT
    assert [each.partition("of")[2] for each in said + said_then].count(" 2") == attempts
    assert paid(url) == PAID


def test_a_process_that_sleeps_through_its_lease_cannot_commit_any_more(url: str) -> None:
    first = started(url, "effect.after_intent:stop@2", LEASE_S="1")
    try:
        eventually_now(lambda: is_stopped(first.pid))
        code, said = ended(started(url))
        assert (code, said[-1]) == (0, RESULT)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    _, late = ended(first)
    assert "attempt 1 of 2" in late  # its body did run
    assert paid(url) == PAID


def test_a_lost_connection_is_no_reason_to_fail(postgres_url: str) -> None:
    attempts: list[int] = []

    @hf.effect
    async def pay() -> int:
        attempts.append(hf.this_step().attempt)
        async with hf.transaction() as connection:
            await connection.execute("CREATE TABLE payments (id INTEGER, amount INTEGER)")
            await connection.execute("INSERT INTO payments VALUES (1, 2)")
            if len(attempts) < 3:
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                await fetched(postgres_url, f"SELECT pg_terminate_backend({pid})")
            return int(await connection.fetchval("SELECT count(*) FROM payments"))

    @hf.agent
    async def shop() -> int:
        return await pay()

    async def main() -> int:
        async with hf.connect(postgres_url, agents=[shop]) as app:
            return await (await app.start(shop())).result(timeout=60)

    assert asyncio.run(main()) == 1
    assert attempts == [1, 2, 3]
    assert paid(postgres_url) == [(1, 2)]


# what else can happen to it


def lived(tmp_path: Path, agent: Any, settings: hf.Settings | None = None) -> Any:
    """The result of an agent's run, or what it raised."""

    async def main() -> Any:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[agent], settings=settings) as app:
            return await (await app.start(agent(), id="r")).result(timeout=60)

    try:
        return asyncio.run(main())
    except hf.RunFailed as failed:
        return f"{failed}"


def insert(n: int, then: Exception | None = None) -> int:
    with hf.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER, amount INTEGER)")
        connection.execute("INSERT INTO payments VALUES (?, 0)", (n,))
        if then is not None:
            raise then
        return int(connection.changes)


def test_what_raises_did_not_happen_and_may_be_tried_again(tmp_path: Path) -> None:
    attempts: list[int] = []

    @hf.effect(transaction=True, retries=hf.Retry(3, first=0.01))
    def pays_at_last(n: int) -> int:
        attempts.append(hf.this_step().attempt)
        return insert(n, ZeroDivisionError("not yet") if len(attempts) < 3 else None)

    @hf.effect(transaction=True, retries=3, raises=LookupError)
    def refuses(n: int) -> int:
        attempts.append(-1)
        return insert(n, LookupError("no such order"))

    @hf.effect(transaction=True)
    def fails(n: int) -> int:
        return insert(n, ZeroDivisionError("never"))

    @hf.effect(transaction=True)
    def gets_over_it(n: int) -> str:
        try:
            insert(n, ZeroDivisionError("caught"))
        except ZeroDivisionError:
            return "not inserted"
        return ""

    @hf.agent
    async def shop() -> list[str]:
        told = [str(await pays_at_last(1)), await gets_over_it(4)]
        for call in (refuses, fails):
            try:
                await call(2)
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
        return told

    result = lived(tmp_path, shop)
    assert result == ["1", "not inserted", "LookupError: no such order", "ZeroDivisionError: never"]
    assert attempts == [1, 2, 3, -1]
    assert paid(str(tmp_path / "runs.db")) == [(1, 0)]


def test_a_result_that_cannot_be_stored_takes_the_changes_back(tmp_path: Path) -> None:
    @hf.effect(transaction=True)
    def odd() -> Any:
        insert(1)
        return object()

    @hf.agent
    async def shop() -> str:
        try:
            await odd()
        except Exception as error:
            return str(error)
        return ""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[shop]) as app:
            assert "cannot be stored" in await (await app.start(shop())).result(timeout=60)

    asyncio.run(main())
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    assert list(connection.execute("SELECT name FROM sqlite_schema WHERE name = 'payments'")) == []
    connection.close()


@pytest.mark.parametrize(
    "sql", ["COMMIT", "ROLLBACK", "DELETE FROM records", "DROP TABLE landed", "ATTACH ':memory:' AS other"]
)
def test_a_body_neither_ends_the_transaction_nor_touches_the_runs(sql: str, tmp_path: Path) -> None:
    @hf.effect
    def meddles() -> None:
        with hf.transaction() as connection:
            connection.execute(sql)

    @hf.agent
    async def shop() -> str:
        try:
            await meddles()
        except hf.UsageError as error:
            return str(error)
        return ""

    assert "was refused" in lived(tmp_path, shop)


def test_a_body_that_keeps_the_connection_too_long_loses_it(tmp_path: Path) -> None:
    has_it, has_gone_on = threading.Event(), threading.Event()

    @hf.effect(transaction=True)
    def dawdles() -> None:
        insert(1)
        has_it.set()
        assert has_gone_on.wait(60), "others had to wait for the body"
        with hf.transaction() as connection:
            connection.execute("SELECT 1")

    @hf.effect
    async def goes_on() -> None:
        has_gone_on.set()

    @hf.agent
    async def shop() -> str:
        async def other() -> None:
            await asyncio.to_thread(has_it.wait, 60)
            await goes_on()

        task = asyncio.create_task(other())
        try:
            await dawdles()
        except hf.StoreError as error:
            await task
            return str(error)
        return ""

    assert "This transaction is over" in lived(tmp_path, shop, hf.Settings(lease_s=4.5, renew_s=0.2))


def test_where_it_makes_no_sense_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(hf.NotInRun, match="inside an effect of a run"):
        hf.transaction()

    def helper() -> None:
        with hf.transaction() as connection:
            connection.execute("SELECT 1")

    @hf.effect
    def unknown() -> None:
        helper()

    @hf.step
    def only_a_step() -> None:
        hf.transaction()

    @hf.effect
    async def on_the_loop() -> None:
        async with hf.transaction():
            pass

    @hf.agent
    async def shop() -> list[str]:
        told = []
        for call in (unknown, only_a_step, on_the_loop):
            try:
                await call()
            except Exception as error:
                told.append(str(error))
        try:
            hf.transaction()
        except hf.UsageError as error:
            told.append(str(error))
        return told

    # Of `unknown` it is not known that it was rolled back, so it would be in doubt.
    unknown_settled = hf.effect(on_doubt="fail")(unknown._definition.body.fn)  # type: ignore[attr-defined]
    unknown = unknown_settled
    told = lived(tmp_path, shop)
    assert "@hf.effect(transaction=True)" in told[0]
    assert "@hf.effect(transaction=True)" in told[1]
    assert "`def` instead of `async def`" in told[2]
    assert "move it into an effect" in told[3]


def test_it_is_seen_in_the_code_of_an_effect() -> None:
    class other:
        transaction = None

    def direct() -> None:
        with hf.transaction():
            pass

    def by_name() -> None:
        with transaction():
            pass

    def inside() -> None:
        def inner() -> None:
            hf.transaction()

        inner()

    def somebody_elses(connection: Any) -> None:
        connection.transaction()
        other.transaction()  # type: ignore[misc]

    assert [uses_transaction(each) for each in (direct, by_name, inside, somebody_elses, len)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_tables_of_the_store_are_known(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db")):
            pass

    asyncio.run(main())
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    assert {name for (name,) in connection.execute(tables)} == OWN
    connection.close()
