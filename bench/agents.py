"""Agents that do as little as possible, so that what is measured is Holdfast."""

from __future__ import annotations

import asyncio
import time

import holdfast as hf


@hf.step
async def tiny(n: int) -> int:
    return n + 1


@hf.effect(on_doubt="retry")
async def act(n: int) -> int:
    return n + 1


@hf.effect(on_doubt="retry")
async def act_later(n: int) -> int:
    """As every body that talks to somebody: it gives the loop a turn, and its end is heard of in another one."""
    await asyncio.sleep(0)
    return n + 1


@hf.step
async def read(messages: list[dict[str, str]]) -> str:
    return messages[-1]["content"]


@hf.agent
async def reads(count: int, messages: int) -> float:
    """Steps that are called with what a long chat has, 200 kB in 1,240 messages; processor time before the first."""
    said = [{"role": "user", "content": f"question {n} " * 10} for n in range(messages)]
    began = time.process_time()
    for n in range(count):
        said[-1] = {"role": "user", "content": f"more {n}"}
        await read(said)
    return began


@hf.agent
async def steps(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await tiny(n)
    return n


@hf.agent
async def effects(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await act(n)
    return n


@hf.agent
async def awaiting_effects(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await act_later(n)
    return n
