"""Agents that clean up, and are cancelled while they do. Everything that happens is written to a file.

python cleaning.py AGENT RUN URL LEDGER
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast as hf
from tests.eventually import eventually

LEDGER = Path(os.environ.get("CLEANING_LEDGER", "ledger"))
THINGS = ("flight", "hotel", "car")


def write(line: str) -> None:
    with LEDGER.open("a") as file:
        file.write(line + "\n")


def lines() -> list[str]:
    return LEDGER.read_text().splitlines() if LEDGER.exists() else []


async def until(line: str) -> None:
    await eventually(lambda: line in lines())


@hf.effect(settle=0)
async def book(what: str) -> str:
    write(f"+{what}")
    return what


@book.undo
async def unbook(booked: str | None, what: str) -> None:
    write(f"undoing {what}")
    await asyncio.sleep(0.05)
    write(f"-{what}")


@hf.effect(settle=0, on_doubt="retry")
async def release(what: str) -> str:
    write(f"undoing {what}")
    await asyncio.sleep(0.05)
    write(f"-{what}")
    return what


@hf.step
async def forget(what: str) -> str:
    write(f"undoing {what}")
    await asyncio.sleep(0.05)
    write(f"-{what}")
    return what


@hf.step
async def wait_for(line: str) -> None:
    await until(line)


async def saga() -> None:
    """Fails, and undoes."""
    async with hf.saga():
        for thing in THINGS:
            await book(thing)
        raise ValueError("no seats")


async def nested() -> None:
    async with hf.saga():
        await book("flight")
        async with hf.saga():
            await book("hotel")
        async with hf.saga():
            await book("car")
            raise ValueError("no seats")


async def child() -> None:
    async with hf.saga():
        await book("flight")
        await rest_of_the_trip()


@hf.agent
async def rest_of_the_trip() -> None:
    async with hf.saga():
        await book("hotel")
        await book("car")
        await hf.sleep(1000)


async def cleaned_up(clean: Callable[[str], Awaitable[Any]]) -> None:
    """Is cancelled, and cleans up in a `finally`."""
    inner = asyncio.ensure_future(hf.sleep(1000))
    try:
        inner.cancel()
        await inner
    finally:
        for thing in reversed(THINGS):
            await clean(thing)


async def effects_in_finally() -> None:
    await cleaned_up(release)


async def steps_in_finally() -> None:
    await cleaned_up(forget)


async def tasks_in_finally() -> None:
    async def in_a_task(thing: str) -> None:
        await asyncio.create_task(release(thing))

    await cleaned_up(in_a_task)


CLEANERS: dict[str, Callable[[], Awaitable[None]]] = {
    each.__name__: each for each in (saga, nested, child, effects_in_finally, steps_in_finally, tasks_in_finally)
}
FIRST = {"child": "+car"}  # what tells that there is something to clean up


async def by_timeout(cleaner: str) -> str:
    async with hf.timeout(0.1):
        await CLEANERS[cleaner]()
    return "not cancelled"


async def by_plain_timeout(cleaner: str) -> str:
    async with asyncio.timeout(0.1):
        await CLEANERS[cleaner]()
    return "not cancelled"


async def by_wait_for(cleaner: str) -> str:
    await asyncio.wait_for(CLEANERS[cleaner](), 0.1)
    return "not cancelled"


async def fails(cleaner: str) -> str:
    await wait_for(FIRST.get(cleaner, "undoing car"))
    raise KeyError("the sibling")


async def by_gather(cleaner: str) -> str:
    await asyncio.gather(CLEANERS[cleaner](), fails(cleaner))
    return "not cancelled"


async def by_group(cleaner: str) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(_branch(cleaner))
        group.create_task(fails(cleaner))
    return "not cancelled"


async def _branch(cleaner: str) -> None:
    await CLEANERS[cleaner]()


async def by_race(cleaner: str) -> str:
    await hf.race(_branch(cleaner), fails(cleaner))
    return "not cancelled"


async def by_person(cleaner: str) -> str:
    await CLEANERS[cleaner]()
    return "not cancelled"


async def by_person_in_a_branch(cleaner: str) -> str:
    await asyncio.gather(_branch(cleaner), hf.sleep(1000))
    return "not cancelled"


WAYS: dict[str, Callable[[str], Awaitable[str]]] = {
    each.__name__: each
    for each in (
        by_timeout,
        by_plain_timeout,
        by_wait_for,
        by_gather,
        by_group,
        by_race,
        by_person,
        by_person_in_a_branch,
    )
}


@hf.agent
async def cleans(way: str, cleaner: str) -> str:
    return await WAYS[way](cleaner)


AGENTS: list[hf.Agent[..., Any]] = [cleans, rest_of_the_trip]


async def work(url: str) -> None:
    async with hf.connect(url, agents=AGENTS) as app:
        await app.work()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
