"""A batch of programs on three workers that are killed again and again, and the people who answer them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.base.clock import monotonic_us, now_us
from holdfast.history.facts import note_of
from holdfast.model import Kind, RunFilter, RunId, Status
from holdfast.testing import Ledger
from holdfast.testing.ledger import VARIABLE as LEDGER
from tests.forkserver import ForkServer
from tests.programs.agents import VARIABLE as WORLD
from tests.programs.agents import deeds_of, program
from tests.programs.checks import Findings, Left, check, input_of, look, rows_of, story
from tests.programs.trees import NEVER, Node, answer_value, mix, signal_values
from tests.programs.workers import Process, Workers, settings, torment
from tests.workers import Scene

log = logging.getLogger("holdfast.tests.programs")

#: For a run that was cancelled to end: not less than a batch may take, whatever else keeps the machine busy.
PATIENCE_S = 600.0
_UNFINISHED = frozenset(Status) - {Status.done, Status.failed, Status.cancelled}
_LOOK_S = 0.1
_CALM_S = 600.0  #: so long may it take when nobody is killed any more, on a busy machine
_APART_S = 0.1  #: programs are started so far apart, on average
_SHOWN = 3


@dataclass(frozen=True)
class Lane:
    """A queue with limits."""

    name: str
    concurrency: int
    per_key: int
    keys: int  #: so many different ones are used


@dataclass(frozen=True)
class Plan:
    """What the workers of a batch suffer, and how its programs are started."""

    stops: float = 0.0  #: the share of those that are stopped for longer than their lease, instead of killed
    aims: float = 0.4  #: the share of those that are hit at a chosen place
    retires: float = 0.1  #: the share of those that get a SIGTERM and hand over
    most_s: float = 60.0  #: when the killing ends, if the programs have not ended by then
    pauses: float = 0.0  #: the share of programs that people pause for a moment
    cancels: float = 0.0  #: the share of programs that people cancel
    lease_s: float = 1.0
    lane: Lane | None = None
    kills: bool = True  #: else nobody suffers anything


@dataclass
class Batch:
    """What became of some programs."""

    seed: str
    programs: int
    runs: int = 0
    kills: int = 0
    stops: int = 0
    aimed: int = 0
    retired: int = 0
    signals: int = 0
    answers: int = 0
    settled: int = 0
    pauses: int = 0
    cancels: int = 0
    doubts: int = 0
    taken_over: Counter[str] = field(default_factory=Counter)  #: by the proof that the former owner was dead
    seconds: float = 0.0
    late: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stories: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    met: Mapping[str, set[str]] = field(default_factory=dict)  #: hazards, and the programs that met them
    command: str = ""  #: what runs it again

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.programs} programs, {self.runs} runs, {self.kills} kills and {self.stops} stops "
            f"({self.aimed} aimed), {self.retired} retired, {self.signals} signals, {self.answers} answers, "
            f"{self.pauses} pauses, {self.cancels} cancelled, {self.doubts} effects in doubt "
            f"({self.settled} settled by people), "
            f"taken over: {', '.join(f'{n} by {proof}' for proof, n in self.taken_over.most_common()) or 'none'}, "
            f"{len(self.late)} late, {self.seconds:.1f} s"
        )

    def assert_well(self) -> None:
        """Fail with everything that is known about what went wrong."""
        if self.problems:
            shown = "\n".join(f"- {each}" for each in self.problems[:40])
            stories = "\n\n".join(self.stories[:_SHOWN])
            command = self.command or f"HOLDFAST_SEED={self.seed.partition('/')[0]}"
            raise AssertionError(f"{self}\n{command}\n{shown}\n\n{stories}")


class People:
    """Everybody outside: they send signals, answer questions, and say what became of effects in doubt."""

    is_calm = False  #: nobody is killed

    def __init__(self, app: hf.Holdfast, trees: Sequence[Node], workers: Workers, chance: random.Random) -> None:
        self._app = app
        self._store = app._store
        self._nodes = {node.at: node for tree in trees for node in tree.walk()}
        self._workers = workers
        self._chance = chance
        self._known: set[str] = set()
        self._answered: set[str] = set()
        self._doubts: dict[tuple[str, str, int], int] = {}  #: when each was first seen
        self._sending: set[asyncio.Task[None]] = set()
        self.problems: list[str] = []
        self._doomed: set[str] = set()  #: to be cancelled, if they do not end before
        self.cancelled: set[str] = set()
        self.signals = self.answers = self.settled = self.pauses = 0

    async def meet(self, run_id: str, tree: Node) -> None:
        """A run is there: send it what it waits for, some of it at once, the rest later."""
        if run_id in self._known:
            return
        self._known.add(run_id)
        for node in tree.own():
            if node.kind == "receive" and node.word != NEVER:
                if self._chance.random() < 0.3:
                    await self._send(run_id, node, 0.0)
                else:
                    self._later(self._send(run_id, node, self._chance.uniform(0, 1.5)))

    def disturb(self, run_id: str, *, pauses: float, cancels: float) -> None:
        """Perhaps pause a run, perhaps cancel it."""
        if self._chance.random() < pauses:
            self._later(self._pause(run_id, self._chance.uniform(0, 1.0), self._chance.uniform(0, 0.6)))
        if self._chance.random() < cancels:
            self._doomed.add(run_id)
            self._later(self._cancel(run_id, self._chance.uniform(0, 2.0)))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            shown = "".join(traceback.format_exception(task.exception()))
            self.problems.append(f"what people did failed: {shown}")

    async def _pause(self, run_id: str, after_s: float, for_s: float) -> None:
        await asyncio.sleep(after_s)
        run = self._app.get(run_id)
        status = await run.pause(by="a person")
        if status.is_final:
            return
        if status is not Status.paused:
            self.problems.append(f"run {run_id} was paused and is {status}")
        self.pauses += 1
        await asyncio.sleep(for_s)
        await run.resume(by="a person")

    async def _cancel(self, run_id: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if await self._app.get(run_id).cancel(by="a person", timeout=PATIENCE_S) is Status.cancelled:
            self.cancelled.add(run_id)

    async def _send(self, run_id: str, node: Node, after_s: float) -> None:
        await asyncio.sleep(after_s)
        run = self._app.get(run_id)
        for n, value in enumerate(signal_values(node)):
            if run_id.partition(".")[0] in self._doomed:
                with suppress(hf.RunFinished):
                    await run.send(node.word, value)
                continue
            dedup = f"{node.at}/{n}" if mix(n, node.at, "dedup") % 2 else None
            if not await run.send(node.word, value, dedup=dedup):
                self.problems.append(f"run {run_id}: signal {node.word} was new and is said to be known")
            self.signals += 1
            if dedup is not None:
                try:
                    if await run.send(node.word, value, dedup=dedup):
                        self.problems.append(f"run {run_id}: signal {node.word} with the id {dedup} was taken twice")
                except hf.RunFinished:
                    pass

    async def look_around(self) -> bool:
        """See who is new, who asks, who is in doubt. Is everything over?"""
        for row in await rows_of(self._store):
            if row.id not in self._known:
                records = await self._store.records(row.id)
                tree, _ = await input_of(self._store, row, records[0])
                await self.meet(row.id, tree)
        for question in await self._app.questions():
            node = self._nodes[question.prompt]
            if node.word != NEVER and question.id not in self._answered:
                self._answered.add(question.id)
                try:
                    await question.answer(answer_value(node), by="a person")
                    self.answers += 1
                except (hf.AlreadyDecided, hf.RunFinished):
                    if question.run_id.partition(".")[0] not in self._doomed:
                        raise
        await self._settle()
        unfinished = await self._store.runs(RunFilter(status=_UNFINISHED, limit=1))
        return not unfinished and not self._sending

    async def _settle(self) -> None:
        """Settle what is in doubt as a careful person would: only when whoever was stopped has gone on for a while."""
        now = now_us()
        for doubt in await self._app.in_doubt():
            seen = self._doubts.setdefault((doubt.run_id, doubt.key, doubt.attempt), now)
            stops = [stop for process in self._workers.all for stop in process.stops]
            if any(began <= seen and ended > now - 300_000 for began, ended in stops):
                continue
            acted = [deed for deed in deeds_of(doubt.idempotency_key) if deed.what == "act"]
            verdict: hf.Verdict[Any] = (
                hf.landed([acted[0].at, mix(acted[0].x, acted[0].at)]) if acted else hf.not_landed()
            )
            try:
                await doubt.resolve(verdict, by="a person", note="looked")
                self.settled += 1
            except hf.AlreadySettled:
                pass

    async def leave(self) -> None:
        for task in list(self._sending):
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)


@dataclass(frozen=True)
class Over:
    """A batch that is over: what is left of it, and who took part."""

    left: Left
    scene: Scene
    trees: Sequence[Node]
    plan: Plan
    people: People
    workers: Workers
    ledger: Ledger


def _check(over: Over, batch: Batch) -> Findings:
    return check(
        over.left,
        over.scene.url,
        over.trees,
        was_stopped=over.workers.was_stopped,
        ledger=None if over.plan.stops else over.ledger,  # who was stopped may act late
        cancelled=frozenset(over.people.cancelled),
    )


@dataclass(frozen=True)
class Sort:
    """A sort of programs: where its agent is, who the people are, and what must be true in the end."""

    agents: str = program.fn.__module__
    people: type[People] = People
    check: Callable[[Over, Batch], Findings] = _check


ORDINARY = Sort()


@asynccontextmanager
async def _declared(app: hf.Holdfast, lane: Lane | None) -> AsyncIterator[Lane | None]:
    """Before there are workers: they know of what is declared within a second."""
    if lane is not None:
        await app.queue(lane.name, concurrency=lane.concurrency, per_key=lane.per_key)
    yield lane


async def _run_batch(
    batch: Batch, folder: Path, forkserver: ForkServer, trees: Sequence[Node], plan: Plan, sort: Sort
) -> None:
    chance = random.Random(f"batch {batch.seed}")
    world, ledger = folder / "world", Ledger(folder / "ledger.jsonl")
    scene = Scene(folder, forkserver, agents=sort.agents, settings=settings(plan.lease_s))
    scene.env |= {WORLD: str(world), LEDGER: str(ledger.path)}
    url = scene.url
    async with (
        hf.connect(url, settings=hf.Settings(**settings(plan.lease_s))) as app,
        _declared(app, plan.lane) as lane,
        Workers(scene, lease_s=plan.lease_s) as workers,
    ):
        people = sort.people(app, trees, workers, chance)
        people.is_calm = not plan.kills
        chance_of_death = random.Random(f"torment {batch.seed}")
        torments = (
            torment(workers, chance_of_death, stops=plan.stops, aims=plan.aims, retires=plan.retires)
            if plan.kills
            else asyncio.sleep(plan.most_s)
        )
        tormentor = asyncio.create_task(torments)
        began = monotonic_us()
        try:
            for n, tree in enumerate(trees):
                more: dict[str, Any] = {"delay": chance.choice([None, None, None, 0.05, 0.3])}
                if lane is not None:
                    more |= {"queue": lane.name, "queue_key": f"k{n % lane.keys}"}
                run = await app.start(program(tree, 0), id=tree.at, priority=chance.randint(-1, 1), **more)
                people.disturb(run.id, pauses=plan.pauses, cancels=plan.cancels)
                await people.meet(run.id, tree)
                await asyncio.sleep(chance.random() * 2 * _APART_S)
            is_over = False
            while not is_over and monotonic_us() - began < (plan.most_s + _CALM_S) * 1e6:
                await asyncio.sleep(_LOOK_S)
                is_over = await people.look_around()
                if monotonic_us() - began > plan.most_s * 1e6 and not tormentor.done():
                    log.info("%s: calm from here on", batch.seed)
                    tormentor.cancel()
            if not is_over:
                await workers.tell_all()
        finally:
            tormentor.cancel()
            await asyncio.wait({tormentor})
            await people.leave()
        if not tormentor.cancelled() and tormentor.exception() is not None:
            raise AssertionError("the tormentor failed") from tormentor.exception()
        await _too_late(app, trees, people.problems)
        await workers.terminate()
    batch.kills, batch.stops, batch.aimed = workers.kills, workers.stops, workers.aimed
    batch.retired = workers.retired
    batch.signals, batch.answers, batch.settled = people.signals, people.answers, people.settled
    batch.pauses, batch.cancels = people.pauses, len(people.cancelled)
    batch.processes = workers.all
    batch.seconds = (monotonic_us() - began) / 1e6
    batch.problems += people.problems + workers.problems
    left = look(url, world)
    batch.runs = len(left.runs)
    for told in left.runs.values():
        batch.taken_over.update(note["proof"] for note in map(note_of, told.records) if note.get("lost"))
    batch.doubts = sum(r.kind == Kind.settled for told in left.runs.values() for r in told.records)
    found = sort.check(Over(left, scene, trees, plan, people, workers, ledger), batch)
    for run_id, problems in found.wrong.items():
        batch.problems += [f"{run_id or 'the store'}: {each}" for each in problems]
        if run_id is not None:
            batch.stories.append("\n".join([*problems, story(left.runs[run_id]), *found.more.get(run_id, ())]))
    if workers.problems or not is_over:
        batch.stories.insert(0, "log of the workers:\n" + scene.log.read_text()[-20_000:])
    batch.late = found.late


async def _too_late(app: hf.Holdfast, trees: Sequence[Node], problems: list[str]) -> None:
    """What is over takes no mail."""
    for tree in trees[:5]:
        row = await app._store.run(RunId(tree.at))
        if row is None or not row.status.is_final:
            continue
        try:
            await app.get(tree.at).send("s0", 1)
            problems.append(f"run {tree.at} is over, and a signal was accepted")
        except hf.RunFinished:
            pass


def run_batch(
    folder: Path, forkserver: ForkServer, trees: Sequence[Node], *, seed: str, plan: Plan, sort: Sort = ORDINARY
) -> Batch:
    """Run programs to their ends while workers die, and compare everything with what the programs say."""
    (folder / "world").mkdir(parents=True)
    batch = Batch(seed, len(trees))
    before = os.environ.get(WORLD)
    os.environ[WORLD] = str(folder / "world")  # people look into the same world
    try:
        asyncio.run(_run_batch(batch, folder, forkserver, trees, plan, sort))
    finally:
        if before is None:
            del os.environ[WORLD]
        else:
            os.environ[WORLD] = before
    log.info("%s", batch)
    return batch
