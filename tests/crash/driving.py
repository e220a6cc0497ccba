"""Runs that wait are lived again and again, and each time a process dies at another crash point.

It is a worker that has the agents of `waiting`, or a client that does one of the `client` and ends. The test itself is
the person outside: it sends, answers, pauses and cancels, says it again whenever a worker was replaced, and looks at
the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import Ledger, check_history
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.lives import Attempt, Trace, passages, repeated_effects, story
from holdfast.testing.survival import FOLDER
from tests.crash import client, waiting
from tests.crash.agents import World
from tests.forkserver import Forked, ForkServer
from tests.workers import work

RUN = "survivor"
LONGEST_S = 60.0
AT_ONCE = 6
TRIES = 3
_POLL_S = 0.02


def run_errand(url: str, name: str) -> None:
    """Be a client that does something and ends."""

    async def at_work() -> None:
        async with hf.connect(url) as app:
            await client.ERRANDS[name](app)

    asyncio.run(at_work())


class Forks:
    """Processes of a life: workers that have the agents of `waiting`, and clients with errands."""

    def __init__(self, forkserver: ForkServer) -> None:
        self._forkserver = forkserver

    def worker(self, attempt: Attempt, **options: Any) -> Forked:
        agents = waiting.__name__
        return self._start(work, attempt, imports=[agents], agents=agents, settings={"sweep_s": 0.1}, **options)

    def client(self, attempt: Attempt, errand: str, **options: Any) -> Forked:
        return self._start(run_errand, attempt, name=errand, **options)

    def _start(self, call: Callable[..., object], attempt: Attempt, *, fault: str = "", **options: Any) -> Forked:
        """`fault` is a crash point, as `name@n`."""
        name, _, count = fault.partition("@")
        fault = f"{name}:kill@{count}" if fault else ""
        return self._forkserver.start(call, log=attempt.log, env=attempt.env, fault=fault, url=attempt.url, **options)


class Driver:
    """The person outside, during one life: what `Act`s get to see."""

    def __init__(self, attempt: Attempt, app: hf.Holdfast) -> None:
        self.attempt = attempt
        self.app = app
        self.run: hf.Run[Any] = app.get(RUN)
        self.seen: list[object] = []  #: what the person was told; it belongs to how a life ends
        self.said: list[Callable[[], Awaitable[object]]] = []  #: to be said again when a worker was replaced

    @property
    def world(self) -> World:
        return World(self.attempt.folder)

    async def say(
        self, act: Callable[[], Awaitable[object]], again: Callable[[], Awaitable[object]] | None = None
    ) -> object:
        """Do something that is repeated, and must change nothing then, whenever a worker was replaced."""
        result = await act()
        self.said.append(again or act)
        return result

    async def say_all_again(self) -> None:
        for act in list(self.said):
            await act()

    async def info(self, run_id: str = RUN) -> hf.RunInfo | None:
        try:
            return await self.app.get(run_id).info()
        except hf.RunNotFound:
            return None

    async def until(self, is_so: Callable[[], Awaitable[Any]], what: str) -> Any:
        try:
            async with asyncio.timeout(LONGEST_S / 2):
                while not (found := await is_so()):  # noqa: ASYNC110 - another process changes it
                    await asyncio.sleep(_POLL_S)
                return found
        except TimeoutError:
            runs = [f"{run.id} {run.agent} {run.status} {run.reason}" for run in await self.app.runs(limit=100)]
            raise AssertionError(f"{what}: it did not come to that. Runs: {runs}") from None


Act = Callable[[Driver], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """A run, what a person does to it, and what must have happened in the end."""

    call: hf.Call[Any]
    acts: Sequence[Act]
    check: Callable[[World], object]
    prepare: Act | None = None  #: before the run is started


@dataclass(slots=True)
class Sweep:
    """What became of the lives of a case."""

    points: tuple[str, ...] = ()
    deaths: list[tuple[str, ...]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  #: points that no life came by any more
    end: object = None

    @property
    def killed_at(self) -> frozenset[str]:
        return frozenset(death.partition("@")[0] for deaths in self.deaths for death in deaths)

    @property
    def kills(self) -> int:
        return sum(map(len, self.deaths))

    def raise_problems(self) -> None:
        """Of five points one may be missed: whether a run parks, for one, depends on how fast the others are."""
        shown = "\n\n".join(self.problems[:3])
        rest = "".join(f"\n{each.partition(chr(10))[0]}" for each in self.problems[3:])
        assert not self.problems, f"{len(self.problems)} of {len(self.deaths)} lives went wrong.\n{shown}{rest}"
        assert len(self.missed) <= len(self.deaths) // 5, f"nobody was killed at {self.missed} in {TRIES} lives each"


def few_of_each(points: Sequence[str], most: int) -> list[str]:
    """The first and the last occurrence of each point, and some between, evenly."""
    times = Counter(each.partition("@")[0] for each in points)

    def is_taken(each: str) -> bool:
        name, _, n = each.partition("@")
        last, picks = times[name], min(most, times[name])
        taken = {1 + round(k * (last - 1) / max(1, picks - 1)) for k in range(picks)} if picks > 1 else {last}
        return int(n) in taken

    return [each for each in points if is_taken(each)]


Live = Callable[[Attempt, tuple[str, ...]], Awaitable[object]]


async def sweep_all(folder: Path, live: Live, choose: Callable[[list[str]], list[tuple[str, ...]]]) -> Sweep:
    """A life without a fault; then one for each plan that `choose` makes of the points it passed, to the same end.

    The first death of a plan must happen, or the life proves nothing: it is lived again, and in the end counted as
    missed. Where a point is passed less often than before, as commits are, the last time is taken.
    """
    sweep = Sweep()
    first = _born(folder / "undisturbed")
    sweep.end = await live(first, ())
    assert not first.problems, f"without a crash: {first.problems}\n{story(first)}"
    sweep.points = tuple(map(str, passages(first.traces)))
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, plan: tuple[str, ...]) -> None:
        tries = 0
        while True:
            tries += 1
            async with at_once:
                attempt = _born(folder / f"life-{number}-{tries}")
                try:
                    end = await live(attempt, plan)
                    if end != sweep.end:
                        attempt.problems.append(f"it came to {end}; without a crash to {sweep.end}")
                except Exception:
                    attempt.problems.append(traceback.format_exc(limit=-4))
            if attempt.deaths or attempt.problems:
                break
            if tries == TRIES:
                sweep.missed.append(plan[0])
                break
            plan = (_last_passed(attempt, plan[0]), *plan[1:])
        sweep.deaths.append(tuple(attempt.deaths))
        if attempt.problems:
            told = await asyncio.to_thread(story, attempt)
            sweep.problems.append(f"killed at {plan} (died at {attempt.deaths}): {attempt.problems}\n{told}")

    await asyncio.gather(*(one(number, plan) for number, plan in enumerate(choose(list(sweep.points)))))
    return sweep


def _last_passed(attempt: Attempt, point: str) -> str:
    """The same point, as often as this life passed it, if it was less often."""
    name, _, count = point.partition("@")
    passed = attempt.traces[0].passed().count(name)
    return f"{name}@{min(passed or int(count), int(count))}"


def _born(folder: Path) -> Attempt:
    folder.mkdir(parents=True)
    env = {VARIABLE: str(folder / "ledger.jsonl"), FOLDER: str(folder)}
    return Attempt(folder, RUN, f"sqlite:///{folder / 'store.db'}", env)


@contextlib.asynccontextmanager
async def workers(forks: Forks, attempt: Attempt, plan: Sequence[str], driver: Driver) -> AsyncIterator[None]:
    """Workers one after the other, each killed where the plan says; the last one stays until this is left."""
    running: list[Forked] = []

    async def keep() -> None:
        for number in range(len(plan) + 1):
            fault = plan[number] if number < len(plan) else ""
            attempt.traces.append(Trace(attempt.folder / f"trace-{number}"))
            process = forks.worker(attempt, fault=fault, trace=attempt.traces[-1].path)
            running[:] = [process]
            if number:
                await driver.say_all_again()
            code = await process.wait_dead(LONGEST_S * 2)
            if code != -9 or not fault:
                raise AssertionError(f"worker {number + 1} ended with {code}")
            attempt.deaths.append(fault)

    keeping = asyncio.create_task(keep())
    body = asyncio.current_task()
    keeping.add_done_callback(lambda task: None if task.cancelled() or body is None else body.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if keeping.done() and not keeping.cancelled():
            raise AssertionError(f"the workers: {keeping.exception()}") from None
        raise
    else:
        keeping.cancel()
        await asyncio.wait({keeping})
        running[0].send(signal.SIGTERM)  # what it passes after the end, it passes now
        if await running[0].wait_dead(LONGEST_S) == -9:
            attempt.deaths.append(plan[len(attempt.deaths)])
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
        for process in running:
            process.kill()


async def live_with_workers(forks: Forks, case: Case, attempt: Attempt, plan: tuple[str, ...]) -> object:
    """One life of a case, in which workers die; how it ended."""
    async with hf.connect(attempt.url) as app:
        driver = Driver(attempt, app)
        if case.prepare is not None:
            await case.prepare(driver)
        async with asyncio.timeout(LONGEST_S), workers(forks, attempt, plan, driver):
            await app.start(case.call, id=RUN)
            for act in case.acts:
                await act(driver)
            await driver.until(lambda: all_over(app), "every run is over")
        return await look_back(driver, case.check)


@dataclass(frozen=True, slots=True)
class ClientCase:
    """What a client does in a process that is killed, and repeats; around it, what makes it a story with an end."""

    name: str  #: in `client`
    call: hf.Call[Any] | None
    ready: Sequence[Act]  #: until the client may begin
    acts: Sequence[Act]  #: after the client has done it
    check: Callable[[World], object]
    prepare: Act | None = None
    is_same: bool = True  #: must what comes of it be the same, if it was repeated?


async def live_with_clients(
    forks: Forks, case: ClientCase, attempt: Attempt, plan: tuple[str, ...], *, is_alone: bool
) -> object:
    """One life in which clients die. `is_alone`: so did the worker, before the first client came."""
    async with hf.connect(attempt.url) as app:
        driver = Driver(attempt, app)
        if case.prepare is not None:
            await case.prepare(driver)
        first = forks.worker(attempt)
        second: Forked | None = None
        try:
            async with asyncio.timeout(LONGEST_S):
                if case.call is not None:
                    await app.start(case.call, id=RUN)
                for act in case.ready:
                    await act(driver)
                if is_alone:
                    first.kill()
                for number, fault in enumerate([*plan, ""]):
                    attempt.traces.append(Trace(attempt.folder / f"trace-{number}"))
                    client = forks.client(attempt, case.name, fault=fault, trace=attempt.traces[-1].path)
                    code = await client.wait_dead(LONGEST_S)
                    if fault and code == -9:
                        attempt.deaths.append(fault)
                    elif code:
                        attempt.problems.append(f"client {number + 1} ended with {code}")
                if is_alone:
                    second = forks.worker(attempt)
                for act in case.acts:
                    await act(driver)
                await driver.until(lambda: all_over(app), "every run is over")
        finally:
            for process in (first, second):
                if process is not None:
                    process.kill()
        end = await look_back(driver, case.check)
        return end if case.is_same else None


async def all_over(app: hf.Holdfast) -> bool:
    return all(run.status.is_final for run in await app.runs(limit=1000))


async def look_back(driver: Driver, check: Callable[[World], object]) -> object:
    """Everything that must hold once all is over; how it ended, to be compared."""
    attempt, app = driver.attempt, driver.app
    attempt.problems += await asyncio.to_thread(check_history, attempt.url, Ledger(attempt.env[VARIABLE]))
    attempt.problems += await asyncio.to_thread(repeated_effects, attempt)
    attempt.problems += [f"{run.id} is {run.status}" for run in await app.runs(limit=1000) if not run.status.is_final]
    attempt.problems += [f"an open question: {each.run_id} {each.prompt}" for each in await app.questions()]
    try:
        check(driver.world)
    except AssertionError as error:
        attempt.problems.append(f"check: {error}")
    ends = sorted([(run.agent, str(run.status)) for run in await app.runs(limit=1000)])
    return {"runs": ends, "result": await result_of(driver.run), "told": driver.seen}


async def result_of(run: hf.Run[Any]) -> object:
    try:
        return await run.result(timeout=60)
    except (hf.RunError, hf.RunNotFound) as error:
        return f"{type(error).__name__}: {error}".replace(run._store.url, "URL")
