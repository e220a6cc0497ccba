"""An agent that pays; and what it may have to wait for before it does."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import holdfast as hf
from tests.crash.agents import act, post

DAY = timedelta(days=1)

permit = hf.Signal("permit", bool)


@hf.effect(on_doubt="retry")
async def pay(n: int) -> int:
    act("paid", n)
    return n


@hf.agent
async def pays(n: int) -> int:
    return await pay(n)


@hf.agent
async def asks(n: int) -> int:
    return await pay(n) if await hf.ask("May I?") else 0


@hf.agent
async def asks_until(n: int) -> int:
    return await pay(n) if await hf.ask("May I?", timeout=DAY) else 0


@hf.agent(timeout=DAY)
async def asks_in_time(n: int) -> int:
    return await pay(n) if await hf.ask("May I?") else 0


@hf.agent
async def receives(n: int) -> int:
    return await pay(n) if await hf.receive(permit) else 0


@hf.agent
async def receives_until(n: int) -> int:
    return await pay(n) if await hf.receive(permit, timeout=DAY) else 0


@hf.agent
async def lets_ask(n: int) -> int:
    return await asks_until(n)


@hf.agent
async def asks_while_it_sleeps(n: int) -> int:
    may, _ = await asyncio.gather(hf.ask("May I?"), hf.sleep(1.5))
    return await pay(n) if may else 0


@hf.agent
async def asks_in_vain(n: int) -> int:
    """The first question is for nobody; the second one is answered."""
    try:
        await hf.ask("Is anybody there?", timeout=1.5)
    except TimeoutError:
        return await pay(n) if await hf.ask("May I?", timeout=DAY) else 0
    return 0


@hf.agent
async def posts_once(n: int) -> int:
    """Takes another way in every life but the first."""
    if os.environ["WAY"] == "1":
        await post(n)
    return n
