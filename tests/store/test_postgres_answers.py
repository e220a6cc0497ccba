"""Answers of the server that never arrive, and requests that never do: a proxy in between decides which."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast.errors import StoreError
from holdfast.model import Applied, Definition, Kind
from holdfast.store import postgres_migrate
from holdfast.store.postgres import PostgresStore
from holdfast.testing.samples import ALICE, append, extend, left, mail_for, new_run, opened, parked

SYNC = b"S\x00\x00\x00\x04"  # ends every request of the driver that executes something


class Proxy:
    """Passes bytes on, until it is told to lose an answer (`reply`) or a request (`request`)."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.port = 0
        self.loses = ""
        self.mark = b""  #: only a request that has these bytes is meant
        self.lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection(self._host, self._port)
        state = {"drop": False}
        passing = [
            asyncio.create_task(self._requests(reader, back, state)),
            asyncio.create_task(self._answers(there, writer, state)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in passing:
                each.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
            for end in (writer, back):
                end.close()
                with contextlib.suppress(Exception):
                    await end.wait_closed()
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, state: dict[str, bool]
    ) -> None:
        while data := await reader.read(1 << 20):
            if self.loses and self.mark in data and data.endswith(SYNC):
                loses, self.loses = self.loses, ""
                self.lost += 1
                if loses == "request":
                    return
                state["drop"] = True
            there.write(data)
            await there.drain()

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool]) -> None:
        while data := await there.read(1 << 20):
            if state["drop"]:
                return  # it was done, and nobody hears of it
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    async with Proxy(parts.hostname, parts.port or 5432) as proxy:
        login = parts.netloc.rpartition("@")[0]
        through = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}"))
        async with opened(lambda: PostgresStore(through)) as store:
            assert isinstance(store, PostgresStore)
            yield proxy, store


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

    async def main() -> None:
        admin = await asyncpg.connect(postgres_url)
        await admin.execute("DELETE FROM holdfast.migrations WHERE number = 2")
        await admin.execute("DROP INDEX IF EXISTS holdfast.runs_pruned")
        await admin.execute("ALTER TABLE holdfast.runs DROP COLUMN pruned_at CASCADE")
        other = await asyncpg.connect(postgres_url)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT count(*) FROM holdfast.runs")
        try:
            with pytest.raises(StoreError, match="lock"):
                await PostgresStore(postgres_url).open()
            assert await admin.fetchval("SELECT count(*) FROM holdfast.migrations WHERE number = 2") == 0
        finally:
            await transaction.rollback()
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert await store.check() == []
        await other.close()
        await admin.close()

    asyncio.run(main())
