"""Many processes move runs, and who listens is cut off again and again: it has seen the last state of every run."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import httpx2 as httpx
import pytest

from tests.eventually import eventually
from tests.server.scene import Scene, played
from tests.server.test_live import listening, served
from tests.store.moving import move

pytestmark = pytest.mark.corrupts("the runs are made of samples")

State = tuple[str, int]


class Reader:
    """A page that shows runs: it goes on from the last event it had, and reads the list if it is told to."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.seen: dict[str, State] = {}
        self.last_id = ""
        self.cuts = 0

    async def listen(self, some: int) -> None:
        """Read so many events, and be killed."""
        async with listening(self._client, "runs", self.last_id) as stream:
            try:
                for _ in range(some):
                    event, told = await stream.next()
                    if event == "resync":
                        self.seen |= await stored(self._client)
                    elif event == "run":
                        self.seen[told["id"]] = told["status"], told["records"]
            finally:
                self.last_id = stream.last_id or self.last_id
                self.cuts += 1


async def stored(client: httpx.AsyncClient) -> dict[str, State]:
    found: dict[str, State] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get("/runs", params={"limit": 200} | ({"cursor": cursor} if cursor else {}))).json()
        found |= {run["id"]: (run["status"], run["records"]) for run in page["items"]}
        cursor = page["next"]
    return found


@asynccontextmanager
async def held_open(url: str) -> AsyncIterator[None]:
    """A transaction that somebody began before, and does not end."""
    if url.startswith("postgresql"):
        holder = await asyncpg.connect(url)
        await holder.execute("BEGIN")
        await holder.execute("SELECT pg_current_xact_id()")
        try:
            yield
        finally:
            await holder.close()
    else:
        file = apsw.Connection(url)
        file.execute("BEGIN; SELECT count(*) FROM runs")
        try:
            yield
        finally:
            file.close()


async def move_here(url: str, movers: int, count: int) -> None:
    await asyncio.gather(*(move(url, f"p{number}", count) for number in range(movers)))


async def move_elsewhere(url: str, movers: int, count: int) -> None:
    """A process for each, all at once: who opens a SQLite store waits for a moment when nobody writes."""
    command, piped = [sys.executable, "-m", "tests.store.moving", url], asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(*command, f"p{number}", str(count), "told", stdin=piped, stdout=piped)
        for number in range(movers)
    ]
    for each in processes:
        assert each.stdout is not None
        assert await each.stdout.readline(), "it did not open the store"
    await asyncio.gather(*(each.communicate(b"\n") for each in processes))
    assert [each.returncode for each in processes] == [0] * movers


async def watch(
    scene: Scene,
    moving: Callable[[str, int, int], Coroutine[Any, Any, None]],
    *,
    movers: int,
    count: int,
    every: int,
    cuts: int,
) -> None:
    async with served(scene) as client, held_open(scene.url):
        reader = Reader(client)
        async with listening(client, "runs") as stream:
            moves = asyncio.create_task(moving(scene.url, movers, count))
            first = await stream.until("run")
            reader.seen[first["id"]] = first["status"], first["records"]
        reader.last_id = stream.last_id

        async def listen() -> None:
            while True:
                await reader.listen(every)

        listens = asyncio.create_task(listen())
        wanted: dict[str, State] = {
            f"p{mover}-{number:05d}": ("waiting" if number % 3 else "failed", 3)
            for mover in range(movers)
            for number in range(count)
        }
        try:
            await moves
            ended = time.monotonic()
            with suppress(AssertionError):  # which runs were missed is told below
                await eventually(lambda: reader.seen == wanted or listens.done())
            logging.getLogger(__name__).info("known %.2f s after the last move", time.monotonic() - ended)
        finally:
            listens.cancel()
            with suppress(asyncio.CancelledError):
                await listens
        missed = {run_id: (state, reader.seen.get(run_id)) for run_id, state in wanted.items()}
        assert {run_id: states for run_id, states in missed.items() if states[0] != states[1]} == {}
        assert await stored(client) == wanted
        assert reader.cuts >= cuts


async def few(scene: Scene) -> None:
    await watch(scene, move_here, movers=2, count=10, every=2, cuts=5)


async def many(scene: Scene) -> None:
    await watch(scene, move_elsewhere, movers=8, count=1250, every=150, cuts=50)


def test_who_is_cut_off_again_and_again_misses_nothing(tmp_path: Path) -> None:
    played(tmp_path, few, options={"executes": False})


def test_who_is_cut_off_again_and_again_misses_nothing_of_postgres(tmp_path: Path, postgres_url: str) -> None:
    played(tmp_path, few, options={"executes": False, "url": postgres_url})


@pytest.mark.prove
def test_who_is_cut_off_fifty_times_misses_nothing_of_ten_thousand(tmp_path: Path) -> None:
    played(tmp_path, many, options={"executes": False})


@pytest.mark.prove
def test_who_is_cut_off_fifty_times_misses_nothing_of_ten_thousand_in_postgres(
    tmp_path: Path, postgres_url: str
) -> None:
    played(tmp_path, many, options={"executes": False, "url": postgres_url})
