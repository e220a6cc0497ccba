"""Turn 100,000 resumes like turn 1,000, whatever was sent to the run and received by then; an empty turn is cheap."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast as hf
from tests.turns.many import make

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
    few, many = found[1_000], found[100_000]
    assert many["ms"] <= 1.5 * few["ms"], found
    assert many["ms"] <= 50, found
    assert many["mb"] - few["mb"] < 20, found


@hf.step
async def nothing(n: int) -> int:
    return n


@hf.agent
async def turning(count: int) -> float:
    """The CPU time that its turns took, for each."""
    began = 0.0
    async for state in hf.turns({"n": 0}):
        began = began or time.thread_time()
        state["n"] += 1
        if state["n"] > count:
            break
    return (time.thread_time() - began) / count


@hf.agent
async def stepping(count: int) -> float:
    """The same of its steps."""
    await nothing(0)
    began = time.thread_time()
    for _ in range(count):
        await nothing(1)
    return (time.thread_time() - began) / count


@pytest.mark.prove
def test_an_empty_turn_costs_little_more_than_a_step(tmp_path: Path) -> None:
    """CPU time of the event loop's thread, the least of interleaved rounds."""

    async def rounds() -> tuple[float, float]:
        turns, steps = [], []
        async with hf.connect(tmp_path / "store.db", agents=[turning, stepping]) as app:
            for _ in range(12):
                turns.append(await (await app.start(turning(1000))).result())
                steps.append(await (await app.start(stepping(1000))).result())
        return min(turns), min(steps)

    turn, step = asyncio.run(rounds())
    assert turn <= 1.2 * step, f"a turn {turn * 1e6:.1f} us, a step {step * 1e6:.1f} us"
