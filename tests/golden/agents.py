"""The agents of the golden stores. They never change: what they once recorded is resumed by every later version.

What they do outside goes to the file that $WORLD names.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from decimal import Decimal

import holdfast as hf

number = hf.Signal("number", int)


@dataclass
class Order:
    """What an agent gets and returns that is no plain value."""

    customer: str
    prices: list[Decimal] = field(default_factory=list)


@hf.step
async def think(text: str) -> str:
    return text * 2


@hf.step(retries=hf.Retry(2, first=0.01))
async def stumble(n: int) -> int:
    if hf.this_step().attempt == 1:
        raise OSError("the line is busy")
    return n


@hf.effect(settle=0, on_doubt="ask")
async def post(text: str) -> str:
    with open(os.environ["WORLD"], "a") as world:
        world.write(f"{text}\n")
    return text


@post.undo
async def unpost(result: str | None, text: str) -> None:
    with open(os.environ["WORLD"], "a") as world:
        world.write(f"un{text}\n")


@hf.effect
async def shout(text: str) -> str:
    return text.upper()


@hf.agent
async def ordered(order: Order) -> tuple[Order, set[int], bytes]:
    """Values of many types, a failed attempt, branches, a large value."""
    total = await stumble(len(order.prices))
    found = await asyncio.gather(*(think(f"{n}") for n in range(3)))
    large = await think("tide" * 20_000)
    await post(f"order of {order.customer}: {total} {found} {len(large)}")
    return Order(order.customer, [price * 2 for price in order.prices]), {1, 2}, b"\x00\xff"


@hf.agent
async def failing(n: int) -> int:
    await post(f"fail {n}")
    if "MENDED" not in os.environ:
        raise ValueError("it does not work")
    return n


@hf.agent
async def booking(n: int) -> int:
    """A saga that is left by an exception, and undone."""
    try:
        async with hf.saga():
            await post(f"flight {n}")
            await post(f"hotel {n}")
            raise LookupError("no car")
    except LookupError:
        return n


@hf.agent(signals=[number])
async def collector(count: int) -> list[int]:
    await post(f"collect {count}")
    got = [await hf.receive(number) for _ in range(count)]
    await post(f"collected {got}")
    return got


@collector.on_interrupt
async def hear(message: str) -> str:
    return f"{await think(message)}!"


@hf.agent
async def boss(n: int) -> int:
    (got,) = await collector(1)
    return got + n


@hf.agent
async def asker(n: int) -> bool:
    ok = await hf.ask(f"Is {n} right?", show={"n": n})
    await post(f"answered {ok}")
    return ok


@hf.agent
async def sleeper(text: str) -> str:
    await post(f"{text} sleeps")
    await hf.sleep(minutes=2)
    await post(f"{text} is awake")
    return text


@hf.agent
async def patient(n: int) -> str:
    """A signal that does not come in time, then one that does."""
    try:
        await hf.receive(("never", int), timeout=0.01)
    except TimeoutError:
        async with hf.timeout(days=36_500):
            return await hf.receive(("word", str))
    return ""


@hf.agent
async def wavering(n: int) -> str:
    """Does another thing if the environment says so, as changed code would."""
    await think("before")
    return await (shout if "OTHER" in os.environ else post)("one")


@hf.agent
async def racer(n: int) -> bool:
    """Values that a replay must give again, a loser of a race, a patch."""
    drawn = f"{hf.uuid4()} {hf.rng().random()} {hf.now().isoformat()} {hf.patched('way')}"
    recorded = await think(drawn)
    won = await hf.race(think("first"), hf.sleep(days=1))
    await hf.receive(("word", str))
    return recorded == drawn * 2 and won == "firstfirst"


@hf.reducer
async def counter(state: int, event: int) -> int:
    if event < 0:
        raise hf.Stop(state)
    return state + event
