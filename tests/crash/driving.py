"""Runs that wait are lived again and again, and each time a process dies at another crash point.

    python -m tests.crash.driving

forks a process for each order it reads: a worker that has the agents of `waiting`, or a client that does one of the
`errands` and ends. Holdfast is imported once. The test itself is the person outside: it sends, answers, pauses and
cancels, says it again whenever a worker was replaced, and looks at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import holdfast as hf
from holdfast import faults
from holdfast.store import open_store
from holdfast.testing import Ledger, check_history
from holdfast.testing.child import agents_of
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.lives import Attempt, passed_points, repeated_effects, story
from holdfast.testing.processes import environment
from holdfast.testing.survival import FOLDER
from tests.crash import errands, waiting
from tests.crash.agents import World

SETTINGS = hf.Settings(sweep_s=0.1)
RUN = "survivor"
LONGEST_S = 30.0
AT_ONCE = 6
_POLL_S = 0.02


# in the process that forks


async def _work(url: str) -> None:
    async with hf.connect(url, agents=agents_of(waiting).values(), settings=SETTINGS) as app:
        await app.work()


async def _run_errand(url: str, name: str) -> None:
    async with hf.connect(url) as app:
        await errands.ERRANDS[name](app)


def _obey(order: dict[str, Any]) -> None:
    """In the forked process: become what the order says, and never return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        faults._faults = faults.Faults(order["fault"], order["trace"])  # read before the fork, for nobody
        asyncio.run(_run_errand(order["url"], order["errand"]) if order["errand"] else _work(order["url"]))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _warm_up() -> None:
    """What every process would do first, done once."""
    open_store("warm.db", settings=hf.Settings())  # loads the driver and the queries, opens nothing
    for agent in agents_of(waiting).values():
        assert agent.code
        assert agent.source
        assert agent.coder is not None
    for module in ("schedules", "triggers"):
        importlib.import_module(f"holdfast.worker.{module}")


def serve() -> None:
    _warm_up()
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    numbers: dict[int, int] = {}
    unread = b""
    while True:
        ready, _, _ = select.select([0, heard], [], [])
        if heard in ready:
            os.read(heard, 4096)
        if 0 in ready:
            some = os.read(0, 65536)
            if not some:  # the test is gone, perhaps in the middle of a life
                for pid in numbers:
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, unread = (unread + some).split(b"\n")
            for order in map(json.loads, lines):
                pid = os.fork()
                if not pid:
                    _obey(order)
                numbers[pid] = order["number"]
                os.write(1, json.dumps({"number": order["number"], "pid": pid}).encode() + b"\n")
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(ended[1])
                os.write(1, json.dumps({"number": numbers.pop(ended[0]), "code": code}).encode() + b"\n")


# in the test


class Process:
    """One that was forked: its pid, and how it ended, when that is known."""

    def __init__(self) -> None:
        self.pid: Future[int] = Future()
        self.code: Future[int] = Future()

    async def ended(self) -> int:
        return await asyncio.shield(asyncio.wrap_future(self.code))

    async def kill(self) -> None:
        """SIGKILL, and return when it is dead; nothing, if it is."""
        pid = await asyncio.shield(asyncio.wrap_future(self.pid))
        if not self.code.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self.ended()


class Forks:
    """The process that forks the others, as the test sees it."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.driving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            bufsize=0,
        )
        self._processes: list[Process] = []
        self._reader = threading.Thread(target=self._read, name="forks", daemon=True)
        self._reader.start()

    def start(self, attempt: Attempt, *, errand: str = "", fault: str = "", trace: Path | None = None) -> Process:
        """Fork a worker, or a client with an errand; `fault` is a crash point, as `name@n`."""
        name, _, count = fault.partition("@")
        order = {
            "number": len(self._processes),
            "errand": errand,
            "url": attempt.url,
            "log": str(attempt.log),
            "env": attempt.env,
            "fault": f"{name}:kill@{count}" if fault else "",
            "trace": str(trace or ""),
        }
        process = Process()
        self._processes.append(process)
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        return process

    def _read(self) -> None:
        assert self._server.stdout is not None
        unread = b""
        while some := os.read(self._server.stdout.fileno(), 65536):
            *lines, unread = (unread + some).split(b"\n")
            for said in map(json.loads, lines):
                process = self._processes[said["number"]]
                if "pid" in said:
                    process.pid.set_result(said["pid"])
                else:
                    process.code.set_result(said["code"])

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(10)
        self._reader.join(10)
        self._server.stdout.close()

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


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
    end: object = None

    @property
    def killed_at(self) -> frozenset[str]:
        return frozenset(death.partition("@")[0] for deaths in self.deaths for death in deaths)

    @property
    def kills(self) -> int:
        return sum(map(len, self.deaths))

    def raise_problems(self) -> None:
        shown = "\n\n".join(self.problems[:3])
        rest = "".join(f"\n{each.partition(chr(10))[0]}" for each in self.problems[3:])
        assert not self.problems, f"{len(self.problems)} of {len(self.deaths)} lives went wrong.\n{shown}{rest}"


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
    """A life without a fault; then one for each plan that `choose` makes of the points it passed, to the same end."""
    sweep = Sweep()
    first = _born(folder / "undisturbed", ())
    sweep.end = await live(first, ())
    assert not first.problems, f"without a crash: {first.problems}\n{story(first)}"
    sweep.points = tuple(passed_points(first.traces))
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, plan: tuple[str, ...]) -> None:
        async with at_once:
            attempt = _born(folder / f"life-{number}", plan)
            try:
                end = await live(attempt, plan)
                if end != sweep.end:
                    attempt.problems.append(f"it came to {end}; without a crash to {sweep.end}")
            except Exception:
                attempt.problems.append(traceback.format_exc(limit=-4))
            sweep.deaths.append(tuple(attempt.deaths))
            if attempt.problems:
                told = await asyncio.to_thread(story, attempt)
                sweep.problems.append(f"killed at {plan} (died at {attempt.deaths}): {attempt.problems}\n{told}")

    await asyncio.gather(*(one(number, plan) for number, plan in enumerate(choose(list(sweep.points)))))
    return sweep


def _born(folder: Path, plan: tuple[str, ...]) -> Attempt:
    folder.mkdir(parents=True)
    env = {VARIABLE: str(folder / "ledger.jsonl"), FOLDER: str(folder)}
    return Attempt(plan, folder, RUN, f"sqlite:///{folder / 'store.db'}", env)


@contextlib.asynccontextmanager
async def workers(forks: Forks, attempt: Attempt, plan: Sequence[str], driver: Driver) -> AsyncIterator[None]:
    """Workers one after the other, each killed where the plan says; the last one stays until this is left."""
    running: list[Process] = []

    async def keep() -> None:
        for number in range(len(plan) + 1):
            fault = plan[number] if number < len(plan) else ""
            attempt.traces.append(attempt.folder / f"trace-{number}")
            process = forks.start(attempt, fault=fault, trace=attempt.traces[-1])
            running[:] = [process]
            if number:
                await driver.say_all_again()
            code = await process.ended()
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
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
        for process in running:
            await process.kill()


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
class Errand:
    """What a client does in a process that is killed, and repeats; around it, what makes it a story with an end."""

    name: str  #: in `errands`
    call: hf.Call[Any] | None
    ready: Sequence[Act]  #: until the client may begin
    acts: Sequence[Act]  #: after the client has done it
    check: Callable[[World], object]
    prepare: Act | None = None
    is_same: bool = True  #: must what comes of it be the same, if it was repeated?


async def live_with_clients(
    forks: Forks, errand: Errand, attempt: Attempt, plan: tuple[str, ...], *, is_alone: bool
) -> object:
    """One life in which clients die. `is_alone`: so did the worker, before the first client came."""
    async with hf.connect(attempt.url) as app:
        driver = Driver(attempt, app)
        if errand.prepare is not None:
            await errand.prepare(driver)
        first = forks.start(attempt)
        second: Process | None = None
        try:
            async with asyncio.timeout(LONGEST_S):
                if errand.call is not None:
                    await app.start(errand.call, id=RUN)
                for act in errand.ready:
                    await act(driver)
                if is_alone:
                    await first.kill()
                for number, fault in enumerate([*plan, ""]):
                    attempt.traces.append(attempt.folder / f"trace-{number}")
                    code = await forks.start(attempt, errand=errand.name, fault=fault, trace=attempt.traces[-1]).ended()
                    if fault and code == -9:
                        attempt.deaths.append(fault)
                    elif code:
                        attempt.problems.append(f"client {number + 1} ended with {code}")
                if is_alone:
                    second = forks.start(attempt)
                for act in errand.acts:
                    await act(driver)
                await driver.until(lambda: all_over(app), "every run is over")
        finally:
            for process in (first, second):
                if process is not None:
                    await process.kill()
        end = await look_back(driver, errand.check)
        return end if errand.is_same else None


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
        return await run.result(timeout=5)
    except (hf.RunError, hf.RunNotFound) as error:
        return f"{type(error).__name__}: {error}".replace(run._store.url, "URL")


if __name__ == "__main__":
    serve()
