"""Agents that the tests of the server start."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from holdfast.journal.files import CHUNK

number = hf.Signal("number", int)


@hf.step
async def double(n: int) -> int:
    hf.usage(model="m", input_tokens=3, output_tokens=2, cost=0.5)
    return 2 * n


@hf.effect
async def pay(amount: int) -> str:
    raise ConnectionError("the line broke")  # no proof that nothing happened


@hf.agent
async def echo(text: str = "hello") -> str:
    return text


@hf.agent
async def counting(n: int) -> int:
    for each in range(n):
        await double(each)
    return n


@hf.agent
async def refund(customer: str, amount: int = 40) -> str:
    ok = await hf.ask(f"Pay {amount} back to {customer}?", show={"amount": amount})
    return "paid" if ok else "refused"


@hf.agent
async def doubting(amount: int) -> str:
    return await pay(amount)


@hf.agent(signals=[number])
async def summing(times: int) -> int:
    total = 0
    for _ in range(times):
        total += await hf.receive(number)
    return total


@summing.on_interrupt
async def how_far(message: str, main: hf.MainLine) -> str:
    return f"{message}: fine"


@hf.agent
async def failing() -> None:
    raise ValueError("no")


@hf.agent
async def dozing() -> None:
    await hf.sleep(days=1)


LARGE = bytes(range(256)) * (CHUNK // 256) + b"more"


@hf.step
async def telling() -> str:
    out = hf.stream("out")
    out.write("one ")
    out.write("two")
    return "one two"


@hf.agent(signals=[number])
async def keeper() -> None:
    """Has something of everything that runs keep, and waits in each turn."""
    await hf.plan(["a", "b"])
    await hf.artifact("a/<b>.html", LARGE)
    await hf.artifact("request", ref="https://example.org/1", kind="link")
    await hf.thread(str).append("hello")
    await telling()
    async for state in hf.turns(dict[str, list[int]](seen=[])):
        state["seen"].append(await hf.receive(number))


ALL: list[hf.Agent[..., Any]] = [echo, counting, refund, doubting, summing, failing, dozing, keeper]
