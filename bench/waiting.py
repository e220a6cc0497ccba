"""How fast runs change hands, wake up, hear of signals and are started; what a parked run costs.

python bench/waiting.py URL CONCURRENCY      a worker process, as the measurements start them
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from agents import effects

import holdfast as hf
from holdfast.model import RunFilter, RunId, RunRow

_CHUNK = 500


@hf.step
async def look(n: int) -> int:
    await asyncio.sleep(0.005)
    return n


@hf.step
async def now_ns(given: int) -> int:
    """When the step ran, on a clock that all processes of a machine share."""
    return time.monotonic_ns() + 0 * given


@hf.agent
async def ticking() -> None:
    n = 0
    while True:
        n = await look(n + 1)


@hf.step
async def endless() -> None:
    await asyncio.Event().wait()


@hf.agent
async def busy() -> None:
    await endless()


@hf.agent
async def sleeper(n: int) -> int:
    await hf.sleep(days=1)
    return n


@hf.agent
async def waker(n: int, due: float) -> int:
    await hf.sleep(until=datetime.fromtimestamp(due, UTC))
    return n


@hf.agent(signals=[hf.Signal("go", int)])
async def listener() -> int:
    return await now_ns(await hf.receive(("go", int)))


@hf.agent
async def nothing(n: int) -> int:
    return n


AGENTS = [ticking, busy, sleeper, waker, listener, nothing]


async def work(url: str, concurrency: int) -> None:
    async with hf.connect(url, agents=AGENTS, concurrency=concurrency) as app:
        await app.work()


def start_worker(url: str, concurrency: int = 100) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, url, str(concurrency)])


@asynccontextmanager
async def working(url: str, concurrency: int = 100) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A worker process, at work."""
    process = start_worker(url, concurrency)
    try:
        async with hf.connect(url) as app:
            await at_work(app, process)
        yield process
    finally:
        process.kill()
        process.wait()


async def at_work(app: hf.Holdfast, *processes: subprocess.Popen[bytes]) -> None:
    """Return when all of these processes are workers."""
    while not {process.pid for process in processes} <= {each.pid for each in await app.workers() if each.alive}:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def until_none(app: hf.Holdfast, *statuses: hf.Status) -> None:
    """Return when no run has one of these states any more."""
    which = RunFilter(status=frozenset(statuses), limit=1)
    while await app._store.runs(which):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def is_taken(app: hf.Holdfast, before: RunRow) -> bool:
    """Has another worker written to a run?"""
    return any(r.epoch > before.epoch for r in await app._store.records(before.id, after=before.head_seq))


async def take_over(url: str, kills: int = 40) -> list[float]:
    """Seconds from the SIGKILL of a worker to the first record of another one, on disk."""
    took: list[float] = []
    chance = random.Random(7)
    async with hf.connect(url) as app:
        processes = [start_worker(url), start_worker(url)]
        try:
            await at_work(app, *processes)
            run = await app.start(ticking())
            for _ in range(kills):
                row = await app._store.run(RunId(run.id))
                while row is None or row.owner is None or row.head_seq < 5:
                    await asyncio.sleep(0.01)
                    row = await app._store.run(RunId(run.id))
                await asyncio.sleep(chance.uniform(0.05, 0.6))  # anywhere between two sweeps
                owner = next(each.pid for each in await app.workers() if each.id == row.owner)
                victim = next(process for process in processes if process.pid == owner)
                began = time.perf_counter()
                victim.kill()
                while not await is_taken(app, row):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
                took.append(time.perf_counter() - began)
                victim.wait()
                processes[processes.index(victim)] = fresh = start_worker(url)
                await at_work(app, fresh)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return took


async def wake_up(url: str, processes: int, count: int = 10_000, concurrency: int = 500) -> float:
    """Runs per second that wake up in worker processes, all due at the same moment, and come to their end."""
    async with hf.connect(url) as app:
        due = time.time() + 6 + count / 1_500  # by then all are parked
        for start in range(0, count, _CHUNK):
            await asyncio.gather(*(app.start(waker(n, due)) for n in range(start, start + _CHUNK)))
        workers = [start_worker(url, concurrency) for _ in range(processes)]
        try:
            await at_work(app, *workers)
            await until_none(app, hf.Status.queued, hf.Status.running)
            assert time.time() < due, "they were due before all of them were parked: nothing was measured"
            await asyncio.sleep(due - time.time())
            await until_none(app, hf.Status.queued, hf.Status.running, hf.Status.sleeping)
            return count / (time.time() - due)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


async def signals(url: str, count: int = 200) -> list[float]:
    """Milliseconds from a signal, sent by this process, to the step after it, in a worker that had the run parked."""
    took: list[float] = []
    async with working(url), hf.connect(url) as app:
        runs = await asyncio.gather(*(app.start(listener()) for _ in range(count)))
        await until_none(app, hf.Status.queued, hf.Status.running)
        for n, run in enumerate(runs):
            began = time.monotonic_ns()
            await run.send("go", n)
            took.append((await run.result() - began) / 1e6)
    return took


async def signal_cost(url: str, count: int = 400, rounds: int = 5) -> float:
    """How many sequential effects take as much of the processor as a signal to a run of this process."""
    heard = asyncio.Event()

    @hf.agent(signals=[hf.Signal("go", int)])
    async def hears() -> None:
        for _ in range(count):
            await hf.receive(("go", int))
            heard.set()

    ratios = []
    async with hf.connect(url, agents=[hears, effects]) as app:
        await (await app.start(effects(50))).result()
        for _ in range(rounds):
            began = time.process_time()
            await (await app.start(effects(count))).result()
            effects_s = time.process_time() - began
            run = await app.start(hears())
            began = time.process_time()
            for n in range(count):
                heard.clear()
                await run.send("go", n)
                await heard.wait()
            ratios.append((time.process_time() - began) / effects_s)
            await run.result()
    return statistics.median(ratios)


def cpu_ms(pid: int) -> float:
    """Milliseconds of the processor that the threads of a process have used."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


async def idle(urls: Sequence[str], rounds: int = 7, seconds: float = 4.0) -> list[float]:
    """Milliseconds of the processor that a worker with nothing to do takes each second, side by side for each store."""
    found: list[list[float]] = [[] for _ in urls]
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(working(url)) for url in urls]
        await asyncio.sleep(3)  # what they do at the beginning is done
        for _ in range(rounds):
            before = [cpu_ms(worker.pid) for worker in workers]
            began = time.monotonic()
            await asyncio.sleep(seconds)
            took_s = time.monotonic() - began
            for values, worker, then in zip(found, workers, before, strict=True):
                values.append((cpu_ms(worker.pid) - then) / took_s)
    return [statistics.median(values) for values in found]


async def cancels(url: str, count: int = 100) -> list[float]:
    """Milliseconds from cancelling a run in the middle of a body until this process is told that it ended."""
    took: list[float] = []
    async with working(url), hf.connect(url) as app:
        for _ in range(count):
            run = await app.start(busy())
            while await run.status() != hf.Status.running:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)  # its body has begun
            began = time.monotonic_ns()
            await run.cancel()
            took.append((time.monotonic_ns() - began) / 1e6)
    return took


async def starts(url: str, count: int = 10_000) -> float:
    """Runs per second that a client stores for workers to execute."""
    async with hf.connect(url) as app:
        await app.start(nothing(-1))
        began = time.perf_counter()
        for start in range(0, count, _CHUNK):
            await asyncio.gather(*(app.start(nothing(n)) for n in range(start, start + _CHUNK)))
        return count / (time.perf_counter() - began)


async def parked(url: str, count: int = 100_000) -> tuple[float, float]:
    """Megabytes that a worker process takes after it has parked so many runs, and how many it parks per second."""
    async with hf.connect(url) as app:
        for start in range(0, count, _CHUNK):
            await asyncio.gather(*(app.start(sleeper(n)) for n in range(start, start + _CHUNK)))
        began = time.perf_counter()
        async with working(url, 500) as process:
            await until_none(app, hf.Status.queued, hf.Status.running)
            took = time.perf_counter() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
            size = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
            return int(size.split()[1]) / 1024, count / took


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.pop("HOLDFAST_TEST_CLOCK_SHIFT_S", None)
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
