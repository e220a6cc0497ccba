"""How fast Holdfast is on PostgreSQL, next to what the same server does without it. The server is real, with fsync on.

python bench/postgres.py URL      a worker process, as the measurements start them
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
from agents import effects, steps

import holdfast as hf
import waiting
from holdfast.base import clock
from holdfast.model import Claim, RunFilter, Status, WorkerId
from holdfast.store import open_store
from holdfast.testing.postgres import PostgresServer

_QUEUE = "measured"
_KEYS = 100
_HEAD_START_S = 4.0
_TICK_S = os.sysconf("SC_CLK_TCK")
_UNFINISHED = frozenset(Status) - {Status.done}


class Postgres:
    """The parts, on a server that is started for the first of them."""

    def __init__(self, folder: Path, found: dict[str, float]) -> None:
        self._folder = folder / "postgres"
        self._server: PostgresServer | None = None
        self.found = found

    def url(self, name: str) -> str:
        if self._server is None:
            self._server = PostgresServer(self._folder, settings={"shared_buffers": "'512MB'", "max_wal_size": "'4GB'"})
            self._server.start()
        return self._server.url(self._server.create_database(name))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def sequential_steps(self) -> None:
        rates = []
        async with hf.connect(self.url("steps"), agents=[steps]) as app:
            await (await app.start(steps(100))).result()
            for _ in range(3):
                began = time.perf_counter()
                await (await app.start(steps(20_000))).result()
                rates.append(20_000 / (time.perf_counter() - began))
        self.found["PostgreSQL, sequential steps/s"] = max(rates)

    async def sequential_effects(self) -> None:
        shares, rates, raws = [], [], []
        url = self.url("effects")
        connection = await asyncpg.connect(url)
        await connection.execute("create table raw(a bigserial primary key, b text)")
        async with hf.connect(url, agents=[effects]) as app:
            await (await app.start(effects(50))).result()
            await raw_commits(connection, 100)
            for _ in range(5):
                raw = await raw_commits(connection, 500)
                began = time.perf_counter()
                await (await app.start(effects(1_000))).result()
                rate = 1_000 / (time.perf_counter() - began)
                raw = (raw + await raw_commits(connection, 500)) / 2
                rates.append(rate)
                raws.append(raw)
                shares.append(rate / raw)
        await connection.close()
        self.found["PostgreSQL, single-row commits/s"] = statistics.median(raws)
        self.found["PostgreSQL, sequential effects/s"] = statistics.median(rates)
        self.found["PostgreSQL, effects, share of commits"] = statistics.median(shares)

    async def many_runs(self) -> None:
        rates = []
        async with hf.connect(self.url("many"), agents=[steps]) as app:
            for _ in range(8):
                gc.collect()
                began = time.perf_counter()
                runs = await asyncio.gather(*(app.start(steps(20)) for _ in range(100)))
                await asyncio.gather(*(run.result() for run in runs))
                rates.append(2_000 / (time.perf_counter() - began))
        self.found["PostgreSQL, 100 runs x 20 steps, steps/s"] = max(rates)

    async def two_workers(self) -> None:
        """Queued runs, drained by one worker process and by two, in turns."""
        url = self.url("two")
        assert self._server is not None
        rates: dict[int, list[float]] = {1: [], 2: []}
        used: list[tuple[float, float, float]] = []
        for turn in range(3):
            for count in (1, 2) if turn % 2 else (2, 1):
                rate, *shares = await drained(url, self._server, processes=count)
                rates[count].append(rate)
                if count == 2:
                    used.append((shares[0], shares[1], shares[2]))
        one, two = statistics.median(rates[1]), statistics.median(rates[2])
        server, clients, idle = (statistics.median(each) for each in zip(*used, strict=True))
        self.found["PostgreSQL, one worker process, steps/s"] = one
        self.found["PostgreSQL, two worker processes, steps/s"] = two
        self.found["PostgreSQL, two worker processes against one"] = two / one
        self.found["  two: cores used by the server"] = server
        self.found["  two: cores used by the workers"] = clients
        cores = os.cpu_count() or 1
        if server + clients + idle < 0.8 * cores:
            limit = (
                f"other processes, which use {cores - server - clients - idle:.2f} cores: measure again without them"
            )
        elif idle < 0.15 * cores:
            limit = f"the {cores} cores: {server:.2f} for the server, {clients:.2f} for the workers"
        elif max(server, clients / 2) > 0.85:
            limit = "one core: " + ("that of the server" if server > clients / 2 else "that of each worker")
        else:
            limit = f"waiting for the disk or for each other: {idle:.2f} of {cores} cores are idle"
        print(f"  two worker processes are limited by {limit}", file=sys.stderr)

    async def idle(self) -> None:
        """A worker with nothing to do, on either store, at the same time."""
        sqlite, postgres = await waiting.idle([str(self._folder.parent / "idle.db"), self.url("idle")])
        self.found["idle worker, CPU ms/s"] = sqlite
        self.found["PostgreSQL, idle worker, CPU ms/s"] = postgres
        self.found["idle worker, against one on PostgreSQL"] = sqlite / postgres

    async def claims(self) -> None:
        """What it costs to find and claim 100 runs, by how many wait."""
        url = self.url("claims")
        few = await claim_cost(url, 1_000)
        many = await claim_cost(url, 1_000_000)
        self.found["PostgreSQL, claim of 100 from 1,000, ms"] = few
        self.found["PostgreSQL, claim of 100 from 1,000,000, ms"] = many
        self.found["PostgreSQL, claims, 1,000,000 against 1,000"] = many / few


GOALS = {
    "PostgreSQL, sequential steps/s": (10_000, True),
    "PostgreSQL, effects, share of commits": (0.6, True),
    "PostgreSQL, 100 runs x 20 steps, steps/s": (20_000, True),
    "PostgreSQL, two worker processes against one": (1.0, True),
    "PostgreSQL, claims, 1,000,000 against 1,000": (2.0, False),
    "idle worker, against one on PostgreSQL": (1.2, False),
}


async def raw_commits(connection: Any, count: int) -> float:
    """Commits per second of one small row each, nothing else: what a single client of this server can have."""
    statement = await connection.prepare("insert into raw(b) values ($1)")
    began = time.perf_counter()
    for _ in range(count):
        await statement.fetch("x" * 200)
    return count / (time.perf_counter() - began)


# worker processes


async def work(url: str) -> None:
    async with hf.connect(url, agents=[steps, effects], concurrency=100) as app:
        await app.work()


async def drained(
    url: str, server: PostgresServer, *, processes: int, runs: int = 1_000, each: int = 50
) -> tuple[float, float, float, float]:
    """Steps per second; cores used by the server and by the workers, and idle ones.

    All runs become due at the same moment, when the workers have been at work for a while.
    """
    async with hf.connect(url) as app:
        workers = [subprocess.Popen([sys.executable, __file__, url]) for _ in range(processes)]
        try:
            pids = {worker.pid for worker in workers}
            while not pids <= {worker.pid for worker in await app.workers() if worker.alive}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            due = time.monotonic() + _HEAD_START_S
            await asyncio.gather(
                *(app.start(steps(each), queue=_QUEUE, delay=due - time.monotonic()) for _ in range(runs))
            )
            assert time.monotonic() < due, "it took too long to start them all"
            await asyncio.sleep(due - time.monotonic())
            assert server.pid is not None
            before = cpu_s(family(server.pid)), cpu_s(pids), idle_s()
            began = time.perf_counter()
            which = RunFilter(status=_UNFINISHED, queue=_QUEUE, limit=1)
            while await app._store.runs(which):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            took_s = time.perf_counter() - began
            after = cpu_s(family(server.pid)), cpu_s(pids), idle_s()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    server_s, workers_s, idle = ((now - then) / took_s for now, then in zip(after, before, strict=True))
    return runs * each / took_s, server_s, workers_s, idle


def family(pid: int) -> set[int]:
    """A process and its children."""
    found = {pid}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def cpu_s(pids: set[int]) -> float:
    """Seconds of the processor that processes have used, and children of theirs that have ended."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICK_S


def idle_s() -> float:
    """Seconds that the cores of this machine have been idle."""
    return sum(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6])) / _TICK_S


# claims


async def claim_cost(url: str, waiting: int, rounds: int = 15) -> float:
    """Milliseconds for `ready` and `claim_many` of 100 runs while so many wait in all."""
    async with hf.connect(url) as app:
        if not await app.runs(limit=1):
            await app.start(steps(1), id="first", queue=_QUEUE, queue_key="k0")
    connection = await asyncpg.connect(url)
    await fill(connection, waiting)
    settings = hf.Settings()
    store = open_store(url, settings=settings)
    await store.open()
    owner = WorkerId("w_measured")
    took: list[float] = []
    after = ""
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            ready = await store.ready(agents=[steps.name], queues=None, now=clock.now_us(), limit=200, after=after)
            chosen = ready[:100]
            claims = [
                Claim(replace(row, epoch=row.epoch + 1, status=Status.running), row.epoch, None) for row in chosen
            ]
            claimed = await store.claim_many(claims, owner=owner)
            took.append((time.perf_counter() - began) * 1000)
            assert len(chosen) == sum(claimed) == 100
            after = chosen[-1].queue_key
            await connection.execute(
                "update holdfast.runs set owner = null, status = 'queued', epoch = epoch - 1 where owner = $1", owner
            )
    finally:
        await store.close()
        await connection.close()
    return statistics.median(took)


async def fill(connection: Any, wanted: int) -> None:
    """Copies of the first run, until there are so many: a million of them one by one would take minutes."""
    have = await connection.fetchval("select count(*) from holdfast.runs")
    columns: Sequence[str] = [
        row[0]
        for row in await connection.fetch(
            "select column_name from information_schema.columns where table_schema = 'holdfast'"
            " and table_name = 'runs' and is_generated = 'NEVER' and is_identity = 'NO' order by ordinal_position"
        )
    ]
    changed = {
        "id": "'r_' || lpad(n::text, 16, '0')",
        "nonce": "md5(n::text)",
        "created_at": "created_at + n",
        "wake_at": "wake_at + n",
        "queue_key": f"'k' || (n % {_KEYS})",
    }
    values = ", ".join(changed.get(name, name) for name in columns)
    await connection.execute(
        f"insert into holdfast.runs ({', '.join(columns)}) select {values}"
        " from holdfast.runs, generate_series($1::bigint, $2::bigint) n where id = 'first'",
        have,
        wanted - 1,
        timeout=600,
    )


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
