"""Programs that are forked at each of their records. What they do outside goes to the file that $WORLD names."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, NamedTuple

import holdfast as hf

go = hf.Signal("go", int)


class Act(NamedTuple):
    """Something that an effect did."""

    run: str
    key: str  #: of its call
    idempotency_key: str
    value: Any


def acts() -> list[Act]:
    """All that effects did, in order."""
    try:
        with open(os.environ["WORLD"]) as world:
            return [Act(*json.loads(line)) for line in world]
    except FileNotFoundError:
        return []


def _act(value: Any) -> None:
    step = hf.this_step()
    with open(os.environ["WORLD"], "a") as world:
        world.write(json.dumps([step.run_id, step.key, step.idempotency_key, value]) + "\n")


@hf.step
async def think(text: str) -> str:
    return text.upper()


@hf.effect
async def post(value: Any) -> str:
    _act(value)
    return f"posted {value}"


@hf.effect(settle=0)
async def book(what: str) -> str:
    _act(what)
    return what


@book.undo
async def unbook(booked: str | None, what: str) -> None:
    _act(f"not {what}")


@hf.effect
def pay(amount: int) -> int:
    with hf.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)")
        connection.execute("INSERT INTO payments VALUES (?)", (amount,))
    _act(amount)
    return amount


@hf.agent
async def sequence(n: int) -> list[str]:
    """Ids are made before, between and after the calls."""
    ids = [str(hf.uuid4())]
    await think(ids[-1])
    await post(n)
    ids.append(str(hf.uuid4()))
    await post(ids[-1])
    ids.append(str(hf.rng().random()))
    await think(ids[-1])
    return ids


async def _branch(n: int, token: str) -> str:
    own = str(hf.uuid4())
    await think(f"{n} {own}")
    return await post([n, token, own])


@hf.agent
async def branches(n: int) -> list[str]:
    token = str(hf.uuid4())
    return [*await asyncio.gather(*(_branch(each, token) for each in range(n))), await post("end")]


@hf.agent
async def small(n: int) -> int:
    await post(f"small {n}")
    return n * 2


@hf.agent
async def family(n: int) -> int:
    first = await small(n)
    await think("between")
    return first + await small(first)


@hf.agent
async def starter(n: int) -> int:
    run = await hf.start(small(n))
    await post("started")
    return await run.result()


@hf.agent(signals=[go])
async def collector(n: int) -> list[int]:
    got = []
    for each in range(n):
        got.append(await hf.receive(go))
        await post(f"got {each}")
    return got


@hf.agent
async def asker(n: int) -> list[bool]:
    first = await hf.ask("First?")
    await post(f"first {first}")
    second = await hf.ask("Second?", show=n)
    return [first, second]


@hf.agent
async def trip(city: str) -> str:
    async with hf.saga():
        await book(f"flight to {city}")
        await think("packing")
        async with hf.saga():
            await book(f"hotel in {city}")
        await think("walking")
    return await post("home")


@hf.agent
async def nested(n: int) -> str:
    async with hf.saga():
        async with hf.saga():
            await book("inside")
        return await think("outside")


@hf.agent
async def failed_trip(city: str) -> str:
    try:
        async with hf.saga():
            await book(f"flight to {city}")
            await book(f"hotel in {city}")
            raise ValueError("no car")
    except ValueError:
        await think("at home")
    return await post("stayed")


@hf.agent
async def payer(n: int) -> int:
    paid = await pay(n)
    await think("paid")
    return paid + await pay(paid + 1)


@hf.effect
async def pay_there(amount: int) -> int:
    async with hf.transaction() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)")
        await connection.execute("INSERT INTO payments VALUES ($1)", amount)
    _act(amount)
    return amount


@hf.agent
async def payer_there(n: int) -> int:
    """The same on PostgreSQL, whose connections belong to an event loop."""
    paid = await pay_there(n)
    await think("paid")
    return paid + await pay_there(paid + 1)


@hf.agent
async def hurried(n: int) -> list[str]:
    first = await hf.race(think("a"), hf.sleep(60))
    try:
        async with hf.timeout(0.02):
            await hf.receive(("never", int))
    except TimeoutError:
        await post("too late")
    await hf.sleep(0.01)
    return [str(first), str(hf.now())]


@hf.effect(on_doubt="fail", settle=0)
async def send(n: int) -> str:
    _act(n)
    raise OSError("the line is dead")


@send.verify
async def find(n: int) -> hf.Verdict[str]:
    if not os.path.exists(os.environ["WORLD"] + ".mended"):
        raise OSError("nobody can tell")
    return hf.landed(f"found {hf.this_step().idempotency_key}")


@hf.agent
async def wavering(n: int) -> str:
    return await send(n)


@hf.agent
async def failing(n: int) -> None:
    await think("before")
    raise ValueError("it does not work")


@hf.agent(signals=[go])
async def interrupted(n: int) -> int:
    await post("before")
    got = await hf.receive(go)
    await post("after")
    return got


@interrupted.on_interrupt
async def reply(message: str) -> str:
    await post(f"heard {message}")
    return await think(message)


#: What is called, and what may differ in a fork: ids that are made after the point.
PROGRAMS: dict[str, hf.Call[Any]] = {
    "steps, effects and ids": sequence(1),
    "branches": branches(3),
    "children": family(1),
    "a child that is started": starter(1),
    "signals": collector(2),
    "questions": asker(1),
    "a saga in a saga": trip("Rome"),
    "a saga that is undone": failed_trip("Rome"),
    "effects with a transaction": payer(1),
    "race, timeout and sleep": hurried(1),
    "an interrupt": interrupted(1),
}
#: What is another program on PostgreSQL.
ON_POSTGRESQL: dict[str, hf.Call[Any]] = {"effects with a transaction": payer_there(1)}
AGENTS: list[hf.Agent[..., Any]] = [
    sequence,
    branches,
    small,
    family,
    starter,
    collector,
    asker,
    trip,
    nested,
    failed_trip,
    payer,
    payer_there,
    hurried,
    interrupted,
    wavering,
    failing,
]
