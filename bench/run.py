"""How fast Holdfast is here, at full durability, next to what this machine's disk can do.

    make bench            everything
    make bench ONLY=steps one part

Every number is measured in this run; the raw commit rate is measured on the same disk, before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pydantic_core
import serving
import states
import values
from agents import act, awaiting_effects, effects, reads, steps, tiny

import holdfast as hf
import postgres
import waiting


@hf.agent
async def fan_out(count: int) -> int:
    return sum(await asyncio.gather(*(tiny(n) for n in range(count))))


@hf.agent
async def act_at_once(count: int, file: str) -> int:
    n = sum(await asyncio.gather(*(act(n) for n in range(count))))
    n = await act(n)
    Path(file).write_text(str(time.time()))
    return n


@hf.agent
async def stops_at(count: int, file: str) -> int:
    n = 0
    for _ in range(count):
        n = await tiny(n)
    await act(n)
    Path(file).write_text(str(time.time()))
    return n


class Bench:
    """The parts, and what they found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, float] = {}

    def url(self, name: str) -> str:
        return str(self.folder / f"{name}.db")

    def raw_commits(self, count: int = 2000) -> float:
        """Commits per second of one small row each, WAL and FULL, nothing else."""
        path = str(self.folder / f"raw-{time.monotonic_ns()}.db")
        connection = apsw.Connection(path)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.execute("create table t(a integer primary key, b text)")
        began = time.perf_counter()
        for _ in range(count):
            connection.execute("begin immediate")
            connection.execute("insert into t(b) values (?)", ("x" * 200,))
            connection.execute("commit")
        rate = count / (time.perf_counter() - began)
        connection.close()
        return rate

    async def sequential_steps(self) -> None:
        rates = []
        async with hf.connect(self.url("steps"), agents=[steps]) as app:
            await (await app.start(steps(100))).result()
            for _ in range(3):
                began = time.perf_counter()
                await (await app.start(steps(20_000))).result()
                rates.append(20_000 / (time.perf_counter() - began))
        self.found["sequential steps/s"] = max(rates)
        size = sum(f.stat().st_size for f in self.folder.glob("steps.db"))
        self.found["bytes per small step on disk"] = size / 60_100

    async def sequential_effects(self) -> None:
        shares, rates, awaiting = [], [], []
        async with hf.connect(self.url("effects"), agents=[effects, awaiting_effects]) as app:
            await (await app.start(effects(50))).result()
            for _ in range(5):
                raw = self.raw_commits(1000)
                began = time.perf_counter()
                await (await app.start(effects(2_000))).result()
                rate = 2_000 / (time.perf_counter() - began)
                raw = (raw + self.raw_commits(1000)) / 2
                rates.append(rate)
                shares.append(rate / raw)
                began = time.perf_counter()
                await (await app.start(awaiting_effects(2_000))).result()
                awaiting.append(2_000 / (time.perf_counter() - began) / rate)
        self.found["sequential effects/s"] = statistics.median(rates)
        self.found["sequential effects that await, share of the others"] = statistics.median(awaiting)
        self.found["sequential effects, share of raw commits"] = statistics.median(shares)

    async def many_runs(self) -> None:
        rates = []
        async with hf.connect(self.url("many"), agents=[steps]) as app:
            for _ in range(8):
                gc.collect()
                began = time.perf_counter()
                runs = await asyncio.gather(*(app.start(steps(20)) for _ in range(100)))
                await asyncio.gather(*(run.result() for run in runs))
                rates.append(2_000 / (time.perf_counter() - began))
        self.found["100 runs x 20 steps, steps/s"] = max(rates)

    async def gather(self) -> None:
        rates = []
        async with hf.connect(self.url("gather"), agents=[fan_out]) as app:
            await (await app.start(fan_out(10))).result()
            for _ in range(5):
                began = time.perf_counter()
                await (await app.start(fan_out(1000))).result()
                rates.append(1000 / (time.perf_counter() - began))
        self.found["gather of 1,000 steps, steps/s"] = max(rates)

    async def effects_at_once(self) -> None:
        """Of one run, next to as many as a hundred runs have at once."""
        rates, spread, mark = [], [], str(self.folder / "acted")
        async with hf.connect(self.url("at-once"), agents=[act_at_once, effects]) as app:
            await (await app.start(act_at_once(100, mark))).result()
            for _ in range(5):
                gc.collect()
                began = time.perf_counter()
                runs = await asyncio.gather(*(app.start(effects(20)) for _ in range(100)))
                await asyncio.gather(*(run.result() for run in runs))
                spread.append(2_000 / (time.perf_counter() - began))
                del runs
                gc.collect()
                began = time.perf_counter()
                await (await app.start(act_at_once(10_000, mark))).result()
                rates.append(10_000 / (time.perf_counter() - began))
        self.found["10,000 effects at once, effects/s"] = max(rates)
        self.found["10,000 effects at once, share of 100 x 20"] = max(rates) / max(spread)

    async def resume_at_once(self) -> None:
        """All of them are recorded, and answer; then the run goes on."""
        self.found["resume at 10,000 effects at once, s"] = await self._resumed(
            "at-once-resume", act_at_once, 10_000, kill="effect.after_intent:kill@10001"
        )

    async def one_step(self) -> None:
        took = []
        async with hf.connect(self.url("one"), agents=[steps]) as app:
            for _ in range(500):
                began = time.perf_counter()
                await (await app.start(steps(1))).result()
                took.append((time.perf_counter() - began) * 1000)
        took.sort()
        self.found["one-step run, p50 ms"] = statistics.median(took)
        self.found["one-step run, p99 ms"] = took[int(len(took) * 0.99)]

    async def resume(self) -> None:
        self.found["resume at step 10,000, s"] = await self._resumed(
            "resume", stops_at, 10_000, kill="effect.after_intent:kill"
        )

    async def _resumed(self, name: str, agent: hf.Agent[[int, str], int], count: int, *, kill: str) -> float:
        """Seconds until a run that was killed is where it was, and beyond."""
        url, mark = self.url(name), self.folder / f"mark-{name}"
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import run, holdfast as hf; "
            f"hf.run(run.{agent.name}({count}, {str(mark)!r}), id='long', url={url!r})"
        )
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "HOLDFAST_FAULT": kill}, check=False)
        assert not mark.exists()
        began = time.perf_counter()
        async with hf.connect(url, agents=[agent]) as app:
            run = await app.start(agent(count, str(mark)), id="long")
            while not mark.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.0005)
            took = time.perf_counter() - began
            await run.result()
        return took

    async def take_over(self) -> None:
        took = await waiting.take_over(self.url("take-over"))
        self.found["take-over after a kill, p50 s"] = statistics.median(took)
        self.found["take-over after a kill, p99 s"] = waiting.percentile(took, 0.99)

    async def wake_ups(self) -> None:
        for processes in (1, 2):
            rate = await waiting.wake_up(self.url(f"wake-ups-{processes}"), processes)
            self.found[f"wake-ups, {processes} worker process{'es' * (processes > 1)}, runs/s"] = rate

    async def signals(self) -> None:
        took = await waiting.signals(self.url("signals"))
        self.found["signal to a parked run, p50 ms"] = statistics.median(took)
        self.found["signal to a parked run, p99 ms"] = waiting.percentile(took, 0.99)

    async def signal_cost(self) -> None:
        self.found["signal to a run in memory, CPU of so many effects"] = await waiting.signal_cost(self.url("memory"))

    async def cancels(self) -> None:
        took = await waiting.cancels(self.url("cancels"))
        self.found["cancelling a body under way, p50 ms"] = statistics.median(took)
        self.found["cancelling a body under way, p99 ms"] = waiting.percentile(took, 0.99)

    async def starts(self) -> None:
        self.found["10,000 runs queued by a client, runs/s"] = await waiting.starts(self.url("starts"))

    async def parked(self) -> None:
        size, rate = await waiting.parked(self.url("parked"))
        self.found["worker with 100,000 parked runs, MB"] = size
        self.found["100,000 queued runs until parked, runs/s"] = rate

    async def large_argument(self) -> None:
        said = [{"role": "user", "content": f"question {n} " * 10} for n in range(1240)]
        took, written = [], []
        async with hf.connect(self.url("large"), agents=[reads]) as app:
            for _ in range(15):  # in turns, and as many of each: a busy machine slows both, and the least is of both
                began = time.process_time()
                for _ in range(20):
                    pydantic_core.to_json(said)
                written.append(time.process_time() - began)
                began = await (await app.start(reads(20, 1240))).result()
                took.append(time.process_time() - began)  # on all threads, until the last one is on disk
        share = min(took) / min(written)
        self.found["step with 200 kB, CPU of so many pydantic-core writes"] = share

    async def large_values(self) -> None:
        self.found.update(values.codec())

    async def large_states(self) -> None:
        self.found.update(await states.large_states(self.url("states")))

    async def differences(self) -> None:
        self.found.update(values.differences())

    async def start_up(self) -> None:
        def usual(command: list[str]) -> float:
            took = []
            env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            subprocess.run(command, check=True, capture_output=True, env=env)  # compiles what is new
            for _ in range(9):
                began = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True, env=env)
                took.append(time.perf_counter() - began)
            return statistics.median(took)

        bare, others, own = (usual([sys.executable, "-c", code]) for code in ("pass", _OTHERS, "import holdfast"))
        self.found["import holdfast, ms"] = (own - bare) * 1000
        self.found["import holdfast, share of what it needs"] = (own - bare) / (others - bare)
        command = [sys.executable, "-m", "holdfast", "--db", self.url("one"), "runs"]
        self.found["holdfast runs, s"] = usual(command)


_LONGEST_S = 300  # a part that takes longer hangs
_OTHERS = "import asyncio, sqlite3, json, dataclasses, typing, logging, pydantic_core"
#: name of a number, its goal, and whether more is better
GOALS = {
    "sequential steps/s": (20_000, True),
    "sequential effects, share of raw commits": (0.7, True),
    "100 runs x 20 steps, steps/s": (30_000, True),
    "gather of 1,000 steps, steps/s": (10_000, True),
    "10,000 effects at once, share of 100 x 20": (1.0, True),
    "one-step run, p50 ms": (1.0, False),
    "resume at step 10,000, s": (0.25, False),
    "take-over after a kill, p99 s": (1.0, False),
    "wake-ups, 2 worker processes, runs/s": (5_000, True),
    "signal to a parked run, p50 ms": (20, False),
    "signal to a run in memory, CPU of so many effects": (4, False),
    "10,000 runs queued by a client, runs/s": (5_000, True),
    "worker with 100,000 parked runs, MB": (150, False),
    "bytes per small step on disk": (300, False),
    "step with 200 kB, CPU of so many pydantic-core writes": (3, False),
    "import holdfast, ms": (120, False),
    "import holdfast, share of what it needs": (1.0, False),
    "holdfast runs, s": (0.3, False),
    **values.GOALS,
    **states.GOALS,
    **postgres.GOALS,
    **serving.GOALS,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        bench = Bench(Path(folder).resolve())
        pg = postgres.Postgres(bench.folder, bench.found)
        served = serving.Serving(bench.folder, bench.found, pg)
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "steps": bench.sequential_steps,
            "effects": bench.sequential_effects,
            "many": bench.many_runs,
            "gather": bench.gather,
            "atonce": bench.effects_at_once,
            "atonce_resume": bench.resume_at_once,
            "one": bench.one_step,
            "resume": bench.resume,
            "takeover": bench.take_over,
            "wakeups": bench.wake_ups,
            "signals": bench.signals,
            "memory": bench.signal_cost,
            "cancels": bench.cancels,
            "queued": bench.starts,
            "parked": bench.parked,
            "large": bench.large_argument,
            "values": bench.large_values,
            "turns": bench.large_states,
            "differences": bench.differences,
            "startup": bench.start_up,
            "pg_steps": pg.sequential_steps,
            "pg_effects": pg.sequential_effects,
            "pg_runs": pg.many_runs,
            "pg_two": pg.two_workers,
            "pg_claims": pg.claims,
            "pg_idle": pg.idle,
            "serving": served.sqlite,
            "pg_serving": served.postgresql,
        }
        chosen = [
            name
            for name in parts
            if (options.only in name and name.startswith("pg_") <= (options.only[:2] in ("", "pg")))
            or (name == "one" and options.only == "startup")
        ]
        bench.found["raw commits/s before"] = bench.raw_commits()
        shown = 0 if options.json else show(bench.found)
        try:
            for place, name in enumerate(chosen, 1):
                print(f"… {name} ({place} of {len(chosen)})", file=sys.stderr)
                asyncio.run(asyncio.wait_for(parts[name](), _LONGEST_S))
                shown = 0 if options.json else show(bench.found, after=shown)
        finally:
            pg.close()
        bench.found["raw commits/s after"] = bench.raw_commits()
    if options.json:
        print(json.dumps(bench.found, indent=1))
    else:
        show(bench.found, after=shown)
    return 1 if "MISSED" in {verdict(name, value) for name, value in bench.found.items()} else 0


def show(found: dict[str, float], after: int = 0) -> int:
    """Print what was found since so many numbers ago; how many there are now."""
    for name, value in list(found.items())[after:]:
        goal, more = GOALS.get(name, (None, True))
        wanted = "" if goal is None else f"{'≥' if more else '≤'} {goal:,}"
        print(f"{name:50} {value:12,.3f}   {wanted:10} {verdict(name, value)}", flush=True)
    return len(found)


def verdict(name: str, value: float) -> str:
    goal, more = GOALS.get(name, (None, True))
    if goal is None:
        return ""
    return "ok" if (value >= goal) == more or value == goal else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
