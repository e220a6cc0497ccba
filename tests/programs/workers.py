"""Workers for a test, and whoever kills and stops them at random."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.base.clock import now_us
from tests.forkserver import Forked, eventually
from tests.programs import agents
from tests.workers import Scene

CONCURRENCY = 20
_LOOK_S = 0.01
_TELLS_S = 1.0
_FORKS_US = 200_000  #: by then a new process has a handler for SIGTERM


def settings(lease_s: float) -> dict[str, Any]:
    return {"lease_s": lease_s, "renew_s": lease_s / 5, "sweep_s": 0.2, "crash_limit": 200, "drain_s": 0.3}


@dataclass(eq=False)
class Process:
    """A worker process, and what it suffered."""

    worker: Forked
    born: int
    died: int | None = None  #: when it was killed, at the latest moment when it was surely alive
    stops: list[tuple[int, int]] = field(default_factory=list)  #: when it was stopped, and when it went on
    is_stopped: bool = False

    @property
    def pid(self) -> int:
        return self.worker.pid


class Workers:
    """Some workers on one store, each replaced at once when it dies."""

    def __init__(self, scene: Scene, *, lease_s: float, count: int = 3) -> None:
        self._scene = scene
        self._count = count
        self.lease_s = lease_s
        self.alive: list[Process] = []
        self.all: list[Process] = []
        self._aims = scene.folder / "aims"
        self._aims.mkdir()
        self.kills = 0
        self.aimed = 0  #: kills and stops at a chosen place
        self.stops = 0
        self.retired = 0
        self._leaving: list[Process] = []
        self.problems: list[str] = []

    async def __aenter__(self) -> Workers:
        for _ in range(self._count):
            self._start()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        self._scene.__exit__(kind, error, traceback)

    def _start(self) -> None:
        process = Process(self._scene.worker(concurrency=CONCURRENCY), now_us())
        self._hit_file(process).unlink(missing_ok=True)  # of a former process with this pid
        self.alive.append(process)
        self.all.append(process)

    def _hit_file(self, process: Process) -> Path:
        """There when a process was killed at a place that somebody aimed at."""
        return self._aims / f"kill-{process.pid}"

    async def _watch(self) -> None:
        """Replace whoever ends by itself, for ever, and see how those end that were asked to."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for process in [each for each in self._leaving if each.worker.code is not None]:
                self._has_left(process)
            for process in [each for each in self.alive if each.worker.code is not None]:
                self.alive.remove(process)
                process.died = now_us()
                if process.worker.code == -signal.SIGKILL and self._hit_file(process).exists():
                    self.kills += 1
                    self.aimed += 1
                else:
                    self.problems.append(f"worker {process.pid} ended by itself with code {process.worker.code}")
                self._start()

    def kill(self, process: Process) -> None:
        """SIGKILL, and another one in its place at once."""
        if process.worker.code is not None:
            return  # it ended by itself, and is replaced
        self.alive.remove(process)
        process.died = now_us()
        process.worker.send(signal.SIGKILL)
        self.kills += 1
        self._start()

    async def stop(self, process: Process, seconds: float) -> None:
        """SIGSTOP for a while: to the others it looks dead, and then it acts again."""
        process.is_stopped = True
        began = now_us()
        self.stops += 1
        process.worker.send(signal.SIGSTOP)
        process.stops.append((began, began + int(60e6)))
        try:
            await asyncio.sleep(seconds)
        finally:
            process.is_stopped = False
            process.stops[-1] = (began, now_us())
            process.worker.go_on()

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
            stopped = self._stopped_there()  # cancelled or not: nobody is left so
            await asyncio.gather(*(self.stop(each, for_s) for each in stopped))

    def _stopped_there(self) -> list[Process]:
        """Those who came to a place where one is stopped, since this was last asked."""
        pids = [int(path.name.partition("-")[2]) for path in self._aims.glob("stop-*")]
        for pid in pids:
            (self._aims / f"stop-{pid}").unlink()
        self.aimed += len(pids)
        return [each for each in self.all if each.pid in pids and each.worker.code is None]

    def retire(self, process: Process) -> None:
        """SIGTERM, and another one in its place: it hands over what it has, while the others go on."""
        self._let_go(process)
        self.retired += 1
        self._start()

    def _let_go(self, process: Process) -> None:
        self.alive.remove(process)
        self._leaving.append(process)
        process.died = now_us()
        process.worker.send(signal.SIGTERM)

    async def tell_all(self) -> None:
        """Have all write to their log where they stand."""
        for process in self.alive:
            process.worker.send(signal.SIGUSR2)
        await asyncio.sleep(_TELLS_S)

    async def terminate(self) -> None:
        """SIGTERM to all: they hand over what they have and end with 0, as those before them did."""
        for process in self.alive.copy():
            self._let_go(process)
        try:
            await eventually(lambda: not self._leaving, 60)
        except AssertionError:
            self.problems += [f"worker {each.pid} did not end within 60 s after SIGTERM" for each in self._leaving]

    def _has_left(self, process: Process) -> None:
        self._leaving.remove(process)
        code = process.worker.code
        is_new = code == -signal.SIGTERM and (process.died or 0) - process.born < _FORKS_US
        if code != 0 and not self._hit_file(process).exists() and not is_new:
            self.problems.append(f"worker {process.pid} ended with code {code} after SIGTERM")

    def was_stopped(self, pid: int, began: int, ended: int, slack_us: int = 300_000) -> bool:
        """Was a process stopped at some moment of this time (or just before it)?"""
        stops = [stop for each in self.all if each.pid == pid for stop in each.stops]
        return any(a <= ended and b >= began - slack_us for a, b in stops)


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
                aim = workers.aim(chance.choice(agents.PLACES), "stop" if is_stop else "kill", for_s=for_s)
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
