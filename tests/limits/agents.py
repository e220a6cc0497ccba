"""Agents that have a budget, rely on something outside, or have a plan. Their bodies are in the ledger."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from holdfast.testing import Ledger
from tests.ownership.agents import held

ledger = Ledger()
COST = 0.125  #: of each thought; sums of it are exact


def outside() -> Path:
    """What the agents rely on."""
    return ledger.path.parent / "outside"


@hf.step
async def think(n: int) -> int:
    with ledger.step():
        hf.usage(model="m", input_tokens=2, output_tokens=1, cost=COST)
        await asyncio.sleep(0.02)  # so that somebody is killed in it
        return n


@hf.effect(settle=0, on_doubt="retry")
async def tell(n: int) -> int:
    with ledger.effect():
        hf.usage(model="m", cost=COST)
        return n


@hf.step
async def wait_at(name: str) -> str:
    with ledger.step():
        await held(name)
        return name


@hf.agent(queue="thoughts")
async def thinker(n: int) -> int:
    for number in range(n):
        await think(number)
    return n


@hf.agent(budget=hf.Budget(cost=4.0))
async def family(children: int, thoughts: int) -> int:
    """As many children at once, each with so many thoughts."""
    return sum(await asyncio.gather(*(thinker(thoughts) for _ in range(children))))


@hf.agent
async def guarded(on_change: str) -> list[int]:
    """Held in its first step, so that it can be killed there."""
    await hf.guard("folder", hf.guards.directory(outside()), on_change=on_change)  # type: ignore[arg-type]
    await hf.guard("counted", counted)
    await wait_at("gate")
    return list(await asyncio.gather(think(1), think(2)))


@hf.agent
async def relying(kind: str, parks: bool) -> int:
    """On one thing; then it asks, or is held in a step, and thinks."""
    path, page = outside(), os.environ.get("HOLDFAST_TEST_PAGE", "")
    looks: dict[str, Callable[[], str]] = {
        "file": hf.guards.file(path / "file"),
        "directory": hf.guards.directory(path),
        "git": hf.guards.git(path),
        "own": lambda: (path / "file").read_text(),
    }
    await hf.guard(kind, hf.guards.url(page) if kind == "url" else looks[kind], on_change="block")
    await (hf.ask("Shall I go on?") if parks else wait_at("gate"))
    return await think(1)


def counted() -> str:
    """The same each time; how often it was taken is in a file."""
    with (ledger.path.parent / "counted").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return "same"


@hf.agent
async def planned() -> list[str]:
    todo = await hf.plan(["one", "two"])
    await tell(1)
    await todo.tick(1, "well")
    new = await todo.add("three", after=1)
    await tell(2)
    await todo.reorder([2, new])
    await todo.drop(new)
    await hf.guard("plan", lambda: "same")
    return [f"{item.id} {item.done}" for item in todo.items]


@hf.step
async def think_at(gate: str, n: int) -> int:
    """The first thought says what it has used at a gate, and behind it what more."""
    with ledger.step():
        hf.usage(model="m", cost=COST)
        if n == 0:
            await held(gate)
            hf.usage(model="m", cost=COST)
        return n


@hf.agent(queue="thoughts")
async def held_thinker(gate: str, n: int) -> int:
    for number in range(n):
        await think_at(gate, number)
    return n


@hf.agent(budget=hf.Budget(cost=8 * COST))
async def held_family(gate: str, children: int, thoughts: int) -> int:
    return sum(await asyncio.gather(*(held_thinker(gate, thoughts) for _ in range(children))))
