"""Everybody who can connect can keep an advisory lock. Nobody of us waits for it in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.errors import StoreError
from holdfast.model import Status
from holdfast.store.postgres import migrate as postgres_migrate
from holdfast.store.postgres.locks import lock_key
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import ALICE, new_worker, opened
from tests.eventually import eventually


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings={"application_name": "stranger"})
    try:
        yield connection
    finally:
        await connection.close()


@hf.agent
async def hello(name: str) -> str:
    return f"Hello {name}."


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == event]  # type: ignore[attr-defined]


def test_a_lock_of_a_queue_that_a_stranger_keeps_holds_up_that_queue_alone(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with stranger(postgres_url) as other, hf.connect(postgres_url) as client:
            await client.queue("careful", concurrency=2)
            await other.execute("SELECT pg_advisory_lock(hashtextextended('holdfast queue holdfast careful', 0))")
            async with hf.connect(postgres_url, agents=[hello]) as app:
                await app.queue("free", concurrency=2)
                careful = await client.start(hello("you"), queue="careful")
                await eventually(lambda: told(caplog, "queue.locked"))
                free = await client.start(hello("me"), queue="free")
                plain = await client.start(hello("them"))
                assert [await run.result() for run in (free, plain)] == ["Hello me.", "Hello them."]
                assert (await careful.info()).status is Status.queued
                (fields,) = told(caplog, "queue.locked")
                assert fields["queue"] == "careful"
                assert "stranger" in str(fields["by"])
                await other.execute("SELECT pg_advisory_unlock_all()")
                assert await careful.result() == "Hello you."

    asyncio.run(main())


def test_a_migration_names_who_keeps_its_lock_and_gives_up(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrate, "_PATIENCE_S", 0.5)
    url = f"{postgres_url}?schema=second"

    async def main() -> None:
        async with stranger(postgres_url) as other:
            await other.execute("SELECT pg_advisory_lock(hashtextextended('holdfast migration second', 0))")
            with pytest.raises(StoreError, match=r"session \d+ of postgres \(stranger\)"):
                await PostgresStore(url).open()
            assert await other.fetchval("SELECT to_regnamespace('second')") is None
        (fields,) = told(caplog, "migration.locked")
        assert "stranger" in str(fields["by"])
        async with opened(lambda: PostgresStore(url)):
            pass

    asyncio.run(main())


def test_a_migration_goes_on_when_the_lock_is_free(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    url = f"{postgres_url}?schema=second"

    async def main() -> None:
        async with stranger(postgres_url) as other:
            await other.execute("SELECT pg_advisory_lock(hashtextextended('holdfast migration second', 0))")
            store = PostgresStore(url)
            opening = asyncio.create_task(store.open())
            await eventually(lambda: told(caplog, "migration.locked"))
            assert not opening.done()
            await other.execute("SELECT pg_advisory_unlock_all()")
            await opening
            await store.close()

    asyncio.run(main())


def test_a_worker_whose_lock_a_stranger_took_goes_on_and_takes_it_again(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = "SELECT lock_key, backend_pid FROM holdfast.workers"

    async def main() -> None:
        settings = Settings(lease_s=0.0)  # so that the server is up for long enough
        async with (
            opened(lambda: PostgresStore(postgres_url)) as one,
            opened(lambda: PostgresStore(postgres_url, settings=settings)) as two,
            stranger(postgres_url) as other,
            stranger(postgres_url) as admin,
        ):

            async def renew() -> bool:
                return await one.renew_worker(ALICE, one.lease_clock_ms() + 60_000)

            await one.add_worker(new_worker(ALICE, lease_until_ms=one.lease_clock_ms() + 60_000))
            key, backend = await admin.fetchrow(row)
            assert key == lock_key("holdfast", ALICE)
            waiting = asyncio.create_task(other.execute("SELECT pg_advisory_lock($1)", key))
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

            async def is_next() -> bool:
                return bool(await admin.fetchval(waits))

            await eventually(is_next)
            await admin.execute("SELECT pg_terminate_backend($1)", backend)
            await waiting  # the stranger has it now
            await eventually(lambda: told(caplog, "worker.not_locked"))
            (fields,) = told(caplog, "worker.not_locked")
            assert "stranger" in str(fields["by"])
            assert await renew()
            assert await two.dead_workers() == {}
            assert (await admin.fetchrow(row))[0] is None
            await other.execute("SELECT pg_advisory_unlock_all()")

            async def has_it_again() -> bool:
                assert await renew()
                return (await admin.fetchrow(row))[0] == key  # type: ignore[no-any-return]

            await eventually(has_it_again)
            assert await two.dead_workers() == {}

    asyncio.run(main())
