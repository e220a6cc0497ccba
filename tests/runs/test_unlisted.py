"""An app that executes starts what it was given; it would lose anything else after a crash."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf


@dataclass
class Page:
    title: str
    number: int


@hf.agent
async def listed(n: int = 1) -> int:
    return n + 1


@hf.agent
async def child() -> str:
    return "a child"


@hf.agent
async def parent() -> str:
    return await child()


@hf.agent
async def unlisted() -> Page:
    return Page("tides", 1)


REFUSAL = (
    "This app executes listed, parent, and not unlisted: nobody would go on with the run after a crash. "
    "Pass unlisted to hf.connect(agents=[…]) too, or start it in an app without agents=, for a worker that has it."
)


@pytest.mark.parametrize("more", [{}, {"queue": "mail"}, {"paused": True}, {"delay": 60}], ids=repr)
def test_an_app_that_executes_refuses_to_start_an_agent_that_it_was_not_given(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=[parent, listed]) as app:
            with pytest.raises(hf.UsageError) as caught:
                await app.start(unlisted(), id="u", **more)
            assert str(caught.value) == REFUSAL
            with pytest.raises(hf.RunNotFound):
                await app.get("u").status()
            assert await (await app.start(parent())).result() == "a child"
            with pytest.raises(hf.UsageError):  # its parent had it executed here, and no restart will
                await app.start(child())

    asyncio.run(main())


def test_a_client_starts_any_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db") as client, hf.connect(tmp_path / "s.db", agents=unlisted):
            assert await (await client.start(unlisted())).result(timeout=60) == Page("tides", 1)

    asyncio.run(main())


def test_a_handle_that_knows_the_agent_has_its_type_in_a_client_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=unlisted) as app:
            token = (await app.start(unlisted(), id="u")).token
            await app.get(token).result()
        async with hf.connect(tmp_path / "s.db") as client:
            assert await client.get(token, unlisted).result() == Page("tides", 1)
            assert await client.get(token).result() == {"title": "tides", "number": 1}
            with pytest.raises(hf.UsageError) as caught:
                await client.get(token, listed).result()
            assert str(caught.value) == "Run u is of agent 'unlisted', not 'listed'."
            with pytest.raises(hf.UsageError, match=r"function decorated with @hf\.agent; got 'unlisted'"):
                client.get(token, "unlisted")  # type: ignore[call-overload]

    asyncio.run(main())
