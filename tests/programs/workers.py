"""Workers for a test, and whoever kills and stops them at random."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from holdfast.clock import now_us
from holdfast.testing.processes import environment
from tests.programs.agents import PLACES

_FORKS_US = 200_000  #: by then a new process has a handler for SIGTERM


@dataclass
class Process:
    """A worker process."""

    pid: int
    born: int
    died: int | None = None  #: when it was killed, at the latest moment when it was surely alive
    stops: list[tuple[int, int]] = field(default_factory=list)  #: when it was stopped, and when it went on
    is_stopped: bool = False


class Workers:
    """Some workers on one store, each replaced at once when it dies."""

    def __init__(self, url: str, env: Mapping[str, str], log: Path, *, lease_s: float, count: int = 3) -> None:
        self._order = json.dumps({"url": url, "env": dict(env), "log": str(log), "lease_s": lease_s}).encode() + b"\n"
        self._count = count
        self.lease_s = lease_s
        self.log = log
        self.alive: list[Process] = []
        self.all: dict[int, Process] = {}
        self._aims = log.parent / "aims"
        self._aims.mkdir()
        self.kills = 0
        self.aimed = 0  #: kills and stops at a chosen place
        self.stops = 0
        self.retired = 0
        self._leaving: list[Process] = []
        self.problems: list[str] = []
        self._ended: dict[int, int] = {}
        self._news = asyncio.Event()
        self._is_closing = False

    async def __aenter__(self) -> Workers:
        self._nursery = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.programs.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment({"HOLDFAST_LOG": os.environ.get("HOLDFAST_LOG", "")}),
        )
        self._reader = asyncio.create_task(self._read())
        for _ in range(self._count):
            self._ask()
        async with asyncio.timeout(20):
            while len(self.alive) < self._count:
                self._news.clear()
                await self._news.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing = True
        for process in self.alive:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        await self._nursery.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._nursery.stdout is not None
        while line := await self._nursery.stdout.readline():
            said = json.loads(line)
            if "started" in said:
                process = Process(said["started"], now_us())
                self.alive.append(process)
                self.all[process.pid] = process
                self._news.set()
            else:
                self._has_ended(said["ended"], said["code"])

    def _has_ended(self, pid: int, code: int) -> None:
        self._ended[pid] = code
        self._news.set()
        process = self.all.get(pid)
        if process is None or process.died is not None or self._is_closing:
            return
        self.alive.remove(process)
        process.died = now_us()
        if code == -signal.SIGKILL and (self._aims / f"kill-{pid}").exists():
            self.kills += 1
            self.aimed += 1
        else:
            self.problems.append(f"worker {pid} ended by itself with code {code}")
        self._ask()

    def _ask(self) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(self._order)

    def kill(self, process: Process) -> None:
        """SIGKILL, and another one in its place at once."""
        self.alive.remove(process)
        process.died = now_us()
        with suppress(ProcessLookupError):  # it ended by itself: a problem already
            os.kill(process.pid, signal.SIGKILL)
        self.kills += 1
        self._ask()

    async def stop(self, process: Process, seconds: float) -> None:
        """SIGSTOP for a while: to the others it looks dead, and then it acts again."""
        process.is_stopped = True
        began = now_us()
        self.stops += 1
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        process.stops.append((began, began + int(60e6)))
        try:
            await asyncio.sleep(seconds)
        finally:
            process.is_stopped = False
            process.stops[-1] = (began, now_us())
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    async def aim(self, place: str, what: str, *, for_s: float) -> None:
        """Have the first process that comes to a place killed (`kill`) or stopped for a while (`stop`) there."""
        order = self._aims / f"{place}.{what}"
        order.touch()
        try:
            for _ in range(50):
                await asyncio.sleep(0.01)
                if not order.exists():
                    break
        finally:
            order.unlink(missing_ok=True)
        for path in self._aims.glob("stop-*"):
            path.unlink()
            process = self.all[int(path.name.partition("-")[2])]
            self.aimed += 1
            if process.died is None:
                await self.stop(process, for_s)

    def retire(self, process: Process) -> None:
        """SIGTERM, and another one in its place: it hands over what it has, while the others go on."""
        self.alive.remove(process)
        self._let_go(process)
        self.retired += 1
        self._ask()

    def _let_go(self, process: Process) -> None:
        self._leaving.append(process)
        process.died = now_us()
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)

    async def terminate(self) -> None:
        """SIGTERM to all: they hand over what they have and end with 0, as those before them did."""
        self._is_closing = True
        for process in self.alive:
            self._let_go(process)
        self.alive = []
        try:
            async with asyncio.timeout(30):
                for process in self._leaving:
                    while process.pid not in self._ended:
                        self._news.clear()
                        await self._news.wait()
                    self._check_code(process, self._ended[process.pid])
        except TimeoutError:
            for process in self._leaving:
                if process.pid not in self._ended:
                    self.problems.append(f"worker {process.pid} did not end within 30 s after SIGTERM")
                    os.kill(process.pid, signal.SIGKILL)

    def _check_code(self, process: Process, code: int) -> None:
        is_hit = (self._aims / f"kill-{process.pid}").exists()
        is_new = code == -signal.SIGTERM and (process.died or 0) - process.born < _FORKS_US
        if code != 0 and not is_hit and not is_new:
            self.problems.append(f"worker {process.pid} ended with code {code} after SIGTERM")

    def was_stopped(self, pid: int, began: int, ended: int, slack_us: int = 300_000) -> bool:
        """Was a process stopped at some moment of this time (or just before it)?"""
        process = self.all.get(pid)
        return process is not None and any(a <= ended and b >= began - slack_us for a, b in process.stops)


async def torment(
    workers: Workers,
    chance: random.Random,
    *,
    pause_s: tuple[float, float] = (0.05, 0.4),
    stops: float,
    aims: float,
    retires: float,
) -> None:
    """Kill a worker every now and then, for ever.

    A share of them is stopped for longer than its lease instead (`stops`), or asked to leave (`retires`).

    `aims`: the share of those that are aimed at a place in a body, where it hurts; the others are hit anywhere.
    """
    at_work: set[asyncio.Task[None]] = set()
    try:
        while True:
            await asyncio.sleep(chance.uniform(*pause_s))
            at_work = {task for task in at_work if not task.done()}
            if not workers.alive:
                continue
            process = chance.choice(workers.alive)
            is_stop = chance.random() < stops and not any(process.is_stopped for process in workers.alive)
            for_s = workers.lease_s * chance.uniform(1.2, 2.2)
            if chance.random() < aims:
                aim = workers.aim(chance.choice(PLACES), "stop" if is_stop else "kill", for_s=for_s)
                at_work.add(asyncio.create_task(aim))
            elif is_stop:
                at_work.add(asyncio.create_task(workers.stop(process, for_s)))
            elif chance.random() < retires and not process.is_stopped:
                workers.retire(process)
            elif not process.is_stopped or chance.random() < 0.2:  # mostly, a stopped one wakes up again
                workers.kill(process)
    finally:
        for task in at_work:
            task.cancel()
        if at_work:
            await asyncio.wait(at_work)
