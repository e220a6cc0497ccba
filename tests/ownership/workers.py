"""Worker processes that tests stop, kill and start anew, and the folder they work in.

    python -m tests.ownership.workers

forks a worker for each line it reads: a process of its own, at work after a few milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

import holdfast as hf
from holdfast import clock, faults
from holdfast.model import Record, RunId, RunRow
from holdfast.store import open_store
from holdfast.testing import Ledger
from holdfast.testing.child import agents_of
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.processes import environment
from tests.ownership import agents as known

#: Short, so that nobody waits for long.
LEASE_S = 1.0
QUICK: dict[str, Any] = {"lease_s": LEASE_S, "renew_s": 0.2, "sweep_s": 0.1, "block_warning_s": 0.4}


# in the process that forks


async def work(order: dict[str, Any]) -> None:
    app = hf.connect(
        order["url"],
        agents=agents_of(known).values(),
        concurrency=order["concurrency"],
        settings=hf.Settings(**order["settings"]),
    )
    async with app:
        await app.work()


def be_worker(order: dict[str, Any]) -> None:
    """In the forked process: never return."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        logging.basicConfig(level=logging.INFO, format=f"{os.getpid()} %(message)s")
        clock.reset()
        if order["boot"]:
            clock.boot_id = lambda: order["boot"]  # type: ignore[assignment]
            hf.worker.leases.boot_id = clock.boot_id  # type: ignore[attr-defined]
        spec = order["fault"]
        faults._faults = faults.Faults(spec, "") if spec else None
        asyncio.run(work(order))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    open_store("warm.db", settings=hf.Settings())  # loads the driver and the queries, opens nothing
    unread = b""
    while True:
        if select.select([0], [], [], 0.005)[0]:
            some = os.read(0, 65536)
            if not some:
                return
            *lines, unread = (unread + some).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    be_worker(json.loads(line))
                say(started=pid)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                say(ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


# in the test


class Nursery:
    """The process that forks workers, as the test sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ownership.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            bufsize=0,
        )
        self._unread = b""
        self._started: list[int] = []
        self._ended: dict[int, int] = {}

    def start(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        give_up = time.monotonic() + 20
        while not self._started:
            self._read(0.1)
            assert time.monotonic() < give_up, "no worker was started"
        return self._started.pop()

    def code(self, pid: int) -> int | None:
        """How it ended; None if it has not."""
        self._read(0)
        return self._ended.get(pid)

    def _read(self, wait_s: float) -> None:
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], wait_s)[0]:
            some = os.read(self._process.stdout.fileno(), 65536)
            assert some, "the process that forks workers has died"
            *lines, self._unread = (self._unread + some).split(b"\n")
            for line in map(json.loads, lines):
                if "started" in line:
                    self._started.append(line["started"])
                else:
                    self._ended[line["ended"]] = line["code"]
            wait_s = 0

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class Worker:
    """A worker process."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    @property
    def code(self) -> int | None:
        return self._nursery.code(self.pid)

    @property
    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.wait_dead()

    async def wait_stopped(self) -> None:
        await until(lambda: self.is_stopped, what=f"worker {self.pid} to be stopped")

    async def wait_dead(self, timeout_s: float = 10) -> int:
        await until(lambda: self.code is not None, timeout_s, what=f"worker {self.pid} to end")
        assert self.code is not None
        return self.code


async def until(is_so: Callable[[], bool], timeout_s: float = 15, *, what: str = "it") -> None:
    give_up = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < give_up, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.005)


def is_free(path: str) -> bool:
    """Can somebody write to the store?"""
    connection = apsw.Connection(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


class Place:
    """A folder with a store, a ledger and workers; use it with `async with`."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self.url = str(folder / "store.db")
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.app = hf.connect(self.url)
        self._nursery = nursery
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Place:
        await self.app.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for worker in self._workers:
            if worker.code is None:
                await worker.kill()
        await self.app.__aexit__(*error)

    def worker(
        self, *, fault: str = "", shift_s: float = 0, boot: str = "", concurrency: int = 100, **settings: Any
    ) -> Worker:
        order = {
            "url": self.url,
            "log": str(self.folder / "log.txt"),
            "env": {VARIABLE: str(self.ledger.path), "HOLDFAST_TEST_CLOCK_SHIFT_S": str(shift_s) if shift_s else ""},
            "fault": fault,
            "boot": boot,
            "concurrency": concurrency,
            "settings": QUICK | settings,
        }
        worker = Worker(self._nursery, self._nursery.start(order))
        self._workers.append(worker)
        return worker

    async def stop(self, worker: Worker) -> None:
        """SIGSTOP, but not inside a transaction: the file would stay locked until the process goes on."""
        while True:
            worker.send(signal.SIGSTOP)
            await worker.wait_stopped()
            if is_free(self.url):
                return
            worker.go_on()
            await asyncio.sleep(0.01)

    # gates in agents

    def reached(self, name: str) -> list[int]:
        """The processes that came to a gate, in order."""
        path = self.folder / f"{name}.reached"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def wait_reached(self, name: str, worker: Worker, timeout_s: float = 15) -> None:
        await until(lambda: worker.pid in self.reached(name), timeout_s, what=f"worker {worker.pid} at {name}")

    def open(self, name: str, worker: Worker | None = None) -> None:
        """Let a worker pass a gate; None: everybody."""
        (self.folder / (f"{name}.open" if worker is None else f"{name}.open.{worker.pid}")).touch()

    # what is known

    async def row(self, run: hf.Run[Any]) -> RunRow:
        row = await self.app._store.run(RunId(run.id))
        assert row is not None
        return row

    async def records(self, run: hf.Run[Any]) -> list[Record]:
        return await self.app._store.records(RunId(run.id))

    async def owners(self, run: hf.Run[Any]) -> list[int]:
        """The processes that had a run, in order."""
        return [json.loads(r.payload or "{}")["pid"] for r in await self.records(run) if r.kind == "claimed"]

    async def is_at(self, run: hf.Run[Any], *statuses: str, timeout_s: float = 15) -> RunRow:
        """Wait until a run has one of these states."""
        give_up = time.monotonic() + timeout_s
        while (row := await self.row(run)).status not in statuses:
            assert time.monotonic() < give_up, f"{run.id} is {row.status} ({row.reason}), not {' or '.join(statuses)}"
            await asyncio.sleep(0.01)
        return row

    async def is_written(self, run: hf.Run[Any]) -> None:
        """Wait until what a run did so far is on disk; it is held at a gate."""
        head = -1
        while (row := await self.row(run)).head_seq != head:
            head = row.head_seq
            await asyncio.sleep(0.15)

    async def at_work(self, *workers: Worker) -> None:
        give_up = time.monotonic() + 15
        while not {each.pid for each in workers} <= {each.pid for each in await self.app.workers() if each.alive}:
            assert time.monotonic() < give_up, "the workers do not work"
            await asyncio.sleep(0.01)

    async def is_back(self, worker: Worker) -> None:
        """Wait until a worker that was stopped has caught up: it renewed its lease, and had the time to be refused."""
        await self.at_work(worker)
        await asyncio.sleep(0.5)

    def begun(self, key: str, run: hf.Run[Any] | None = None) -> list[int]:
        """The processes in which the body of a call began."""
        lines = [line for line in self.ledger.lines() if line.what == "begin" and line.key == key]
        return [line.pid for line in lines if run is None or line.run == run.id]

    def log_of(self, worker: Worker) -> list[str]:
        lines = (self.folder / "log.txt").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{worker.pid} ")]

    async def finished(self, runs: Iterable[hf.Run[Any]], timeout_s: float = 30) -> list[Any]:
        async with asyncio.timeout(timeout_s):
            return list(await asyncio.gather(*(run.result() for run in runs)))


if __name__ == "__main__":
    main()
