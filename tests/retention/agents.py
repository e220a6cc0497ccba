"""Agents whose runs are pruned and moved. What they do outside goes to the file that $WORLD names."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import holdfast as hf

AGENTS = __file__

number = hf.Signal("number", int)


@hf.effect
async def post(text: str) -> str:
    with open(os.environ.get("WORLD", "world.txt"), "a") as world:
        world.write(f"{text}\n")
    return text


@hf.step
async def think(text: str) -> str:
    return text * 2


@hf.agent
async def adder(n: int) -> int:
    await think(str(n))
    await post(f"add {n}")
    return n + 1


@hf.agent
async def large(size: int) -> str:
    return await think("x" * size)


@hf.step
async def noise(size: int) -> str:
    return os.urandom(size).hex()


@hf.agent
async def noisy(size: int) -> int:
    return len(await noise(size))


@hf.agent
async def failing(n: int) -> int:
    await think(str(n))
    if n:
        raise ValueError("it does not work")
    return n


@hf.agent(signals=[number])
async def collector(count: int) -> list[int]:
    await post(f"collect {count}")
    got = [await hf.receive(number) for _ in range(count)]
    await post(f"collected {got}")
    return got


@hf.agent
async def boss(n: int) -> int:
    await post(f"boss {n}")
    (got,) = await collector(1)
    await post(f"boss got {got}")
    return got + n


@hf.agent(signals=[number])
async def heir(n: int) -> int:
    """Waits when its child has ended."""
    got = await adder(n)
    return got + await hf.receive(number)


@hf.agent(signals=[number])
async def forgiving(n: int) -> int:
    """Waits when its child has failed."""
    try:
        await failing(n)
    except hf.errors.RunFailed:
        await post("forgiven")
    return await hf.receive(number)


@hf.agent(signals=[number])
async def stubborn(n: int) -> int:
    """Fails after its child has ended, until the gate is open."""
    got = await adder(n)
    if not gate_of(Path(os.environ["WORLD"]), "open").exists():
        raise ValueError("the gate is shut")
    return got + await hf.receive(number)


@hf.agent
async def asker(n: int) -> bool:
    await post(f"ask {n}")
    answer = await hf.ask(f"Is {n} right?")
    await post(f"answered {answer}")
    return answer


@hf.agent
async def sleeper(days: int) -> str:
    await post(f"sleep {days}")
    await hf.sleep(days=days)
    await post(f"slept {days}")
    return "awake"


def gate_of(world: Path, state: str) -> Path:
    return world.with_suffix(f".{state}")


@hf.step
async def hold() -> None:
    """Until the test opens the gate."""
    world = Path(os.environ["WORLD"])
    gate_of(world, "reached").touch()
    while not gate_of(world, "open").exists():  # noqa: ASYNC110 - it is a file
        await asyncio.sleep(0.01)


@hf.agent
async def alarm() -> str:
    await hold()
    await post("alarm")
    return "rung"


@hf.effect(settle=0)
def transfer(text: str) -> str:
    """Takes until the test opens the gate."""
    world = Path(os.environ["WORLD"])
    gate_of(world, "reached").touch()
    while not gate_of(world, "open").exists():
        time.sleep(0.01)
    with open(world, "a") as file:
        file.write(f"{text}\n")
    return text


@transfer.verify
async def has_transferred(text: str) -> hf.Verdict[str]:
    world = Path(os.environ["WORLD"])
    lines = world.read_text().splitlines() if world.exists() else []
    gate_of(world, "asked").touch()
    return hf.landed(text) if text in lines else hf.not_landed()


@hf.agent
async def bank(text: str) -> str:
    return await transfer(text)


ALL: list[hf.Agent[..., Any]] = [
    adder,
    large,
    noisy,
    failing,
    collector,
    boss,
    heir,
    forgiving,
    stubborn,
    asker,
    sleeper,
    alarm,
    bank,
]
