"""Agents for the crash tests, and the outside world that they change: files in $HOLDFAST_TEST_FOLDER.

The world is the truth. It is never asked about keys or attempts by Holdfast, only by `verify`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import holdfast as hf
from holdfast.testing import Ledger
from holdfast.testing.ledger import whole_lines

ledger = Ledger()


class World:
    """What was done, and taken back: one line each, appended in one write."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def path(self) -> Path:
        return (self._folder or Path(os.environ["HOLDFAST_TEST_FOLDER"])) / "world.jsonl"

    def act(self, what: str, value: object, *, key: str) -> None:
        line = json.dumps({"what": what, "value": value, "key": key}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def deeds(self) -> list[tuple[str, object, str]]:
        lines = [json.loads(line) for line in whole_lines(self.path)]
        return [(line["what"], line["value"], line["key"]) for line in lines]

    def values(self, what: str) -> list[object]:
        return [value for w, value, _ in self.deeds() if w == what]

    def has(self, what: str, key: str) -> bool:
        return any((w, k) == (what, key) for w, _, k in self.deeds())


world = World()


def act(what: str, value: object) -> None:
    """What every effect here does."""
    with ledger.effect():
        world.act(what, value, key=hf.this_step().idempotency_key)


@hf.step
async def look(n: int) -> int:
    with ledger.step():
        return n * 10


@hf.step
def think(n: int) -> int:
    """In a thread."""
    with ledger.step():
        time.sleep(0.002)
        return n + 1


# an effect that can be looked up


@hf.effect(settle=0)
async def post(n: int) -> str:
    act("post", n)
    return f"posted-{n}"


@post.verify
async def find_post(n: int) -> hf.Verdict[str]:
    return hf.landed(f"posted-{n}") if world.has("post", hf.this_step().idempotency_key) else hf.not_landed()


@hf.agent
async def sequence(n: int) -> list[object]:
    """Steps and effects, one after the other."""
    seen: list[object] = []
    for i in range(n):
        seen.append(await look(i))
        seen.append(await post(i))
    seen.append(await think(n))
    return seen


# one effect per rule


@hf.effect(on_doubt="ask")
async def asked(n: int) -> str:
    act("asked", n)
    return f"asked-{n}"


@hf.effect(on_doubt="retry")
async def retried(n: int) -> str:
    act("retried", n)
    return f"retried-{n}"


@hf.effect(on_doubt="undo")
async def undone(n: int) -> str:
    act("undone", n)
    return f"undone-{n}"


@undone.undo
async def undo_undone(result: str | None, n: int) -> None:
    act("undo-undone", n)


@hf.effect(on_doubt="fail")
async def failing(n: int) -> str:
    act("failing", n)
    return f"failing-{n}"


@hf.agent
async def asks(n: int) -> list[object]:
    return [await look(n), await asked(n), await look(n + 1)]


@hf.agent
async def retries(n: int) -> list[object]:
    return [await look(n), await retried(n), await look(n + 1)]


@hf.agent
async def undoes(n: int) -> list[object]:
    try:
        done: object = await undone(n)
    except hf.EffectUndone:
        done = "taken back"
    return [await look(n), done, await post(n)]


@hf.agent
async def fails(n: int) -> list[object]:
    return [await look(n), await failing(n), await look(n + 1)]


# a saga that fails in the middle


class SoldOut(Exception):
    pass


@hf.effect(settle=0)
async def book(what: str) -> str:
    act("book", what)
    return f"{what}-ticket"


@book.verify
async def find_booking(what: str) -> hf.Verdict[str]:
    return hf.landed(f"{what}-ticket") if world.has("book", hf.this_step().idempotency_key) else hf.not_landed()


@book.undo
async def cancel_booking(ticket: str | None, what: str) -> None:
    with ledger.effect():
        key = hf.this_step().undoes
        assert key is not None
        world.act("cancel", what, key=key)


@hf.effect(raises=SoldOut, settle=0)
async def book_hotel(what: str) -> str:
    raise SoldOut(what)


@book_hotel.verify
async def find_hotel(what: str) -> hf.Verdict[str]:
    return hf.not_landed()


@hf.agent
async def trip(city: str) -> str:
    async with hf.saga():
        await book(f"flight to {city}")
        await book(f"car in {city}")
        await book_hotel(f"hotel in {city}")
    return "booked"


# branches


async def branch(n: int) -> list[object]:
    first = await look(n)
    return [first, await post(n), await think(n)]


@hf.agent
async def fan(n: int) -> list[object]:
    return list(await asyncio.gather(*(branch(i) for i in range(n))))


# a child run


@hf.agent
async def small(n: int) -> list[object]:
    return [await look(n), await post(n)]


@hf.agent
async def parent(n: int) -> list[object]:
    before = await post(100)
    return [before, await small(n), await post(200)]


@hf.agent
async def starts(n: int) -> str:
    """A run that starts another one and does not wait for it."""
    side = await hf.start(small(n))
    await post(300)
    return side.id.partition(".")[0]


# races and timeouts


@hf.step
async def slow(n: int) -> int:
    await asyncio.sleep(30)
    return n


@hf.agent
async def racer(n: int) -> list[object]:
    won = await hf.race(slow(n), look(n))
    return [won, await post(n)]


@hf.agent
async def timed(n: int) -> list[object]:
    seen: list[object] = []
    try:
        async with hf.timeout(0.05):
            seen.append(await slow(n))
    except TimeoutError:
        seen.append("too late")
    async with hf.timeout(60):
        seen.append(await post(n))
    return [*seen, await look(n)]


# failures that are repeated


@hf.step(retries=hf.Retry(3, first=0.001))
async def flaky_step(n: int) -> int:
    """Fails until the world has been asked three times."""
    with ledger.step():
        world.act("asked for", n, key=hf.this_step().key)
        if sum(what == "asked for" for what, _, _ in world.deeds()) < 3:
            raise ConnectionError("not yet")
        return n


class Busy(Exception):
    pass


@hf.effect(retries=hf.Retry(5, first=0.001), retry_on=Busy, settle=0)
async def flaky_post(n: int) -> str:
    """Says that it is busy until it has been called twice; only then does it act."""
    world.act("called", n, key="-")
    if sum(what == "called" for what, _, _ in world.deeds()) < 2:
        raise Busy
    act("flaky", n)
    return f"flaky-{n}"


@flaky_post.verify
async def find_flaky(n: int) -> hf.Verdict[str]:
    return hf.landed(f"flaky-{n}") if world.has("flaky", hf.this_step().idempotency_key) else hf.not_landed()


@hf.agent
async def stubborn(n: int) -> list[object]:
    return [await flaky_step(n), await flaky_post(n), await think(n)]


# large values


@hf.step
async def fetch(size: int) -> str:
    return "page " * (size // 5)


@hf.effect(settle=0)
async def publish(text: str) -> dict[str, str]:
    act("publish", len(text))
    return {"echo": text[:20_000]}


@publish.verify
async def find_published(text: str) -> hf.Verdict[dict[str, str]]:
    found = world.has("publish", hf.this_step().idempotency_key)
    return hf.landed({"echo": text[:20_000]}) if found else hf.not_landed()


@hf.agent
async def large(text: str) -> list[object]:
    page = await fetch(100_000)
    published = await publish(page + text)
    return [len(page), published, text]
