"""Agents whose branches depend on each other's order, with effects that are raced, timed out, keyed and postponed."""

from __future__ import annotations

import asyncio
import random

import holdfast as hf
from tests.crash.agents import act, ledger, look, post, think, world


@hf.step
async def wander(n: int) -> int:
    with ledger.step():
        await asyncio.sleep(random.random() * 0.004)
        return n


@hf.effect(settle=0)
async def slow_post(n: int) -> str:
    act("slow", n)
    await asyncio.sleep(0.03 if n == 1 else 0.2)  # the second outlasts a timeout, whose end takes a commit
    return f"slow-{n}"


@slow_post.verify
async def find_slow(n: int) -> hf.Verdict[str]:
    return hf.landed(f"slow-{n}") if world.has("slow", hf.this_step().idempotency_key) else hf.not_landed()


@hf.effect(settle=0)
async def report(order: list[int]) -> str:
    act("report", order)
    return "reported"


@report.verify
async def find_report(order: list[int]) -> hf.Verdict[str]:
    return hf.landed("reported") if world.has("report", hf.this_step().idempotency_key) else hf.not_landed()


# who came first


async def walk(n: int, order: list[int]) -> int:
    for _ in range(n % 3 + 1):
        await wander(n)
    order.append(n)
    return n


@hf.agent
async def crowd(n: int) -> list[object]:
    """The order in which branches end decides what is done next."""
    order: list[int] = []
    async with asyncio.TaskGroup() as group:
        for i in range(n):
            group.create_task(walk(i, order))
    await report(order)
    finished = [await each for each in asyncio.as_completed([wander(10 + i) for i in range(n)])]
    await report(finished)
    waiting = {asyncio.ensure_future(walk(20 + i, order)) for i in range(n)}
    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await report(sorted(task.result() for task in done))
    await asyncio.gather(*waiting)
    return [sorted(order), sorted(finished)]


# effects are not cut short


@hf.agent
async def impatient(n: int) -> list[object]:
    """An effect loses a race, and another one outlasts a timeout: both happen, once."""
    seen: list[object] = [await hf.race(look(n), slow_post(1))]
    try:
        async with hf.timeout(0.01):
            seen.append(await slow_post(2))
    except TimeoutError:
        seen.append("too late")
    return [*seen, await post(n)]


# sagas in branches


@hf.effect(settle=0)
async def reserve(n: int) -> int:
    act("reserve", n)
    return n


@reserve.verify
async def find_reserved(n: int) -> hf.Verdict[int]:
    return hf.landed(n) if world.has("reserve", hf.this_step().idempotency_key) else hf.not_landed()


@reserve.undo
async def release(result: int | None, n: int) -> None:
    with ledger.effect():
        world.act("release", n, key=hf.this_step().undoes or "")


async def journey(n: int) -> str:
    try:
        async with hf.saga():
            await reserve(n)
            await wander(n)
            async with hf.saga():
                await reserve(n + 100)
            if n % 2:
                raise LookupError(n)
        return "kept"
    except LookupError:
        return "released"


@hf.agent
async def journeys(n: int) -> list[str]:
    return list(await asyncio.gather(*(journey(i) for i in range(n))))


# values, keys, postponed attempts


@hf.step
async def later(n: int) -> int:
    world.act("later", n, key="-")
    if len(world.values("later")) < 3:
        raise hf.RetryLater(after=0.01)
    return n


@hf.effect(settle=0)
async def postponed(n: int) -> str:
    world.act("postponed", n, key="-")
    if len(world.values("postponed")) < 3:
        raise hf.RetryLater(after=0.01)
    act("did", n)
    return "did"


@postponed.verify
async def find_postponed(n: int) -> hf.Verdict[str]:
    return hf.landed("did") if world.has("did", hf.this_step().idempotency_key) else hf.not_landed()


@hf.agent
async def mixed(n: int) -> list[object]:
    at, mark, number = hf.now(), str(hf.uuid4()), hf.rng().random()
    await report([int(at.timestamp() * 1e6), int(number * 1e6), len(mark)])
    keyed = await post.with_options(key="the one")(n)
    hf.progress(1, 3, "half way")
    hf.usage(model="m", input_tokens=3, cost=0.1)
    late = [await later(n), await postponed(n)]
    new = hf.patched("new")
    await report([int(at.timestamp() * 1e6), int(number * 1e6), new])
    return [keyed, *late, await think(n), new]
