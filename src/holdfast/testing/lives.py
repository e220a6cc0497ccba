"""A life in a crash test: where it was killed, what it left behind, and how it is told when it went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import faults
from holdfast.errors import HoldfastError
from holdfast.history import timeline_of
from holdfast.model import Kind
from holdfast.testing.ledger import VARIABLE, Ledger
from holdfast.testing.reading import read_run

_SHOWN = 3
_MAY_REPEAT = ("retry", "not_landed")


@dataclass(slots=True)
class Attempt:
    """A life while it is lived."""

    plan: tuple[str, ...]  #: where its processes are to be killed, as `name@n`
    folder: Path
    run_id: str
    url: str
    env: dict[str, str]
    deaths: list[str] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    driven: int = 0

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


def passed_points(traces: Iterable[Path]) -> list[str]:
    """The crash points in the traces of processes, in order, each with how often it was passed by then."""
    found = []
    for trace in traces:
        times: Counter[str] = Counter()
        for name in trace.read_text().split() if trace.exists() else ():
            times[name] += 1
            found.append(f"{name}@{times[name]}")
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
    parts = [f"{agent} did not survive: {len(failures)} of {max(lives, len(failures))} lives went wrong."]
    for failure in failures[:_SHOWN]:
        deaths = [f"{each} ({faults.POINTS.get(each.partition('@')[0], '?')})" for each in failure.deaths]
        parts.append(f"\nkilled at {', then at '.join(deaths) or 'nothing'}:")
        parts += [f"- {problem}" for problem in failure.problems]
        parts += [failure.story, "to see it again:", *(f"  {line}" for line in failure.command.splitlines())]
    for failure in failures[_SHOWN:]:
        parts.append(f"\nkilled at {', then at '.join(failure.deaths)}: {'; '.join(failure.problems)[:500]}")
    return "\n".join(parts)
