"""Workers are killed and the server crashes, again and again, while hundreds of runs go on.

    python -m tests.postgres.soak [--seconds 600] [--runs 500] [--seed N]

Outside of it all are people: they start runs, send signals, settle what is in doubt, and know what must come of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import holdfast as hf
from holdfast.model import RunFilter, Status
from holdfast.testing import Ledger, check_history
from holdfast.testing.ledger import VARIABLE as LEDGER
from holdfast.testing.postgres import PostgresServer
from tests.forkserver import Forked, ForkServer
from tests.postgres.agents import VARIABLE, errand, expected, has_happened, mix, planned, posts
from tests.workers import Scene

log = logging.getLogger("holdfast.tests.soak")

T = TypeVar("T")
UNFINISHED = frozenset(Status) - {Status.done, Status.failed, Status.cancelled}
SETTINGS: dict[str, Any] = {"lease_s": 2.0, "renew_s": 0.4, "sweep_s": 0.2, "crash_limit": 1000, "drain_s": 2.0}
CRASH_S = (5.0, 20.0)  #: between two crashes of the server
_LOOK_S = 0.25
_PATIENCE_S = 45.0  #: so much longer it goes on, if it was not bad enough yet
_CARE_S = 3.0  #: so long people wait before they settle a doubt: nothing that somebody began takes longer
_REPORT_S = 5.0
_GROWN_UP_S = 5.0  #: a worker of this age has survived its start


@dataclass(frozen=True)
class Plan:
    """How long, how much, how bad."""

    seed: int
    seconds: float = 600.0
    runs: int = 500  #: at any time
    length: int = 12  #: what a run does
    workers: int = 4
    kill_s: tuple[float, float] = (0.5, 2.0)  #: between two kills
    calm_s: float = 120.0  #: so long may it take when nothing bad happens any more
    least_kills: int = 1  #: it goes on until there were so many, however slow the machine is
    least_crashes: int = 0


@dataclass
class Soaked:
    """What became of it."""

    plan: Plan
    started: int = 0
    finished: int = 0
    runs: int = 0
    kills: int = 0
    stillborn: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    signals: int = 0
    settled: int = 0
    refusals: int = 0
    acks: int = 0
    deeds: int = 0
    calm_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        crashes = ", ".join(f"{count} {how}" for how, count in self.crashes.most_common()) or "none"
        return (
            f"seed {self.plan.seed}, {self.plan.seconds:g} s: {self.finished} of {self.started} runs finished "
            f"({self.runs} with children), {self.kills} workers killed, {self.stillborn} died while they started, "
            f"server crashes: {crashes}; {self.signals} signals, {self.settled} doubts settled by people, "
            f"{self.refusals} calls refused and made again, {self.acks} acknowledgements, {self.deeds} effects; "
            f"{self.calm_s:.1f} s to the end; {len(self.problems)} problems"
        )

    def assert_well(self) -> None:
        """Fail with what went wrong, and how to have it happen again."""
        log.info("%s", self)
        assert not self.problems, "\n".join([str(self), f"HOLDFAST_SEED={self.plan.seed}", *self.problems[:40]])
        assert self.finished == self.started >= self.plan.runs


@dataclass
class Errand:
    """A run, as those who started it know it."""

    run: hf.Run[int]
    plan: list[str]
    x: int
    signals: list[int]


#: What happens to the server meanwhile, until it is cancelled; it tells of it in `Soaked.crashes`.
Storm = Callable[[Soaked, random.Random], Coroutine[Any, Any, None]]


def crashing(server: PostgresServer, between_s: tuple[float, float]) -> Storm:
    """The server crashes again and again, and is away for a moment, or for longer than a lease."""

    async def storm(found: Soaked, chance: random.Random) -> None:
        run = asyncio.get_running_loop().run_in_executor
        thread = ThreadPoolExecutor(1)  # it is stopped before it starts
        try:
            while True:
                await asyncio.sleep(chance.uniform(*between_s))
                how = chance.choices(["immediate", "kill", "fast"], [6, 3, 1])[0]
                away_s = chance.choice([0, 0, 0, 0.5, SETTINGS["lease_s"] * 1.5])
                if how == "kill":
                    await run(thread, server.kill)
                else:
                    await run(thread, server.stop, "fast" if how == "fast" else "immediate")
                await asyncio.sleep(away_s)
                await run(thread, server.start)
                found.crashes[how] += 1
        finally:
            thread.submit(server.start).result()  # behind what a cancelled storm has begun
            thread.shutdown()

    return storm


class Soak:
    """One trial."""

    def __init__(self, plan: Plan, scene: Scene, storm: Storm | None) -> None:
        self.plan = plan
        self.found = Soaked(plan)
        self._scene = scene
        self._storm = storm
        self._chance = random.Random(plan.seed)
        self._ledger = Ledger(scene.folder / "ledger.jsonl")
        (scene.folder / "world").mkdir()
        os.environ[VARIABLE] = str(scene.folder)
        scene.env = {VARIABLE: str(scene.folder), LEDGER: str(self._ledger.path)}
        self._workers: dict[Forked, float] = {}
        self._open: dict[str, Errand] = {}
        self._over: list[Errand] = []
        self._acks: list[tuple[str, str]] = []
        self._doubts: dict[tuple[str, str, int], float] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self) -> Soaked:
        began = time.monotonic()
        async with hf.connect(self._scene.url, settings=hf.Settings(**SETTINGS)) as self._app:
            for _ in range(self.plan.workers):
                self._hire()
            bad = [asyncio.create_task(self._kill())]
            if self._storm is not None:
                bad.append(asyncio.create_task(self._storm(self.found, random.Random(f"storm {self.plan.seed}"))))
            others = [asyncio.create_task(self._settle()), asyncio.create_task(self._report(began))]
            try:
                while not self._is_enough(time.monotonic() - began):
                    await self._unless_failed(self._feed(), *bad, *others)
                    await self._unless_failed(self._harvest(), *bad, *others)
                    await asyncio.sleep(_LOOK_S)
            finally:
                for task in bad:
                    task.cancel()
                await asyncio.wait(bad)
            calm = time.monotonic()
            while self._open and time.monotonic() - calm < self.plan.calm_s:
                self._replace_dead()
                await self._unless_failed(self._harvest(), *others)
                await asyncio.sleep(_LOOK_S)
            self.found.calm_s = time.monotonic() - calm
            for task in (*others, *self._sending):
                task.cancel()
            await asyncio.wait([*others, *self._sending])
            await self._end()
        self._judge()
        return self.found

    def _is_enough(self, seconds: float) -> bool:
        plan, found = self.plan, self.found
        was_bad = found.kills >= plan.least_kills and found.crashes.total() >= plan.least_crashes
        return seconds >= plan.seconds and (was_bad or seconds >= plan.seconds + _PATIENCE_S)

    async def _unless_failed(self, what: Coroutine[Any, Any, None], *tasks: asyncio.Task[None]) -> None:
        """Do it; but what goes on meanwhile, and failed, is the reason of what fails then, and is told first."""
        doing = asyncio.create_task(what)
        try:
            await asyncio.wait([doing, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    raise AssertionError(f"seed {self.plan.seed}: {task.get_coro()} failed") from task.exception()
            await doing
        finally:
            doing.cancel()

    # what is bad

    def _hire(self) -> None:
        self._workers[self._scene.worker(concurrency=200)] = time.monotonic()

    def _replace_dead(self) -> None:
        """Somebody outside starts workers again that died; one that had been at work has no reason to."""
        for worker, born in list(self._workers.items()):
            if worker.code is not None:
                del self._workers[worker]
                self.found.stillborn += 1
                if time.monotonic() - born > _GROWN_UP_S:
                    self.found.problems.append(f"worker {worker.pid} ended by itself, with {worker.code}")
                self._hire()

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*self.plan.kill_s))
            self._replace_dead()
            victim = self._chance.choice(list(self._workers))
            victim.kill()
            del self._workers[victim]
            self.found.kills += 1
            self._hire()

    # people

    async def _sure(self, what: Callable[[], Awaitable[T]], timeout_s: float = 60.0) -> T:
        """Until it is accepted: who is told of an error knows nothing, and asks again."""
        give_up = time.monotonic() + timeout_s
        while True:
            try:
                return await what()
            except hf.StoreError:
                self.found.refusals += 1
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.1)

    async def _feed(self) -> None:
        """As many runs as there should be."""
        missing = min(self.plan.runs - len(self._open), 50)
        await asyncio.gather(*(self._start(self.found.started + n) for n in range(missing)))

    async def _start(self, number: int) -> None:
        chance = random.Random(f"{self.plan.seed} {number}")
        plan, run_id = planned(chance, self.plan.length), f"e{number:06}"
        x, signals = number, [mix(run_id, n) for n in range(plan.count("hear"))]
        run = await self._sure(lambda: self._app.start(errand(plan, x), id=run_id))
        self.found.started += 1
        self._acks.append((run_id, ""))
        self._open[run_id] = one = Errand(run, plan, x, signals)
        if signals:
            task = asyncio.create_task(self._send(one, chance))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.found.problems.append(f"a signal was not accepted: {task.exception()!r}")

    async def _send(self, one: Errand, chance: random.Random) -> None:
        for n, value in enumerate(one.signals):
            await asyncio.sleep(chance.uniform(0, 2))
            await self._sure(lambda value=value, n=n: one.run.send("go", value, dedup=f"{n}"))  # type: ignore[misc]
            self.found.signals += 1

    async def _harvest(self) -> None:
        """See who has ended, and hear what came of it."""
        which = RunFilter(status=UNFINISHED, limit=10_000)
        open_before = set(self._open)
        unfinished = {row.id for row in await self._sure(lambda: self._app._store.runs(which))}
        for run_id in open_before - unfinished:
            one = self._open.pop(run_id)
            wanted = expected(one.plan, one.x, one.signals)
            try:
                came = await self._sure(one.run.result)
            except hf.RunError as error:
                self.found.problems.append(f"run {run_id} failed: {error!r}")
            else:
                if came != wanted:
                    self.found.problems.append(f"run {run_id} returned {came}, not {wanted}")
            self._acks.append((run_id, "finished"))
            self._over.append(one)
            self.found.finished += 1

    async def _settle(self) -> None:
        """What is in doubt is looked up in the world, when it had the time to happen."""
        while True:
            await asyncio.sleep(0.5)
            try:
                for doubt in await self._app.in_doubt():
                    seen = self._doubts.setdefault((doubt.run_id, doubt.key, doubt.attempt), time.monotonic())
                    if time.monotonic() - seen < _CARE_S:
                        continue
                    x = json.loads(doubt.args or "{}")["x"]
                    with suppress(hf.AlreadySettled):
                        is_done = has_happened(doubt.idempotency_key)
                        await doubt.resolve(hf.landed(mix("post", x)) if is_done else hf.not_landed(), by="people")
                        self.found.settled += 1
            except hf.StoreError:
                self.found.refusals += 1

    async def _report(self, began: float) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            log.info(
                "%5.0f s: %d runs finished, %d open, %d kills, %d crashes, %d problems",
                time.monotonic() - began,
                self.found.finished,
                len(self._open),
                self.found.kills,
                self.found.crashes.total(),
                len(self.found.problems),
            )

    # in the end

    async def _end(self) -> None:
        """Nothing is left: no run, no child, no worker."""
        rows = await self._app._store.runs(RunFilter(status=UNFINISHED, limit=10_000))
        for row in rows[:20]:
            records = [f"{r.seq} {r.kind} {r.key}" for r in (await self._app._store.records(row.id))[-4:]]
            self.found.problems.append(
                f"run {row.id} has not ended: {row.status}, owner {row.owner}, wake_at {row.wake_at}, "
                f"reason {row.reason}, {records}"
            )
        for worker in self._workers:
            worker.send(15)
        for worker in self._workers:
            code = await worker.wait_dead(60)
            if code:
                self.found.problems.append(f"worker {worker.pid} was asked to end, and ended with {code}")
        deadline = time.monotonic() + 60
        while alive := [each for each in await self._app.workers() if each.alive]:
            if time.monotonic() > deadline:
                self.found.problems.append(f"workers are said to live that do not: {alive}")
                break
            await asyncio.sleep(0.2)

    def _judge(self) -> None:
        """The store against what people were told, and against the world."""
        told = self._scene.folder / "acks.txt"
        for line in told.read_text().splitlines() if told.exists() else ():
            run_id, *keys = line.split()
            self._acks += [(run_id, key) for key in keys]
        self.found.acks = len(self._acks)
        self.found.problems += check_history(self._scene.url, self._ledger, acks=self._acks)
        happened: Counter[str] = Counter()
        for path in (self._scene.folder / "world").iterdir():
            lines = path.read_text().splitlines()
            self.found.deeds += len(lines)
            if not lines:
                continue
            happened[lines[0].split()[0].partition(".")[0]] += 1
            if len(lines) > 1:
                self.found.problems.append(f"an effect happened {len(lines)} times: {lines}")
        for one in self._over:
            wanted = posts(one.plan)
            if happened[one.run.id] != wanted:
                self.found.problems.append(f"run {one.run.id} has {happened[one.run.id]} effects, not {wanted}")
        self.found.runs = self.found.started + sum(one.plan.count("child") for one in self._over)


def seed() -> int:
    """Of HOLDFAST_SEED, to have something happen again; else another one each time."""
    return int(os.environ.get("HOLDFAST_SEED") or time.time_ns() % 1_000_000)


def soak(plan: Plan, folder: Path, url: str, storm: Storm | None = None) -> Soaked:
    """Have it all happen, and tell what became of it."""
    log.info("HOLDFAST_SEED=%d", plan.seed)
    forkserver = ForkServer(lambda _: url)
    try:
        with Scene(folder, forkserver, agents="tests.postgres.agents", settings=SETTINGS) as scene:
            return asyncio.run(Soak(plan, scene, storm).run())
    finally:
        forkserver.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=seed())
    parser.add_argument("--sqlite", action="store_true", help="on SQLite instead; there is no server to crash then")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = Plan(options.seed, options.seconds, options.runs)
    print(f"seed {plan.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as name:
        folder = Path(name)
        if options.sqlite:
            found = soak(plan, folder / "trial", str(folder / "trial" / "store.db"))
        else:
            with PostgresServer(folder / "server") as server:
                url = server.url(server.create_database("soak"))
                found = soak(plan, folder / "trial", url, crashing(server, CRASH_S))
        print(found)
        print(*found.problems[:50], sep="\n")
        workers = folder / "trial" / "log.txt"
        if found.problems and workers.exists():
            print("the workers said, in the end:", workers.read_text(errors="replace")[-3000:])
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
