"""Kill an agent at every crash point, resume it, and compare with a run that nobody killed.

First the agent runs undisturbed, and notes each crash point that it passes (`holdfast.base.faults`). Where it waits for
somebody its process ends, `drive` does what that somebody would, and the next process goes on: a life has as many
stages as it takes. Then, for each point, it lives again in a fresh store: killed with SIGKILL in the stage where the
point is passed, resumed by a new process until it ends. Recovery passes points of its own (a claim, a settlement); a
life is killed there a second time. A kill that was planned and did not happen proves nothing, so it is a failure.
Lives are forked from processes that have Holdfast imported, two or more at a time, each with a folder, a store, a
ledger and an outside world of its own.
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
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.base import faults
from holdfast.base.clock import monotonic_us
from holdfast.base.ids import new_uuid
from holdfast.codec import decode_error
from holdfast.errors import HoldfastError, UsageError
from holdfast.model import Kind, Record, RunRow, Status, reasons
from holdfast.testing.invariants import check_history
from holdfast.testing.ledger import VARIABLE, Ledger
from holdfast.testing.lives import Attempt, Death, Failure, Trace, passages, repeated_effects, report, story
from holdfast.testing.parking import open_waits, read_open_waits
from holdfast.testing.processes import Lane, Order, rest, take_lane
from holdfast.testing.reading import read_row, read_run, read_text
from holdfast.verbs.agent import Call

#: The folder of a life, for agents that keep their outside world in files.
FOLDER = "HOLDFAST_TEST_FOLDER"

_LIVES_AT_ONCE = min(4, os.cpu_count() or 1)
_PROCESSES = 100
#: So often is a kill tried that does not happen, and somebody called who changes nothing.
_TRIES = 3
_RUN_ID = "survivor"
#: Whoever dies here leaves an effect in doubt, for sure. Elsewhere it is chance how much is on disk by then, and so is
#: what recovery has to do.
_IN_THE_EFFECT = frozenset({"effect.after_intent", "effect.after_body"})
#: A run that needs a person or a signal, or whose child does.
_PARKED = frozenset({Status.in_doubt, Status.waiting, Status.paused})
#: Verdicts after which an agent may rightly come to another end than without a crash.
_OTHER_ENDS = frozenset({"undo", "fail", "failed"})


@dataclass(frozen=True, slots=True)
class Life:
    """One run that was killed and went on to its end: what `check=` gets to see.

    A life that the planned kill missed is checked as well, with no deaths; it is lived again, and not counted.

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
    `drive(url, run_id)` is called when the run is parked on a question, a signal or a doubt, whatever its deadline, to
    do what a person would (see `resolve`); what it leaves open is waited for until its deadline. Without it a killed
    run that ends in doubt is accepted as such. `points` picks crash points by name or pattern (`effect.*`,
    `step.after_body@2`). `url` makes all lives share one store, each process caring for its own run. `timeout` is for
    one process, in seconds.

    After each life: the same result or error as without a crash (unless an effect's rule was to undo or to fail, or
    `same_end` is False, for agents that never end the same way twice), no effect repeated that nobody allowed to be,
    every invariant of `check_history`, and `check(life)` raises no AssertionError. `rounds` adds that many lives with
    several kills each, at points chosen by `seed`. A kill that does not happen, because a killed life takes another way
    than the undisturbed one, is a failure as well.

    Example:
        def test_the_newsletter_survives() -> None:
            print(assert_survives(newsletter("tides")))
    """
    began = monotonic_us()
    with tempfile.TemporaryDirectory(prefix="holdfast-survival-") as folder:
        sweep = _Sweep(
            call,
            Path(folder),
            setup=setup,
            drive=drive,
            url=url,
            timeout_s=timeout,
            check=check,
            same_end=same_end,
        )
        try:
            passed = sweep.undisturbed(tuple(points) if points is not None else None)
            sweep.kill_everywhere(passed)
            sweep.kill_at_random(passed, rounds, seed)
        finally:
            sweep.close()
        seconds = (monotonic_us() - began) / 1e6
        if sweep.failures:
            raise AssertionError(report(call.agent.name, sweep.lived, sweep.failures))
    return Survival(call.agent.name, tuple(map(str, passed)), tuple(sweep.lives), sweep.processes, seconds)


Plan = tuple[Death, ...]


@dataclass(slots=True)
class _Attempt(Attempt):
    """A life with a plan of where it is killed."""

    plan: Plan = ()
    pending: list[Death] = field(default_factory=list)
    died_at: list[Death] = field(default_factory=list)
    driven: int = 0
    left: list[str] = field(default_factory=list)  #: what the last drive did not care for
    in_vain: int = 0  #: drives in a row that changed nothing

    def __post_init__(self) -> None:
        self.pending = list(self.plan)

    def next_death(self) -> Death | None:
        """Where the next process is to be killed; a stage that is over does not come again."""
        while self.pending and self.pending[0].stage is not None and self.pending[0].stage < self.driven:
            self.pending.pop(0)
        if self.pending and self.pending[0].stage in (None, self.driven):
            return self.pending[0]
        return None

    def dies(self, death: Death) -> None:
        self.pending.remove(death)
        self.died_at.append(death)
        self.deaths.append(str(death))


class _Sweep:
    def __init__(
        self,
        call: Call[Any],
        folder: Path,
        *,
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
        self._lock = threading.Lock()
        self._expected: tuple[Status, str] | None = None
        self._base_names: frozenset[str] = frozenset()
        self._seen_pairs: set[tuple[object, ...]] = set()
        self._known: set[Death] = set()
        self.lives: list[Life] = []
        self.failures: list[Failure] = []
        self.processes = 0
        self.lived = 0  #: lives that were to be killed
        self._begun = 0
        self._wanted = 1
        self._mark = new_uuid().hex[:8]  #: of its runs, in a store that other sweeps may know

    def close(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")

    # the two phases

    def undisturbed(self, wanted: Sequence[str] | None) -> list[Death]:
        """Run without a crash; the crash points that its processes passed and that are wanted."""
        unknown = [w for w in wanted or () if not fnmatch.filter(faults.POINTS, w.partition("@")[0])]
        if unknown:
            raise UsageError(f"points=: there is no crash point {', '.join(unknown)}; see holdfast.base.faults.POINTS.")
        attempt, life, row = self._live(())
        if row is not None and not row.status.is_final and not attempt.problems:
            attempt.problems.append(_unhelped(row))
        if life is None or attempt.problems:
            problems = "\n  ".join(attempt.problems)
            raise AssertionError(
                f"{self._call.agent.name} does not come to an end even without a crash:\n  {problems}\n{story(attempt)}"
            )
        passed = passages(attempt.traces)
        self._base_names = frozenset(each.name for each in passed)
        if wanted is None:
            return passed
        chosen = [d for d in passed if any(fnmatch.fnmatch(str(d), w) or fnmatch.fnmatch(d.name, w) for w in wanted)]
        if not chosen:
            raise UsageError(
                f"points=: {self._call.agent.name} passes none of {', '.join(wanted)}, so nobody would be killed. "
                f"It passes {', '.join(map(str, passed))}."
            )
        return chosen

    def kill_everywhere(self, passed: Sequence[Death]) -> None:
        """Each point once; then the points that only recovery passes, by a second kill."""
        plans: list[Plan] = [(each,) for each in passed]
        while plans:
            self._wanted += len(plans)
            with ThreadPoolExecutor(_LIVES_AT_ONCE) as threads:
                further = list(threads.map(self._kill, plans))
            plans = [plan for plans_of_one in further for plan in plans_of_one]

    def kill_at_random(self, passed: Sequence[Death], rounds: int, seed: int) -> None:
        """Lives with two to five deaths, at points of the run and of its recovery; all but the first come by chance."""
        chance = random.Random(seed)  # noqa: S311
        anywhere = {replace(each, stage=None, by_chance=True) for each in {*passed, *self._known}}
        known = sorted(anywhere, key=lambda each: (each.name, each.number, each.passing))
        plans = [
            (chance.choice(passed), *(chance.choice(known) for _ in range(chance.randint(1, 4)))) for _ in range(rounds)
        ]
        self._wanted += len(plans)
        with ThreadPoolExecutor(_LIVES_AT_ONCE) as threads:
            list(threads.map(self._kill, plans))

    def _kill(self, plan: Plan) -> list[Plan]:
        """Live a planned life; the plans for the points that its recovery passed, and no life before it.

        Where a life passes a point less often than the one before it, as with commits that were made together, it dies
        the last time that it does.
        """
        tries = 0
        while True:
            tries += 1
            attempt = self._one(plan)
            missed = next((death for death in plan if death not in attempt.died_at and not death.by_chance), None)
            if missed is None or attempt.problems:
                break
            if tries == _TRIES:
                self._fail(attempt, [_not_killed(missed, plan, tries)])
                break
            plan = tuple(_passed_last(attempt, each) if each is missed else each for each in plan)
        if len(plan) > 1 or missed is not None or attempt.problems:
            return []
        further: list[Plan] = []
        for each in _only_recovery(attempt, self._base_names):
            pair = (plan[0].name, plan[0].stage, str(each)) if each.name != "claim.after_commit" else (each.stage,)
            with self._lock:
                if pair not in self._seen_pairs:
                    self._seen_pairs.add(pair)
                    further.append((*plan, replace(each, by_chance=plan[0].name not in _IN_THE_EFFECT)))
        return further

    def _one(self, plan: Plan) -> _Attempt:
        attempt, life, row = self._live(plan)
        problems = attempt.problems
        if life is not None:
            problems += self._compare(life, row)
        with self._lock:
            self.lived += 1
            if life is not None and life.deaths:
                self.lives.append(life)
        if problems:
            self._fail(attempt, problems)
        with self._lock:
            self._known |= {*attempt.died_at}
        return attempt

    def _fail(self, attempt: _Attempt, problems: list[str]) -> None:
        told = story(attempt)
        with self._lock:
            self.failures.append(Failure(tuple(attempt.deaths), problems, told, self._command(attempt)))

    # one life

    def _live(self, plan: Plan) -> tuple[_Attempt, Life | None, RunRow | None]:
        attempt = self._born(plan)
        lane = take_lane()
        try:
            row = self._go_on(attempt, lane)
        finally:
            rest(lane)
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

    def _born(self, plan: Plan) -> _Attempt:
        with self._lock:
            number, self._begun = self._begun, self._begun + 1
        folder = self._folder / f"life-{number}"
        folder.mkdir()
        env = {VARIABLE: str(folder / "ledger.jsonl"), FOLDER: str(folder)}
        if self._setup is not None:
            env |= self._setup(folder) or {}
        run_id = _RUN_ID if self._url is None else f"{_RUN_ID}-{self._mark}-{number}"
        url = self._url or f"sqlite:///{folder / 'store.db'}"
        if self._expected is None:
            self._expected_id = run_id
        return _Attempt(folder, run_id, url, env, plan=plan)

    def _go_on(self, attempt: _Attempt, lane: Lane) -> RunRow | None:
        """Processes until the run has come to its end, or nothing can bring it there."""
        for number in range(_PROCESSES):
            death = attempt.next_death()
            trace = Trace(attempt.folder / f"trace-{number}", attempt.driven, death.fault if death is not None else "")
            attempt.traces.append(trace)
            env = {"HOLDFAST_FAULT_TRACE": str(trace.path), "HOLDFAST_FAULT": trace.fault}
            order = Order(
                self._file,
                self._call.agent.name,
                attempt.run_id,
                attempt.url,
                self._text,
                attempt.env | env,
                attempt.log,
                alone=self._url is not None,
                driven=self._drive is not None,
                left=attempt.left,
            )
            with self._lock:
                self.processes += 1
            try:
                code = lane.run(order, self._timeout_s)
            except TimeoutError:
                attempt.problems.append(f"process {number + 1} did not end within {self._timeout_s:g} s")
                return None
            if code == -9 and death is not None:
                attempt.dies(death)
                continue
            if code:
                attempt.problems.append(f"process {number + 1} ended with code {code}")
                return None
            if death is not None and death.stage is None:
                attempt.pending.pop(0)
            row = read_row(attempt.url, attempt.run_id)
            if row is None:
                attempt.problems.append("the process ended well, and the run is not in the store")
                return None
            if row.status.is_final or not self._help(attempt, row):
                return row
        attempt.problems.append(f"it is not over after {_PROCESSES} processes")
        return None

    def _help(self, attempt: _Attempt, row: RunRow) -> bool:
        if row.status in _PARKED and self._drive is None:
            return False
        if self._drive is None:
            attempt.problems.append(f"the run is {row.status}: {_reason(row)[:1000]}")
            return False
        before = read_open_waits(attempt.url, attempt.run_id)
        attempt.in_vain = attempt.in_vain + 1 if attempt.driven and attempt.left == sorted(before) else 0
        if attempt.in_vain == _TRIES:
            told = "; ".join(before.values()) or f"the run is {row.status}: {_reason(row)[:1000]}"
            attempt.problems.append(f"drive was called {_TRIES} times, and it is as before: {told}")
            return False
        attempt.driven += 1
        self._drive(attempt.url, attempt.run_id)
        attempt.left = sorted(before.keys() & read_open_waits(attempt.url, attempt.run_id).keys())
        return True

    def _look_back(self, attempt: _Attempt) -> Life:
        row, records = read_run(attempt.url, attempt.run_id)
        end = next((r for r in reversed(records) if r.kind == Kind.finished), None) if row.status.is_final else None
        text = read_text(attempt.url, attempt.run_id, end.payload) if end is not None else ""
        result, error, said = None, None, ""
        if row.status is Status.done:
            result, said = self._call.agent.coder.loads(text, what="the result"), text
        elif row.status is Status.failed:
            error = decode_error(text, None)
            said = f"{type(error).__name__}: {error}"
        said = said.replace(attempt.run_id, "RUN")
        with self._lock:
            if self._expected is None:
                self._expected = (row.status, said)
        if self._same_end and (row.status, said) != self._expected:
            self._differs(attempt, row, records, said=said)
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

    def _differs(self, attempt: _Attempt, row: RunRow, records: Sequence[Record], *, said: str) -> None:
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

    def _command(self, attempt: _Attempt) -> str:
        variables = {n: v for n, v in attempt.env.items() if n not in (VARIABLE, FOLDER)}
        variables |= {VARIABLE: "again/ledger.jsonl", FOLDER: "again"}
        shown = " ".join(f"{n}={shlex.quote(v)}" for n, v in variables.items())
        module = f"python -m holdfast.testing.child {shlex.quote(self._file)} {self._call.agent.name} r again/store.db"
        module += " --driven" if self._drive is not None else ""
        text = shlex.quote(self._text if len(self._text) < 2000 else "… the input …")
        lines = ["mkdir again"]
        for before, trace in pairwise([Trace(attempt.folder), *attempt.traces]):
            if trace.stage != before.stage:
                lines.append("# here drive('again/store.db', 'r') was called")
            fault = f"HOLDFAST_FAULT={trace.fault} " if trace.fault else ""
            lines.append(f"echo {text} | {shown} {fault}{module}")
        return "\n".join(lines)

    def _progress(self) -> None:
        if not sys.stderr.isatty():
            return
        with self._lock:
            done, wanted, wrong = len(self.lives), self._wanted, len(self.failures)
            broken = f", {wrong} went wrong" if wrong else ""
            sys.stderr.write(f"\r\x1b[K{self._call.agent.name}: {done} of {wanted} lives{broken}")
            sys.stderr.flush()


def _reason(row: RunRow) -> str:
    return json.dumps({} if row.reason is None else dict(reasons.plain(row.reason)))


def _unhelped(row: RunRow) -> str:
    waits = "; ".join(open_waits([row]).values()) or f"{row.id} is {row.status}"
    return f"{waits}, and nobody comes: pass drive=, a function that does what a person would."


def _not_killed(death: Death, plan: Plan, tries: int) -> str:
    where = f"{death} ({faults.POINTS.get(death.name, '?')})"
    who = "the undisturbed run" if death is plan[0] else f"a life that was killed at {plan[0]}"
    when = f"after drive {death.stage}" if death.stage else "before any drive"
    return (
        f"it was to be killed at {where}, where {who} came {when}; in {tries} lives no process came there. "
        "Does the agent, or drive, do the same each time? If it depends on chance, leave the point out with points=."
    )


def _passed_last(attempt: Attempt, death: Death) -> Death:
    """The same point, as often as this life passed it, if it was less often."""
    passed = [each for each in passages(attempt.traces) if (each.name, each.stage) == (death.name, death.stage)]
    return passed[-1] if passed and passed[-1].passing < death.passing else death


def _only_recovery(attempt: _Attempt, base_names: frozenset[str]) -> list[Death]:
    """The points that were passed after the first death, and are none of those that the undisturbed run passes.

    A run that wakes up is claimed as well, but not from somebody who died. A process may try to claim it twice, by
    chance: it is killed at its first try.
    """
    after = next((n for n, trace in enumerate(attempt.traces, start=1) if trace.fault), len(attempt.traces))
    before = len(passages(attempt.traces[:after]))
    taking_over = len(passages(attempt.traces[: after + 1]))
    return [
        death
        for n, death in enumerate(passages(attempt.traces)[before:], start=before)
        if (n < taking_over and death.passing == 1 if death.name.startswith("claim.") else death.name not in base_names)
    ]


def _file_of(call: Call[Any]) -> str:
    if not isinstance(call, Call):
        raise UsageError(f"assert_survives() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
    file = call.agent._source
    if file is None or not Path(file).is_file():
        raise UsageError(f"Agent {call.agent.name} is not in a file ({file}), so another process cannot load it.")
    return file
