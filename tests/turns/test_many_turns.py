"""Turn 100,000 resumes like turn 1,000, whatever was sent to the run and received by then; an empty turn is cheap."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import holdfast as hf
from tests.turns.many import make

_LOG = logging.getLogger(__name__)
_TIMES = 7


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_a_resume_after_many_turns_takes_what_it_takes_after_few(tmp_path: Path) -> None:
    found = {}
    for turns in (1_000, 100_000):
        url = str(tmp_path / f"{turns}.db")
        asyncio.run(make(url, turns))
        command = [sys.executable, "-m", "tests.turns.many", url, str(turns), str(_TIMES)]
        found[turns] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    _LOG.info("%s", found)
    few, many = found[1_000], found[100_000]
    assert many["ms"] <= 1.5 * few["ms"], found
    assert many["ms"] <= 50, found
    assert many["mb"] - few["mb"] < 20, found


#: Commands that look at one run, and how much of it they hold in memory grows with nothing that has happened.
LOOKS = (
    "fork r --dry-run",
    "fork r --turn 100 --dry-run",
    "fork r --at 400 --dry-run --json",
    "receipt r",
    "show r",
    "show r --journal",
    "show r --limit 5",
    "verify r",
    "diff r 100 101",
    "state r --turn 100",
    "in-doubt r",
    "watch r --once",
    "artifacts r",
    "check tests/turns/many.py",
)


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_who_looks_at_a_long_run_does_not_load_it(tmp_path: Path) -> None:
    """The largest size of the process, for a run of 80,000 records; loaded, they take 90 MB."""
    found = {}
    for turns in (200, 20_000):
        url = str(tmp_path / f"{turns}.db")
        asyncio.run(make(url, turns))
        for look in LOOKS:
            found[look, turns] = _size_of([*look.split(), "--db", url])
    grown = {look: round(found[look, 20_000] - found[look, 200]) for look in LOOKS}
    _LOG.info("MB more: %s", grown)
    assert max(grown.values()) <= 30, grown


#: A child begins with the size of its parent; this one is small.
_PARENT = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _size_of(arguments: list[str]) -> float:
    """The most that a command had, in MB."""
    command = [sys.executable, "-I", "-c", _PARENT, sys.executable, "-m", "holdfast", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return int(done.stdout) / 1024


@hf.step
async def nothing(n: int) -> int:
    return n


@hf.agent
async def turning(count: int) -> list[float]:
    """The CPU time that its turns took, and its steps, for each."""
    times: list[float] = []
    async for state in hf.turns({"n": 0}):
        if state["n"] in (0, count):
            times.append(time.thread_time())
        state["n"] += 1
        if state["n"] > count:
            break
    for _ in range(count):
        await nothing(1)
    times.append(time.thread_time())
    return [(later - before) / count for before, later in pairwise(times)]


@pytest.mark.prove
def test_an_empty_turn_costs_little_more_than_a_step(tmp_path: Path) -> None:
    """CPU time of the event loop's thread, the least of interleaved rounds."""

    async def rounds() -> list[float]:
        async with hf.connect(tmp_path / "store.db", agents=[turning]) as app:
            found = [await (await app.start(turning(1000))).result() for _ in range(12)]
        return [min(each) for each in zip(*found, strict=True)]

    turn, step = asyncio.run(rounds())
    _LOG.info("a turn %.1f us, a step %.1f us", turn * 1e6, step * 1e6)
    assert turn <= 1.2 * step, f"a turn {turn * 1e6:.1f} us, a step {step * 1e6:.1f} us"
