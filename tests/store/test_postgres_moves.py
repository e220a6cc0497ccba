"""What has moved, where transactions are not numbered in the order in which they are committed."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast.model import Kind
from holdfast.store.postgres import surveys as surveys_module
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import ALICE, append, extend, new_run, opened

_MOVE = "UPDATE holdfast.runs SET moved = pg_current_xact_id()::text::bigint WHERE id = 'r_1'"


def test_who_takes_its_number_first_and_commits_last_is_told_too(postgres_url: str) -> None:
    async def go() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await store.create(new_run("r_1"), owner=None)
            surveys = store.surveys
            cursor = (await surveys.moves(None)).cursor
            slow = await asyncpg.connect(postgres_url)
            try:
                held = slow.transaction()
                await held.start()
                await slow.execute(_MOVE)
                await store.create(new_run("r_2"), owner=None)
                first = await surveys.moves(cursor)
                assert [row.id for row in first.rows if row.id != "r_1"] == ["r_2"]
                seen = await surveys.moves(first.cursor)
                await held.commit()
                late = await surveys.moves(seen.cursor)
                assert "r_1" in [row.id for row in late.rows], "though r_2, with a later number, was told before"
                assert (await surveys.moves((await surveys.moves(late.cursor)).cursor)).rows == []
            finally:
                await slow.close()

    asyncio.run(go())


def test_what_moved_is_told_once_however_long_a_transaction_is_held_open(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveys_module, "_HELD", 2)

    async def go() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            for number in range(3):
                await store.create(new_run(f"r_{number}"), owner=None)
            surveys = store.surveys
            holders = [await asyncpg.connect(postgres_url) for _ in range(4)]  # more than a cursor names
            cursor = (await surveys.moves(None)).cursor
            try:
                for holder in holders:
                    await holder.execute("BEGIN")
                    await holder.execute("SELECT pg_current_xact_id()")
                await holders[0].execute(_MOVE)
                for number in range(3, 6):
                    await store.create(new_run(f"r_{number}"), owner=None)
                first = await surveys.moves(cursor)
                assert [row.id for row in first.rows] == ["r_3", "r_4", "r_5"]
                for holder in holders[2:]:
                    await holder.execute("ROLLBACK")
                few = await surveys.moves((await surveys.moves(first.cursor)).cursor)
                assert few.rows == []
                await store.create(new_run("r_6"), owner=None)
                second = await surveys.moves(few.cursor)
                assert [row.id for row in second.rows] == ["r_6"]
                await holders[0].execute("COMMIT")
                assert [row.id for row in (await surveys.moves(second.cursor)).rows] == ["r_1"]
            finally:
                for holder in holders:
                    await holder.close()

    asyncio.run(go())


def test_appends_of_a_running_run_stay_on_their_page(postgres_url: str) -> None:
    async def go() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            row = await store.create(new_run("r_1"), owner=ALICE)
            client = await asyncpg.connect(postgres_url)
            try:
                moved = await client.fetchval("SELECT moved FROM holdfast.runs WHERE id = $1", row.id)
                for _ in range(20):
                    step = extend(row, Kind.done)
                    await append(store, step)
                    row = step.row
                assert await client.fetchval("SELECT moved FROM holdfast.runs WHERE id = $1", row.id) == moved
                await client.execute("SELECT pg_stat_force_next_flush()")
                updates, hot = 0, 0
                for _ in range(200):
                    updates, hot = await client.fetchrow(
                        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
                        " WHERE schemaname = 'holdfast' AND relname = 'runs'"
                    )
                    if updates >= 20:
                        break
                    await asyncio.sleep(0.1)
                assert hot == updates
            finally:
                await client.close()

    asyncio.run(go())
