"""Agents whose bodies write to streams, and who is read from them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import holdfast as hf
from tests.eventually import eventually

GATES = "HOLDFAST_TEST_GATES"
#: Longer than what is grouped into one append.
APART_S = 0.06


def passed(gate: str) -> bool:
    """Does a file of this name let this process go on?"""
    return (Path(os.environ[GATES]) / f"{gate}.{os.getpid()}.open").exists()


def reached(gate: str) -> None:
    """Say that this process stands there."""
    (Path(os.environ[GATES]) / f"{gate}.{os.getpid()}").touch()


def text_of(events: Iterable[hf.StreamEvent], key: str = "") -> str:
    """What counts of what a call, or all of them, wrote: a reset takes back what its call wrote."""
    texts: dict[str, str] = {}
    for event in events:
        if event.kind == "reset":
            texts[event.key] = ""
        elif event.kind == "text":
            texts[event.key] = texts.get(event.key, "") + event.text
    return "".join(text for each, text in texts.items() if not key or each == key)


@hf.step
async def tell(n: int, every_s: float = 0.0, gate: str = "", at: int = 0) -> str:
    """Chunks 0 to n-1; at one of them it waits at a gate."""
    text, out = "", hf.stream()
    if out.partial is not None:
        text = out.partial.text
        out.write(text)
    for number in range(text.count(" "), n):
        if gate and number == at:
            reached(gate)
            await eventually(lambda: passed(gate))
        out.write(f"{number} ")
        text += f"{number} "
        await asyncio.sleep(every_s)
    return text


@hf.step
def tell_in_thread(n: int, every_s: float = 0.0) -> str:
    out = hf.stream("thread")
    for number in range(n):
        out.write(f"{number} ")
        time.sleep(every_s)
    return "".join(f"{number} " for number in range(n))


@hf.effect(on_doubt="retry")
async def publish(n: int) -> str:
    out = hf.stream("published")
    for number in range(n):
        out.write(f"{number} ")
        await asyncio.sleep(APART_S)
    return "".join(f"{number} " for number in range(n))


@hf.agent
async def teller(n: int, every_s: float = 0.0, gate: str = "", at: int = 0) -> str:
    return await tell(n, every_s, gate, at)


@hf.agent
async def all_sorts(n: int) -> list[str]:
    """A step, one in a thread, an effect, one after the other: each is killed in its turn."""
    return [await tell(n, APART_S), await tell_in_thread(n, APART_S), await publish(n)]


def read_from(url: str, run_id: str, offset: int, path: str) -> None:
    """Be a process that reads a stream from an offset on, and says what it got."""

    async def reading() -> None:
        async with hf.connect(url) as app:
            found = [
                (event.number, event.kind, event.text, event.key, event.attempt)
                async for event in app.get(run_id).stream(offset=offset)
            ]
        Path(path).write_text(json.dumps(found))

    asyncio.run(reading())
