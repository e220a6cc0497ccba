"""A saga inside another one, next to other branches: all is undone in the reverse order of the outcomes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf

DONE: list[str] = []


@hf.effect(settle=0)
async def book(what: str, after_s: float) -> str:
    await asyncio.sleep(after_s)
    DONE.append(what)
    return what


@book.undo
async def unbook(booked: str | None, what: str, after_s: float) -> None:
    DONE.append(f"-{what}")


@hf.agent
async def trip() -> None:
    async def inner() -> None:
        async with hf.saga():
            await book("first", 0)
            await book("third", 0.2)

    async def beside() -> None:
        await book("second", 0.1)

    async with hf.saga():
        await asyncio.gather(inner(), beside())
        raise ValueError("no")


def test_what_an_inner_saga_did_is_undone_in_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[trip]) as app:
            with pytest.raises(hf.RunFailed):
                await (await app.start(trip())).result(timeout=60)

    asyncio.run(main())
    assert DONE == ["first", "second", "third", "-third", "-second", "-first"]
