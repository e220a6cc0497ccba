"""Worker processes for tests of waiting, and the folder that they work in.

    python -m tests.waiting.workers

forks a worker for each line it reads. Holdfast and the agents are imported once, so a worker is at work a few
milliseconds after it was asked for; it is a process of its own all the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import holdfast as hf
from holdfast import clock, faults
from holdfast.store import open_store
from holdfast.testing.child import agents_of
from holdfast.testing.processes import environment
from tests.waiting import agents as known

SETTINGS = hf.Settings(sweep_s=0.1)
FOLDER = "HOLDFAST_TEST_FOLDER"


# in the process that forks


async def work(url: str) -> None:
    async with hf.connect(url, agents=agents_of(known).values(), settings=SETTINGS) as app:
        await app.work()


def be_worker(order: dict[str, Any]) -> None:
    """In the forked process: never return."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        clock.reset()
        spec, trace = order["fault"], order["trace"]
        faults._faults = faults.Faults(spec, trace) if spec or trace else None
        asyncio.run(work(order["url"]))
        code = 0
    except BaseException:
        print(f"--- worker {os.getpid()}", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    open_store(str(Path("warm.db")), settings=hf.Settings())  # loads the driver and the queries, opens nothing
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
            [sys.executable, "-m", "tests.waiting.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            bufsize=0,
        )
        self._unread = b""
        self._started: list[int] = []
        self._ended: dict[int, int] = {}

    def start(self, order: dict[str, Any]) -> int:
        """Fork a worker; its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        give_up = time.monotonic() + 20
        while not self._started:
            self._read(0.1)
            assert time.monotonic() < give_up, "no worker was started"
        return self._started.pop()

    def code(self, pid: int, wait_s: float = 0.0) -> int | None:
        """How it ended; None if it has not."""
        give_up = time.monotonic() + wait_s
        self._read(0)
        while pid not in self._ended and time.monotonic() < give_up:
            self._read(0.02)
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


@dataclass
class Worker:
    """A worker process."""

    nursery: Nursery
    pid: int

    @property
    def code(self) -> int | None:
        return self.nursery.code(self.pid)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and return when it is dead."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        assert self.nursery.code(self.pid, 10) is not None

    def wait_stopped(self, wait_s: float = 10) -> None:
        """Return when it has been stopped (SIGSTOP, by a fault)."""
        give_up = time.monotonic() + wait_s
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < give_up, "the worker did not come to the point where it stops"
            time.sleep(0.002)

    async def wait_dead(self, wait_s: float = 10) -> int:
        give_up = time.monotonic() + wait_s
        while (code := self.code) is None:
            assert time.monotonic() < give_up, "the worker did not die"
            await asyncio.sleep(0.005)
        return code


class Place:
    """A folder with a store, an outside world, and workers."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self.nursery = nursery
        folder.mkdir(parents=True, exist_ok=True)
        self.url = str(folder / "store.db")
        self._workers: list[Worker] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def client(self) -> hf.Holdfast:
        return hf.connect(self.url)

    def worker(self, *, fault: str = "", trace: Path | None = None, shift_s: float = 0, **env: str) -> Worker:
        """Start a worker; `shift_s` puts its clock forward."""
        env[FOLDER] = str(self.folder)
        env["HOLDFAST_TEST_CLOCK_SHIFT_S"] = str(shift_s) if shift_s else ""
        order = {"url": self.url, "log": str(self.log), "env": env, "fault": fault, "trace": str(trace or "")}
        worker = Worker(self.nursery, self.nursery.start(order))
        self._workers.append(worker)
        return worker

    @contextmanager
    def working(self, **options: Any) -> Iterator[Worker]:
        worker = self.worker(**options)
        try:
            yield worker
        finally:
            worker.kill()

    # the outside world

    def done(self, what: str | None = None) -> list[Any]:
        """What bodies did to the world, in order."""
        path = self.folder / "world.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["value"] for line in lines if what in (None, line["what"])]


async def eventually(is_so: Callable[[], object], timeout_s: float = 10) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < give_up, "it did not come to that"
        await asyncio.sleep(0.003)


async def noted(run: hf.Run[Any], name: str, timeout_s: float = 10) -> None:
    """Wait until the journal of a run has a record of this name."""
    give_up = time.monotonic() + timeout_s
    while not any(record.name == name for record in await run._store.records(run.id)):
        assert time.monotonic() < give_up, f"{run.id} has no record of {name}"
        await asyncio.sleep(0.003)


async def until(run: hf.Run[Any], *wanted: str, timeout_s: float = 10) -> hf.Status:
    """Wait until a run has one of these states."""
    give_up = time.monotonic() + timeout_s
    while (info := await run.info()).status not in wanted:
        assert time.monotonic() < give_up, f"{run.id} is {info.status} ({info.reason}), not {' or '.join(wanted)}"
        await asyncio.sleep(0.003)
    return info.status


async def asked(
    run: hf.Run[Any], count: int = 1, *, only_open: bool = True, timeout_s: float = 10
) -> list[hf.Question]:
    """Wait until a run has this many questions."""
    give_up = time.monotonic() + timeout_s
    while len(found := await run.questions(only_open=only_open)) < count:
        assert time.monotonic() < give_up, f"{run.id} is {await run.status()} and has {len(found)} questions"
        await asyncio.sleep(0.003)
    return found


def points(trace: Path) -> list[str]:
    """The crash points in a trace, each with how often it was passed by then."""
    times: Counter[str] = Counter()
    found = []
    for name in trace.read_text().split():
        times[name] += 1
        found.append(f"{name}@{times[name]}")
    return found


if __name__ == "__main__":
    main()
