"""A process that moves runs: it creates them, parks and ends them. For the tests of what has moved."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from holdfast.base.config import Settings
from holdfast.model import Kind, Status, WorkerId
from holdfast.store import open_store
from holdfast.testing.samples import append, extend, new_run


async def move(url: str, name: str, count: int, *, opened: Callable[[], object] = int) -> None:
    store = open_store(url, settings=Settings())
    await store.open()
    opened()
    owner = WorkerId(f"w_{name}")
    for number in range(count):
        row = await store.create(new_run(f"{name}-{number:05d}"), owner=owner)
        step = extend(row, Kind.done)
        await append(store, step)
        status = Status.waiting if number % 3 else Status.failed
        await append(store, extend(step.row, Kind.done, status=status, release=True))
    await store.close()


def wait_until_told() -> None:
    print("opened", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    begin = wait_until_told if sys.argv[4:] == ["told"] else int
    asyncio.run(move(sys.argv[1], sys.argv[2], int(sys.argv[3]), opened=begin))
