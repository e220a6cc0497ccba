"""How long a server takes for what people look at, in a store of 100,000 runs; what those who watch cost writers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from agents import steps

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.journal.chain import seal_row
from holdfast.model import Status
from holdfast.store import open_store
from holdfast.testing.samples import new_run
from postgres import Postgres
from waiting import percentile

_RUNS = 100_000
_AGENTS = 40
_QUEUES = 7
_CALLS = 20_000
_LISTENERS = 20
_WRITERS = 100
_SECOND = 1_000_000
_START = 1_750_000_000_000_000
_ENDED = (*[Status.done] * 18, Status.failed, Status.cancelled)


class Server:
    """`holdfast serve`, on a store."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--json"],
            env=os.environ | {"HOLDFAST_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        address, _, token = json.loads(self._process.stdout.readline())["url"].partition("/#t=")
        self._port = int(address.rpartition(":")[2])
        self._headers = {"Authorization": f"Bearer {token}"}
        self._line = self.line()

    def line(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def get(self, path: str) -> tuple[Any, float]:
        """The answer, and how many milliseconds it took."""
        began = time.perf_counter()
        try:
            self._line.request("GET", f"/api/v1{path}", headers=self._headers)
            answer = self._line.getresponse()
        except ConnectionError:  # nothing was asked for a while, so the server closed it
            self._line.close()
            return self.get(path)
        text = answer.read()
        took = (time.perf_counter() - began) * 1000
        assert answer.status == 200, text
        return json.loads(text), took

    def watched(self, count: int) -> AbstractContextManager[None]:
        """So many listen meanwhile, in a process of their own, and read what they are told."""
        return beside("watch", str(self._port), self._headers["Authorization"], str(count))


@contextmanager
def beside(*arguments: str) -> Iterator[None]:
    """Another process does something, once it says so."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not begin"
        yield
        assert process.poll() is None, "it ended meanwhile"
    finally:
        process.kill()
        process.communicate()


async def fill(url: str) -> None:
    """100,000 runs of 40 agents in 7 queues, a second apart; most have ended well."""
    store = open_store(url, settings=Settings())
    await store.open()
    for begin in range(0, _RUNS, 1000):
        runs = [
            new_run(
                f"r{n:06d}",
                agent=f"agent{n % _AGENTS}",
                queue=f"queue{n % _QUEUES}",
                created_at=_START + n * _SECOND,
                updated_at=_START + n * _SECOND,
                status=_ENDED[n % len(_ENDED)],
            )
            for n in range(begin, begin + 1000)
        ]
        for each in runs:
            seal_row(each.row)
        await asyncio.gather(*(store.create(each, owner=None) for each in runs))
    await store.close()


def lists(server: Server) -> list[str]:
    """Lists of all sorts: new, far, by every filter, and by those that nothing fits."""
    middle = f"/runs?limit=50&until={_when(_RUNS // 2)}"
    far = f"/runs?limit=50&until={_when(500)}"
    behind, far_behind = (server.get(each)[0]["next"] for each in (middle, far))
    assert behind, far_behind
    return [
        "/runs",
        f"{middle}&cursor={behind}",
        f"{far}&cursor={far_behind}",
        "/runs?since=2999-01-01T00:00:00Z",
        "/runs?until=1999-01-01T00:00:00Z",
        "/runs?status=failed&status=cancelled",
        "/runs?status=waiting",
        "/runs?agent=agent7",
        "/runs?agent=nobody",
        "/runs?agent=nobody&status=done",
        "/runs?agent=agent7&status=blocked",
        f"/runs?agent=agent7&status=done&until={_when(3000)}",
        "/runs?queue=queue3",
        "/runs?queue=nowhere",
        "/runs?queue=nowhere&status=done",
        "/runs?thread=nobody",
        "/runs?parent=nobody",
        "/runs?prefix=r0999",
        "/runs?prefix=zzz",
        "/runs?tag=a%3Db",
        "/runs?cut_off=true",
    ]


def _when(number: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_START / 1e6 + number))


def timed(server: Server, paths: Sequence[str], rounds: int) -> list[float]:
    for path in paths:
        server.get(path)
    return [server.get(path)[1] for _ in range(rounds) for path in paths]


async def appends(url: str, server: Server, log: Path | None) -> tuple[float, float]:
    """Steps per CPU second of the writer watched by 20, as a share of unwatched; the largest log meanwhile, in MB."""
    shares, largest = [], 0
    async with hf.connect(url, agents=[steps]) as app:

        async def rate() -> float:
            began = time.process_time()
            runs = await asyncio.gather(*(app.start(steps(20)) for _ in range(_WRITERS)))
            await asyncio.gather(*(run.result() for run in runs))
            return _WRITERS * 20 / (time.process_time() - began)

        await rate()
        for _ in range(5):
            alone = max(await rate(), await rate())
            with server.watched(_LISTENERS):
                seen = max(await rate(), await rate())
                largest = max(largest, log.stat().st_size if log is not None else 0)
            shares.append(seen / alone)
    return max(shares), largest / 1e6


async def measured(url: str, *, log: Path | None = None) -> dict[str, float]:
    """What a server does with a store that is filled first."""
    found: dict[str, float] = {}
    await fill(url)
    async with hf.connect(url, agents=[steps]) as app:
        await (await app.start(steps(_CALLS), id="long")).result()
    server = Server(url)
    try:
        paths = lists(server)
        found["GET /runs of 100,000, p99 ms"] = min(percentile(timed(server, paths, 8), 0.99) for _ in range(3))
        slowest = {path: min(timed(server, [path], 5)) for path in paths}
        found["GET /runs of 100,000, slowest of its filters, best ms"] = max(slowest.values())
        with beside("write", url):
            loaded = min(percentile(timed(server, paths, 8), 0.99) for _ in range(3))
            found["GET /runs while 100 runs append, p99 ms"] = loaded
        first = [server.get("/runs/long/calls") for _ in range(5)]
        found["calls of 20,000 steps, first ms"] = first[0][1]
        found["calls of 20,000 steps, again ms"] = min(took for _, took in first)
        head = first[0][0]["head"]
        found["calls of 20,000 steps, tail ms"] = min(server.get(f"/runs/long/calls?after={head}")[1] for _ in range(9))
        share, megabytes = await appends(url, server, log)
        found["appends with 20 who watch, share"] = share
        if log is not None:
            found["log with 20 who watch, MB"] = megabytes
    finally:
        server.close()
    return found


class Serving:
    """The parts, on both stores."""

    def __init__(self, folder: Path, found: dict[str, float], postgres: Postgres) -> None:
        self._folder, self._found, self._postgres = folder, found, postgres

    async def sqlite(self) -> None:
        path = self._folder / "served.db"
        self._found.update(await measured(str(path), log=Path(f"{path}-wal")))

    async def postgresql(self) -> None:
        url = self._postgres.url("served")
        found = await measured(url)
        self._found.update({f"PostgreSQL, {name}": value for name, value in found.items()})
        connection = await asyncpg.connect(url)
        row = await connection.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
            " WHERE schemaname = 'holdfast' AND relname = 'runs'"
        )
        await connection.close()
        self._found["PostgreSQL, rows of runs updated on their page, share"] = row[1] / row[0]


_GOALS: dict[str, tuple[float, bool]] = {
    "GET /runs of 100,000, p99 ms": (50, False),
    "GET /runs while 100 runs append, p99 ms": (100, False),
    "calls of 20,000 steps, first ms": (150, False),
    "calls of 20,000 steps, tail ms": (10, False),
    "appends with 20 who watch, share": (0.95, True),
    "log with 20 who watch, MB": (64, False),
}
GOALS = _GOALS | {f"PostgreSQL, {name}": goal for name, goal in _GOALS.items()}


@hf.step
async def look(n: int) -> int:
    await asyncio.sleep(0.05)
    return n


@hf.agent
async def looking() -> None:
    n = 0
    while True:
        n = await look(n + 1)


async def _write(url: str) -> None:
    async with hf.connect(url, agents=[looking], concurrency=_WRITERS) as app:
        await asyncio.gather(*(app.start(looking()) for _ in range(_WRITERS)))
        print("writing", flush=True)
        await asyncio.Event().wait()


async def _watch(port: int, authorization: str, count: int) -> None:
    async def listen() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /api/v1/stream?topics=runs,questions,workers HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: {authorization}\r\n\r\n".encode()
        )
        assert b" 200 " in await reader.readline()
        return reader, writer  # who lets go of a writer closes it

    async def read(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 16):
            pass

    lines = [await listen() for _ in range(count)]
    print("watching", flush=True)
    await asyncio.gather(*(read(reader) for reader, _ in lines))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", url]:
            asyncio.run(_write(url))
        case ["watch", port, authorization, count]:
            asyncio.run(_watch(int(port), authorization, int(count)))
