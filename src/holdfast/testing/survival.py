"""Kill an agent at every crash point, resume it, and compare with a run that nobody killed.

First the agent runs undisturbed, and notes each crash point that it passes (`holdfast.faults`). Then, for each of them,
it lives again in a fresh store: killed there with SIGKILL, resumed by a new process until it ends. Recovery passes
points of its own (a claim, a settlement); a life is killed there a second time. Lives are forked from processes that
have Holdfast imported, two or more at a time, each with a folder, a store, a ledger and an outside world of its own.
"""

from __future__ import annotations

import fnmatch
import json
import os
import random
import shlex
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import faults
from holdfast.clock import monotonic_us
from holdfast.codec import decode_error
from holdfast.errors import HoldfastError, UsageError
from holdfast.model import Kind, Record, RunRow, Status
from holdfast.testing.invariants import check_history
from holdfast.testing.ledger import VARIABLE, Ledger
from holdfast.testing.lives import Attempt, Failure, passed_points, repeated_effects, report, story
from holdfast.testing.processes import Lane, Order
from holdfast.testing.reading import read_row, read_run, read_text
from holdfast.verbs.child import Call

#: The folder of a life, for agents that keep their outside world in files.
FOLDER = "HOLDFAST_TEST_FOLDER"

_LIVES_AT_ONCE = min(4, os.cpu_count() or 1)
_RESUMES = 12
_RUN_ID = "survivor"
#: A run that needs a person or a signal, or whose child does.
_PARKED = frozenset({Status.in_doubt, Status.waiting, Status.paused})
#: Verdicts after which an agent may rightly come to another end than without a crash.
_OTHER_ENDS = frozenset({"undo", "fail", "failed"})


@dataclass(frozen=True, slots=True)
class Life:
    """One run that was killed (or not) and went on to its end: what `check=` gets to see.

    Its folder, store and ledger are gone once `assert_survives` has returned.

    Example: `def check(life): assert life.status == "done" and life.ledger.repeated() == []`
    """

    deaths: tuple[str, ...]  #: the crash points where its processes were killed, as `name@n`
    status: Status
    result: Any  #: what the agent returned, if it is done
    error: BaseException | None  #: what it raised, if it failed
    settlements: tuple[str, ...]  #: how effects in doubt were settled, as `key: verdict by whom`
    ledger: Ledger
    run_id: str
    url: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Survival:
    """What `assert_survives` did.

    Example: `print(survival)`
    """

    agent: str
    points: tuple[str, ...]  #: the crash points of the undisturbed run, as `name@n`
    lives: tuple[Life, ...]
    processes: int
    seconds: float

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(len(life.deaths) for life in self.lives)

    @property
    def killed_at(self) -> frozenset[str]:
        """The names of the crash points where a process was killed."""
        return frozenset(death.partition("@")[0] for life in self.lives for death in life.deaths)

    @property
    def settlements(self) -> Mapping[str, int]:
        """How effects in doubt were settled, and how often: `{"landed by verify": 3}`."""
        return Counter(each.partition(": ")[2] for life in self.lives for each in life.settlements)

    def __str__(self) -> str:
        settled = ", ".join(f"{times}× {what}" for what, times in sorted(self.settlements.items())) or "none"
        return (
            f"{self.agent}: {len(self.points)} crash points, {len(self.lives)} lives, {self.kills} kills, "
            f"{self.processes} processes, {self.seconds:.1f} s; in doubt and settled: {settled}"
        )


def assert_survives(
    call: Call[Any],
    *,
    setup: Callable[[Path], Mapping[str, str] | None] | None = None,
    drive: Callable[[str, str], object] | None = None,
    points: Iterable[str] | None = None,
    url: str | None = None,
    timeout: float = 30.0,
    check: Callable[[Life], object] | None = None,
    same_end: bool = True,
    rounds: int = 0,
    seed: int = 0,
) -> Survival:
    """Kill the agent at every crash point it passes, resume it, and fail unless it always comes to the same end.

    The agent must be in a file that can be imported. For every life, `setup(folder)` makes a fresh outside world and
    returns environment variables for its processes ($HOLDFAST_TEST_FOLDER and $HOLDFAST_LEDGER are set anyway).
    `drive(url, run_id)` is called when the run is parked, to do what a person would (see `resolve`); without it a run
    that ends in doubt is accepted as such. `points` picks crash points by name or pattern (`effect.*`,
    `step.after_body@2`). `url` makes all lives share one store, each process caring for its own run. `timeout` is for
    one process, in seconds.

    After each life: the same result or error as without a crash (unless an effect's rule was to undo or to fail, or
    `same_end` is False, for agents that never end the same way twice), no effect repeated that nobody allowed to be,
    every invariant of `check_history`, and `check(life)` raises no AssertionError. `rounds` adds that many lives with
    several kills each, at points chosen by `seed`.

    Example:
        def test_the_newsletter_survives() -> None:
            print(assert_survives(newsletter("tides")))
    """
    began = monotonic_us()
    with tempfile.TemporaryDirectory(prefix="holdfast-survival-") as folder:
        sweep = _Sweep(call, Path(folder), setup, drive, url, timeout, check, same_end)
        try:
            passed = sweep.undisturbed(tuple(points) if points is not None else None)
            sweep.kill_everywhere(passed)
            sweep.kill_at_random(passed, rounds, seed)
        finally:
            sweep.close()
        seconds = (monotonic_us() - began) / 1e6
        if sweep.failures:
            raise AssertionError(report(call.agent.name, len(sweep.lives), sweep.failures))
    return Survival(call.agent.name, tuple(passed), tuple(sweep.lives), sweep.processes, seconds)


class _Sweep:
    def __init__(
        self,
        call: Call[Any],
        folder: Path,
        setup: Callable[[Path], Mapping[str, str] | None] | None,
        drive: Callable[[str, str], object] | None,
        url: str | None,
        timeout_s: float,
        check: Callable[[Life], object] | None,
        same_end: bool,
    ) -> None:
        self._same_end = same_end
        self._call = call
        self._file = _file_of(call)
        self._text = call.input.text
        self._folder = folder
        self._setup = setup
        self._drive = drive
        self._url = url
        self._timeout_s = timeout_s
        self._check = check
        self._lanes: list[Lane] = []
        self._free: list[Lane] = []
        self._lock = threading.Lock()
        self._expected: tuple[Status, str] | None = None
        self._base_names: frozenset[str] = frozenset()
        self._seen_pairs: set[tuple[str, ...]] = set()
        self.lives: list[Life] = []
        self.failures: list[Failure] = []
        self.processes = 0
        self._begun = 0
        self._wanted = 1

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")

    # the two phases

    def undisturbed(self, wanted: Sequence[str] | None) -> list[str]:
        """Run without a crash; the crash points that it passed and that are wanted, as `name@n`."""
        attempt, life, _ = self._live(())
        if life is None or attempt.problems:
            problems = "\n  ".join(attempt.problems)
            raise AssertionError(
                f"{self._call.agent.name} does not come to an end even without a crash:\n  {problems}\n{story(attempt)}"
            )
        passed = passed_points(attempt.traces)
        self._base_names = frozenset(each.partition("@")[0] for each in passed)
        if wanted is None:
            return passed
        unknown = [w for w in wanted if not fnmatch.filter(faults.POINTS, w.partition("@")[0])]
        if unknown:
            raise UsageError(f"points=: there is no crash point {', '.join(unknown)}; see holdfast.faults.POINTS.")
        return [
            each
            for each in passed
            if any(fnmatch.fnmatch(each, w) or fnmatch.fnmatch(each.partition("@")[0], w) for w in wanted)
        ]

    def kill_everywhere(self, passed: Sequence[str]) -> None:
        """Each point once; then the points that only recovery passes, by a second kill."""
        plans: list[tuple[str, ...]] = [(each,) for each in passed]
        while plans:
            self._wanted += len(plans)
            with ThreadPoolExecutor(_LIVES_AT_ONCE) as threads:
                further = list(threads.map(self._one, plans))
            plans = [plan for plans_of_one in further for plan in plans_of_one]

    def kill_at_random(self, passed: Sequence[str], rounds: int, seed: int) -> None:
        """Lives with two to five deaths, at points of the run and of its recovery."""
        chance = random.Random(seed)  # noqa: S311
        known = sorted({*passed, *(death for life in self.lives for death in life.deaths)})
        plans = [tuple(chance.choice(known) for _ in range(chance.randint(2, 5))) for _ in range(rounds)]
        self._wanted += len(plans)
        with ThreadPoolExecutor(_LIVES_AT_ONCE) as threads:
            list(threads.map(self._one, plans))

    def _one(self, plan: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Live a planned life; the plans for the points that its recovery passed, and no life before it."""
        attempt, life, row = self._live(plan)
        problems = attempt.problems
        if life is not None:
            problems += self._compare(life, row)
            with self._lock:
                self.lives.append(life)
        if problems:
            told = story(attempt)
            with self._lock:
                self.failures.append(Failure(tuple(attempt.deaths), problems, told, self._command(attempt)))
        if len(plan) > 1 or len(attempt.deaths) < len(plan):
            return []
        further = []
        for each in passed_points(attempt.traces[1:2]):
            name = each.partition("@")[0]
            pair = (plan[0].partition("@")[0], each) if name != "claim.after_commit" else (each,)
            with self._lock:
                if name not in self._base_names and pair not in self._seen_pairs:
                    self._seen_pairs.add(pair)
                    further.append((*plan, each))
        return further

    # one life

    def _live(self, plan: tuple[str, ...]) -> tuple[Attempt, Life | None, RunRow | None]:
        attempt = self._born(plan)
        lane = self._lane()
        try:
            row = self._go_on(attempt, lane)
        finally:
            with self._lock:
                self._free.append(lane)
        self._progress()
        if row is None:
            return attempt, None, None
        attempt.problems += check_history(attempt.url, attempt.ledger)
        attempt.problems += repeated_effects(attempt)
        try:
            return attempt, self._look_back(attempt), row
        except HoldfastError as error:
            attempt.problems.append(f"its end cannot be read: {error}")
            return attempt, None, row

    def _born(self, plan: tuple[str, ...]) -> Attempt:
        with self._lock:
            number, self._begun = self._begun, self._begun + 1
        folder = self._folder / f"life-{number}"
        folder.mkdir()
        env = {VARIABLE: str(folder / "ledger.jsonl"), FOLDER: str(folder)}
        if self._setup is not None:
            env |= self._setup(folder) or {}
        run_id = _RUN_ID if self._url is None else f"{_RUN_ID}-{os.getpid()}-{number}"
        url = self._url or f"sqlite:///{folder / 'store.db'}"
        if self._expected is None:
            self._expected_id = run_id
        return Attempt(plan, folder, run_id, url, env)

    def _lane(self) -> Lane:
        with self._lock:
            if self._free:
                return self._free.pop()
        lane = Lane()
        with self._lock:
            self._lanes.append(lane)
        return lane

    def _go_on(self, attempt: Attempt, lane: Lane) -> RunRow | None:
        """Processes until the run has come to its end, or nothing can bring it there."""
        for number in range(_RESUMES):
            fault = attempt.plan[number] if number < len(attempt.plan) else ""
            trace = attempt.folder / f"trace-{number}"
            attempt.traces.append(trace)
            env = attempt.env | {"HOLDFAST_FAULT_TRACE": str(trace)}
            name, _, count = fault.partition("@")
            env["HOLDFAST_FAULT"] = f"{name}:kill@{count}" if fault else ""
            order = Order(
                self._file,
                self._call.agent.name,
                attempt.run_id,
                attempt.url,
                self._text,
                env,
                attempt.log,
                alone=self._url is not None,
            )
            with self._lock:
                self.processes += 1
            try:
                code = lane.run(order, self._timeout_s)
            except TimeoutError:
                attempt.problems.append(f"process {number + 1} did not end within {self._timeout_s:g} s")
                return None
            if code == -9 and fault:
                attempt.deaths.append(fault)
                continue
            if code:
                attempt.problems.append(f"process {number + 1} ended with code {code}")
                return None
            row = read_row(attempt.url, attempt.run_id)
            if row is None:
                attempt.problems.append("the process ended well, and the run is not in the store")
                return None
            if row.status.is_final or not self._help(attempt, row):
                return row
        attempt.problems.append(f"it is not over after {_RESUMES} processes")
        return None

    def _help(self, attempt: Attempt, row: RunRow) -> bool:
        if row.status in _PARKED and self._drive is None:
            return False
        if self._drive is None or attempt.driven > _RESUMES:
            attempt.problems.append(f"the run is {row.status}: {json.dumps(dict(row.reason or {}))[:1000]}")
            return False
        attempt.driven += 1
        self._drive(attempt.url, attempt.run_id)
        return True

    def _look_back(self, attempt: Attempt) -> Life:
        row, records = read_run(attempt.url, attempt.run_id)
        end = next((r for r in reversed(records) if r.kind == Kind.finished), None) if row.status.is_final else None
        text = read_text(attempt.url, attempt.run_id, end.payload) if end is not None else ""
        result, error, said = None, None, ""
        if row.status is Status.done:
            result, said = self._call.agent.coder.loads(text, what="the result"), text
        elif row.status is Status.failed:
            error = decode_error(text, ())
            said = f"{type(error).__name__}: {error}"
        said = said.replace(attempt.run_id, "RUN")
        with self._lock:
            if self._expected is None:
                self._expected = (row.status, said)
        if self._same_end and (row.status, said) != self._expected:
            self._differs(attempt, row, records, said)
        settlements = tuple(
            f"{r.key}: {note['verdict']} by {note['by']}"
            for r in records
            if r.kind == Kind.settled
            for note in (json.loads(r.payload or "{}"),)
        )
        deaths = tuple(attempt.deaths)
        return Life(
            deaths, row.status, result, error, settlements, attempt.ledger, attempt.run_id, attempt.url, attempt.folder
        )

    def _differs(self, attempt: Attempt, row: RunRow, records: Sequence[Record], said: str) -> None:
        assert self._expected is not None
        if row.status in _PARKED and self._drive is None:
            return
        verdicts = {json.loads(r.payload or "{}").get("verdict") for r in records if r.kind == Kind.settled}
        if verdicts & _OTHER_ENDS:
            return
        status, expected = self._expected
        attempt.problems.append(
            f"it ended as {row.status} with {said[:500]}; without a crash as {status} with {expected[:500]}. "
            "(An agent whose result is never the same twice needs same_end=False and check=.)"
        )

    def _compare(self, life: Life, row: RunRow | None) -> list[str]:
        if self._check is None or row is None:
            return []
        try:
            self._check(life)
        except AssertionError as error:
            return [f"check: {str(error) or 'an assertion failed'}"]
        return []

    def _command(self, attempt: Attempt) -> str:
        variables = {n: v for n, v in attempt.env.items() if n not in (VARIABLE, FOLDER)}
        variables |= {VARIABLE: "again/ledger.jsonl", FOLDER: "again"}
        shown = " ".join(f"{n}={shlex.quote(v)}" for n, v in variables.items())
        module = f"python -m holdfast.testing.child {shlex.quote(self._file)} {self._call.agent.name} r again/store.db"
        text = shlex.quote(self._text if len(self._text) < 2000 else "… the input …")
        faults_ = [f"HOLDFAST_FAULT={p.partition('@')[0]}:kill@{p.partition('@')[2]} " for p in attempt.plan]
        lines = [f"echo {text} | {shown} {fault}{module}" for fault in [*faults_, ""]]
        return "\n".join(["mkdir again", *lines])

    def _progress(self) -> None:
        if not sys.stderr.isatty():
            return
        with self._lock:
            done, wanted, wrong = len(self.lives), self._wanted, len(self.failures)
            broken = f", {wrong} went wrong" if wrong else ""
            sys.stderr.write(f"\r\x1b[K{self._call.agent.name}: {done} of {wanted} lives{broken}")
            sys.stderr.flush()


def _file_of(call: Call[Any]) -> str:
    if not isinstance(call, Call):
        raise UsageError(f"assert_survives() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
    file = call.agent.fn.__code__.co_filename
    if not Path(file).is_file():
        raise UsageError(f"Agent {call.agent.name} is not in a file ({file}), so another process cannot load it.")
    return str(Path(file).resolve())
