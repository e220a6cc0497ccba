"""Bodies of calls that are made at run time: nobody keeps them, nor what they hold."""

from __future__ import annotations

import asyncio
import resource
import weakref
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import ext


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def test_the_body_of_a_call_is_let_go_of_when_the_call_is_over(file: str) -> None:
    class Heavy:
        """What a closure holds."""

    gone: list[weakref.ref[Heavy]] = []
    op = ext.Operation("op", "effect", returns=int)

    async def make(number: int) -> int:
        heavy = Heavy()
        gone.append(weakref.ref(heavy))

        async def body() -> int:
            return number if heavy is not None else 0

        return await op(body, shown={"number": number})

    @hf.agent
    async def agent() -> int:
        total = sum([await make(number) for number in range(20)])
        return total if not [each for each in gone if each() is not None] else -1

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            assert await (await app.start(agent(), id="r")).result(timeout=30) == 190

    asyncio.run(main())


@pytest.mark.prove
def test_ten_thousand_closures_of_100_kb_take_no_more_memory_than_one(file: str) -> None:
    op = ext.Operation("op", "step", returns=int)

    async def make(number: int) -> int:
        heavy = bytes([number % 256]) * 100_000

        async def body() -> int:
            return len(heavy)

        return await op(body, shown={"number": number})

    def held() -> int:
        """What of the memory is in use, in bytes: the most that there was says nothing about what is let go of."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    @hf.agent
    async def agent() -> int:
        for number in range(1_000):  # what is made once, and by the first calls
            await make(number)
        before = held()
        for number in range(10_000):
            await make(number)
        return held() - before

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            assert await (await app.start(agent(), id="r")).result(timeout=300) < 20_000_000

    asyncio.run(main())
