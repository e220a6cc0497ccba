"""A worker for which PostgreSQL has no room: it says so, claims nothing, and goes on when there is room."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

import holdfast as hf
from holdfast.model import Status
from tests.eventually import eventually

SETTINGS = hf.Settings(sweep_s=0.1)
NEEDED = 5  # connections of a worker: two that write, two that read, one for its lease


@hf.effect
async def act(n: int) -> int:
    return n


@hf.agent
async def acting(n: int) -> int:
    return await act(n)


class Narrow:
    """A role that may have few connections."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url
        self.name = f"narrow_{uuid.uuid4().hex[:12]}"
        parts = urlsplit(admin_url)
        host = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit(parts._replace(netloc=f"{self.name}:narrow@{host}"))

    async def make(self) -> None:
        owner = urlsplit(self._admin_url).username
        await self._execute(f"create role {self.name} login password 'narrow' in role {owner}")

    async def limit(self, count: int) -> None:
        await self._execute(f"alter role {self.name} connection limit {count}")

    async def cut_off(self) -> None:
        """End all of its sessions, as an administrator may; return when they have ended."""
        sessions = f"select pid from pg_stat_activity where usename = '{self.name}'"
        before = {row[0] for row in await self._execute(sessions)}
        await self._execute(f"select pg_terminate_backend(pid) from ({sessions}) as sessions")

        async def have_ended() -> bool:
            return before.isdisjoint(row[0] for row in await self._execute(sessions))

        await eventually(have_ended)

    async def drop(self) -> None:
        await self._execute(f"drop role {self.name}")

    async def _execute(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self._admin_url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()


@pytest.fixture
def narrow(postgres_url: str) -> Iterator[Narrow]:
    role = Narrow(postgres_url)
    asyncio.run(role.make())
    yield role
    asyncio.run(role.drop())


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == event]  # type: ignore[attr-defined]


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_worker_does_not_begin_without_room(postgres_url: str, narrow: Narrow, limit: int) -> None:
    """With three connections it could find and claim runs, and not append to them."""

    async def story() -> None:
        await narrow.limit(limit)
        async with hf.connect(postgres_url) as client:
            run = await client.start(acting(7))
            with pytest.raises(hf.errors.StoreError, match=r"too many connections.*Raise max_connections"):
                async with hf.connect(narrow.url, agents=[acting], settings=SETTINGS):
                    pass
            assert await run.status() is Status.queued

    asyncio.run(story())


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_worker_that_loses_its_room_says_so_and_claims_nothing_before_there_is_some(
    postgres_url: str, narrow: Narrow, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast")

    async def story() -> None:
        async with (
            hf.connect(postgres_url) as client,
            hf.connect(narrow.url, agents=[acting], settings=SETTINGS) as app,
        ):
            assert await (await app.start(acting(1))).result(60) == 1
            await narrow.limit(limit)
            await narrow.cut_off()
            (told,) = await eventually(lambda: said(caplog, "store.out_of_reach"))
            assert "too many connections" in told["detail"]
            run = await client.start(acting(7))
            attendant: Any = app._parts.attendant
            for _ in range(2):  # the first may have been under way
                looks = attendant._looks
                await eventually(lambda looks=looks: attendant._looks > looks)  # type: ignore[misc]
            assert await run.status() is Status.queued
            await narrow.limit(20)
            assert await run.result(60) == 7
            assert len(said(caplog, "store.reached")) == 1

    asyncio.run(story())


@pytest.mark.parametrize("limit", [4, NEEDED])
def test_a_worker_with_little_room_works(
    postgres_url: str, narrow: Narrow, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One connection to read with is enough, if there is no room for the second."""

    async def story() -> None:
        await narrow.limit(limit)
        async with (
            hf.connect(postgres_url) as client,
            hf.connect(narrow.url, agents=[acting], settings=SETTINGS),
        ):
            runs = await asyncio.gather(*(client.start(acting(n)) for n in range(20)))
            assert await asyncio.gather(*(run.result(60) for run in runs)) == list(range(20))

    asyncio.run(story())
    assert not said(caplog, "store.out_of_reach")


def test_a_run_that_is_resumed_where_there_is_no_room_is_left_to_others(postgres_url: str, narrow: Narrow) -> None:
    async def story() -> None:
        async with (
            hf.connect(postgres_url) as client,
            hf.connect(narrow.url, agents=[acting], settings=SETTINGS, queues=["another"]) as app,
        ):
            run = await client.start(acting(7))
            await narrow.limit(3)
            await narrow.cut_off()
            with pytest.raises(hf.errors.StoreError):
                await app.resume(run.token)
            assert await run.status() is Status.queued
            async with hf.connect(postgres_url, agents=[acting]):
                assert await run.result(60) == 7

    asyncio.run(story())


def test_the_command_prints_it(postgres_url: str, narrow: Narrow, tmp_path: Path) -> None:
    code = tmp_path / "agents.py"
    code.write_text("import holdfast as hf\n\n@hf.agent\nasync def idle() -> int:\n    return 1\n")
    asyncio.run(narrow.limit(3))
    command = [sys.executable, "-m", "holdfast", "--db", narrow.url, "worker", str(code)]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path)
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "waiting for the store" in line)
        assert "too many connections" in line
        assert "narrow@" not in line  # no password
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
