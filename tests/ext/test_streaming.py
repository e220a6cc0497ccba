"""Answers that come in parts, at the seam: live as they arrive, but for what a framework acts upon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import holdfast as hf
from holdfast import ext
from tests.eventually import eventually

SPOKEN = ext.Operation("speak", returns=list[str])


def test_parts_are_heard_as_they_arrive_and_what_is_acted_upon_when_it_is_recorded(tmp_path: Path) -> None:
    lives: list[list[str]] = []

    @hf.agent
    async def listen() -> list[str]:
        has_heard = asyncio.Event()
        lives.append(story := [])

        async def speak() -> AsyncIterator[str]:
            yield "so"
            await has_heard.wait()
            yield "CALL"
            yield "far"
            for _ in range(20):
                await asyncio.sleep(0)
            story.append("over")

        answer = ext.streamed(SPOKEN, speak, path="bot:1", is_live=str.islower)
        async with aclosing(answer) as parts:
            async for part in parts:
                story.append(part)
                has_heard.set()
        await hf.ask("Go on?")
        return story

    async def first() -> list[str]:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[listen]) as app:
            run = await app.start(listen(), id="r")
            await eventually(app.questions)
            return [each.key for each in await run.history() if each.key]

    async def then() -> list[str]:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[listen]) as app:
            await (await app.questions())[0].answer(True)
            return await app.get("r", listen).result(timeout=60)

    assert "bot:1/speak#1" in asyncio.run(first())
    assert asyncio.run(then()) == ["so", "CALL", "far"]
    assert lives[0] == ["so", "over", "CALL", "far"]
