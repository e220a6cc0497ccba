"""Agents that remember."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import holdfast as hf


@dataclass
class Message:
    role: str
    text: str


@hf.step
async def model(context: list[Message]) -> str:
    """An answer that tells what was asked, and how much of the conversation was known."""
    return f"{context[-1].text}? I know {len(context)}."


@hf.agent
async def chat(question: str) -> str:
    memory = hf.thread(Message)
    await memory.append(Message("user", question))
    answer = await model(await memory.recent(10))
    await memory.append(Message("assistant", answer))
    return answer


@hf.agent
async def talker(name: str, times: int) -> list[int]:
    """Says many things, one after the other; the numbers that they got."""
    memory = hf.thread(str)
    return [await memory.append(f"{name} {number}") for number in range(times)]


@hf.agent
async def thinker(times: int) -> list[list[str]]:
    """Reads in two branches while others speak: what it read, in the order in which it heard."""
    memory, heard = hf.thread(str), []

    async def read(name: str) -> None:
        for number in range(times):
            heard.append([name, *(await memory.recent(3))])
            await memory.append(f"{name} {number}")

    await asyncio.gather(read("a"), read("b"))
    await memory.summarise("all of it", upto=2)
    heard.append(await memory.since(0))
    return heard
