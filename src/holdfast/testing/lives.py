"""A life in a crash test: where it was killed, what it left behind, and how it is told when it went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.base import faults
from holdfast.errors import HoldfastError
from holdfast.history.timeline import timeline_of
from holdfast.model import Kind
from holdfast.testing.ledger import VARIABLE, Ledger
from holdfast.testing.reading import read_run

_SHOWN = 3
_MAY_REPEAT = ("retry", "not_landed")


@dataclass(frozen=True, slots=True)
class Death:
    """A kill at one passing of a crash point."""

    name: str
    number: int  #: of the passings in a whole life, as people count
    passing: int  #: of those in its process, as the process counts
    stage: int | None  #: how often somebody acted on the run before that process; None: in whichever comes next
    by_chance: bool = False  #: it may as well not happen

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"

    @property
    def fault(self) -> str:
        """For `HOLDFAST_FAULT`."""
        return f"{self.name}:kill@{self.passing}"


class Trace(NamedTuple):
    """What a process of a life passed."""

    path: Path
    stage: int = 0  #: how often somebody had acted on the run before
    fault: str = ""

    def passed(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []


@dataclass(slots=True)
class Attempt:
    """A life while it is lived."""

    folder: Path
    run_id: str
    url: str
    env: dict[str, str]
    deaths: list[str] = field(default_factory=list)  #: where its processes were killed, as `name@n`
    traces: list[Trace] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "output.txt"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.env[VARIABLE])


@dataclass(frozen=True, slots=True)
class Failure:
    """A life that went wrong."""

    deaths: tuple[str, ...]
    problems: list[str]
    story: str
    command: str


def passages(traces: Iterable[Trace]) -> list[Death]:
    """Every passing of a crash point in the processes of a life, in order."""
    found = []
    in_life: Counter[str] = Counter()
    for trace in traces:
        in_process: Counter[str] = Counter()
        for name in trace.passed():
            in_life[name] += 1
            in_process[name] += 1
            found.append(Death(name, in_life[name], in_process[name], trace.stage))
    return found


def repeated_effects(attempt: Attempt) -> list[str]:
    """Effects that happened more than once though nobody had decided that they may."""
    problems = []
    for run, key, times in attempt.ledger.repeated():
        _, records = read_run(attempt.url, run)
        notes = [json.loads(r.payload or "{}") for r in records if r.kind == Kind.settled and r.key == key]
        allowed = sum(note.get("verdict") in _MAY_REPEAT for note in notes)
        if times > 1 + allowed:
            problems.append(f"{key} of run {run} happened {times} times, {allowed} times with leave to be repeated")
    return problems


def story(attempt: Attempt) -> str:
    """What is known of a life: ledger, timeline, output."""
    lines = [f"  {line}" for line in attempt.ledger.lines()]
    parts = ["ledger:", *(lines[-40:] or ["  (empty)"])]
    try:
        items = timeline_of(*read_run(attempt.url, attempt.run_id))
        shown = [f"  {i.seq:4} {i.kind:9} {i.key or i.name} {i.status} {i.detail}".rstrip() for i in items]
        parts += ["timeline:", *shown[-40:]]
    except HoldfastError as error:
        parts.append(f"timeline: none ({error})")
    if attempt.log.exists():
        output = [f"  {line}" for line in attempt.log.read_text(errors="replace").splitlines()]
        parts += ["output:", *output[-30:]] if output else []
    return "\n".join(parts)


def report(agent: str, lives: int, failures: Sequence[Failure]) -> str:
    """The lives that went wrong: the first few in full, the others in a line."""
    parts = [f"{agent} did not survive: {len(failures)} of {lives} lives went wrong."]
    for failure in failures[:_SHOWN]:
        deaths = [f"{each} ({faults.POINTS.get(each.partition('@')[0], '?')})" for each in failure.deaths]
        parts.append(f"\nkilled at {', then at '.join(deaths) or 'nothing'}:")
        parts += [f"- {problem}" for problem in failure.problems]
        parts += [failure.story, "to see it again:", *(f"  {line}" for line in failure.command.splitlines())]
    for failure in failures[_SHOWN:]:
        parts.append(f"\nkilled at {', then at '.join(failure.deaths)}: {'; '.join(failure.problems)[:500]}")
    return "\n".join(parts)
