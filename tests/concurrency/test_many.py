"""Many at once cost as much each as few: no call looks at all the others.

What is compared is not time but work: the lines of Python that are executed for a hundred and for eight hundred.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast as hf

FEW, MANY = 100, 800
MOST = 9  # times the work: where each looks at all others, it is from eleven times on

word = hf.Signal("word", int)
lives: list[str] = []


@hf.step
async def look(n: int) -> int:
    await asyncio.sleep(0)
    return n


@hf.effect
async def act(n: int) -> int:
    return n


@hf.effect(on_doubt="retry", settle=0)
async def act_and_wait(n: int) -> int:
    await asyncio.sleep(0)
    return n


@hf.agent
async def child(n: int) -> int:
    return n


Branch = Callable[[int], Awaitable[Any]]


async def effect_in_branch(n: int) -> None:
    await act(n)


async def step_then_effect(n: int) -> None:
    await act_and_wait(await look(n))


async def nap(n: int) -> None:
    await hf.sleep(0)


async def in_time(n: int) -> None:
    async with hf.timeout(1000):
        await look(n)


async def the_first(n: int) -> None:
    await hf.race(look(n), hf.sleep(1000))


async def hear(n: int) -> None:
    await hf.receive(word)


async def have_a_child(n: int) -> None:
    await child(n)


async def one_after_the_other(n: int, lock: asyncio.Lock) -> None:
    async with lock:
        await look(n)


@hf.agent(signals=[word])
async def at_once(what: str, count: int) -> int:
    lock = asyncio.Lock()
    branches: dict[str, Branch] = {
        "steps": look,
        "effects": act,
        "branches": effect_in_branch,
        "steps and effects": step_then_effect,
        "sleeps": nap,
        "timeouts": in_time,
        "races": the_first,
        "signals": hear,
        "children": have_a_child,
        "a lock": lambda n: one_after_the_other(n, lock),
    }
    await asyncio.gather(*(branches[what](n) for n in range(count)))
    if lives[-1] == "first":
        raise RuntimeError("the first life ends here")
    return count


class Lines:
    """Counts the lines that this thread executes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Lines:
        self.count += 1
        return self

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


async def live(url: str, what: str, count: int, *, again: bool) -> None:
    lives.append("second" if again else "first")
    run_id = f"{what}-{count}"
    async with hf.connect(url, agents=[at_once, child]) as app:
        if not again:
            with pytest.raises(hf.errors.RunFailed, match="the first life ends here"):
                await app.get(run_id).result()
        else:
            run = app.get(run_id)
            await run.retry()
            assert await run.result() == count


async def prepare(url: str, what: str, count: int) -> None:
    """A run that is stored, and all that it is going to hear."""
    async with hf.connect(url) as app:
        run = await app.start(at_once(what, count), id=f"{what}-{count}")
        if what == "signals":
            for n in range(count):
                await run.send(word, n)


def compare(url: str, what: str) -> None:
    asyncio.run(prepare(url, what, 1))
    asyncio.run(live(url, what, 1, again=False))  # whatever is done once in a process
    work: dict[str, list[int]] = {"live": [], "replayed": []}
    for count in (FEW, MANY):
        asyncio.run(prepare(url, what, count))
        for life in work:
            with Lines() as lines:
                asyncio.run(live(url, what, count, again=life == "replayed"))
            work[life].append(lines.count)
    for life, (few, many) in work.items():
        assert many < few * MOST, f"{what}, {life}: {few} lines for {FEW}, {many} for {MANY}"


OFTEN = ["effects", "sleeps", "signals", "a lock"]
SELDOM = ["steps", "children", "branches", "steps and effects", "timeouts", "races"]


@pytest.mark.parametrize("what", [*OFTEN, *(pytest.param(what, marks=pytest.mark.prove) for what in SELDOM)])
def test_many_calls_at_once_cost_as_much_each_as_few(tmp_path: Path, what: str) -> None:
    compare(str(tmp_path / "store.db"), what)


def test_many_effects_at_once_cost_as_much_each_as_few_on_postgres(postgres_url: str) -> None:
    compare(postgres_url, "steps and effects")
