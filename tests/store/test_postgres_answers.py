"""Answers of the server that never arrive, and requests that never do: a proxy in between decides which."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast.errors import StoreError
from holdfast.model import Applied, Definition, Kind
from holdfast.store.migrate import migrations
from holdfast.store.postgres import migrate as postgres_migrate
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import ALICE, append, extend, left, mail_for, new_run, opened, parked
from tests.store.proxy import proxied


@pytest.mark.parametrize("loses", ["reply", "request"])
def test_a_write_whose_outcome_is_unknown_is_done_once(loses: str, postgres_url: str) -> None:
    async def main() -> None:
        async with proxied(postgres_url) as (proxy, store):
            row = await store.create(new_run("r_warm"), owner=ALICE)
            assert await append(store, extend(row, Kind.done)) == [Applied.committed]

            proxy.loses, proxy.mark = loses, b"r_new"
            row = await store.create(new_run("r_new"), owner=ALICE)
            assert row.owner == ALICE

            proxy.loses = loses
            step = extend(row, Kind.started, Kind.done)
            assert await append(store, step) == [Applied.committed]

            proxy.loses = loses
            chain = [extend(step.row, Kind.done)]
            chain.append(extend(chain[0].row, Kind.done))
            assert await append(store, *chain) == [Applied.committed] * 2

            proxy.loses = loses
            sent = await store.send(mail_for(row.id, "1", dedup="one"), wake=left)
            assert sent.number == 1

            proxy.loses, proxy.mark = loses, b"only-me"
            assert await store.define([Definition("queue", "only-me", "{}", 1)]) == [True]

            proxy.loses, proxy.mark = loses, b"r_new"
            assert await append(store, parked(chain[1].row, Kind.noted)) == [Applied.committed]
            assert proxy.lost == 6
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            loaded = await store.load(row.id)
            assert loaded is not None
            assert [record.seq for record in loaded[1]] == list(range(1, 7))
            assert loaded[0].owner is None
            assert len(await store.mail(row.id, after=0)) == 1

    asyncio.run(main())


def test_settings_of_the_server_that_cut_statements_off_lose_nothing(postgres_url: str) -> None:
    """The store sets its own; an administrator who cuts sessions off is met with a new one."""

    async def main() -> None:
        admin = await asyncpg.connect(postgres_url)
        name = await admin.fetchval("SELECT current_database()")
        for setting in (
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "idle_session_timeout",
        ):
            await admin.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '30ms'")
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            row = await store.create(new_run(), owner=ALICE)
            for _ in range(5):
                await asyncio.sleep(0.1)  # sessions that idle are ended meanwhile
                step = extend(row, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
                assert (await store.send(mail_for(row.id), wake=left)).is_new
            assert len(await store.records(row.id)) == 6
        await admin.close()

    asyncio.run(main())


def test_a_migration_waits_for_nobody_for_long(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transaction on a table that is to be changed: the migration gives way, says so, and changes nothing."""

    monkeypatch.setattr(postgres_migrate, "_LOCK_TIMEOUT", "50ms")

    old = f"{postgres_url}?schema=old"

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(postgres_migrate, "migrations", lambda dialect: migrations(dialect)[:1])
            async with opened(lambda: PostgresStore(old)):
                pass
        admin = await asyncpg.connect(postgres_url)
        other = await asyncpg.connect(postgres_url)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT count(*) FROM old.runs")
        try:
            with pytest.raises(StoreError, match="lock"):
                await PostgresStore(old).open()
            assert await admin.fetchval("SELECT count(*) FROM old.migrations") == 1
        finally:
            await transaction.rollback()
        async with opened(lambda: PostgresStore(old)) as store:
            assert await store.check() == []
        await other.close()
        await admin.close()

    asyncio.run(main())


def test_a_session_that_is_cut_off_while_the_store_is_opened_is_made_anew(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate, lost = postgres_migrate.migrate, [asyncpg.InternalClientError("cut off"), OSError("gone")]

    async def cut_off(*args: Any) -> None:
        if lost:
            raise lost.pop()
        await migrate(*args)

    async def main() -> None:
        monkeypatch.setattr(postgres_migrate, "migrate", cut_off)
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await store.create(new_run(), owner=ALICE)

    asyncio.run(main())
    assert lost == []
