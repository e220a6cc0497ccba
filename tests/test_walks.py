"""How far a call goes: the numbers on the page on architecture, counted by a profile function."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import holdfast as hf

SRC = Path(hf.__file__).parent
PAGE = (SRC.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(SRC).as_posix() if path.is_relative_to(SRC) else None


@contextlib.contextmanager
def walked(begins: CodeType, later: str, until: str) -> Iterator[set[str]]:
    """The files whose functions are called by `begins`, or by the callback `later`, up to a call of `until`."""
    found: set[str] = set()
    names = [each.f_code for each in callers(sys._getframe())]

    def look(frame: FrameType, event: str, _: object) -> None:
        file = file_of(frame)
        if event != "call" or file in (None, "base/secrets.py") or frame.f_code in names:
            return  # secrets are asked where something in this process has had one
        if any(each.f_code is begins or each.f_code.co_qualname == later for each in callers(frame)):
            found.add(str(file))
            if frame.f_code.co_qualname == until:
                sys.setprofile(None)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


@hf.step
async def search(text: str) -> str:
    return text.upper()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'walks.db'}"


def test_a_step_goes_through_so_many_files_until_the_writer_has_it(url: str) -> None:
    @hf.agent
    async def walking(text: str) -> list[str]:
        await search("first")  # what is loaded or made once is
        with walked(sys._getframe().f_code, "Journal._turn", "Writer.submit") as found:
            await search(text)
            for _ in range(50):
                await asyncio.sleep(0)
        return sorted(found)

    files = hf.run(walking("tides"), url=url)
    assert {"verbs/step.py", "journal/chain.py", "store/sqlite/writer.py"} <= set(files)
    assert len(files) == said(r"That is (\d+) files, from the call to the writer's queue"), files
    assert len(files) <= 15


def test_so_many_coroutines_are_between_the_agent_and_the_body_of_an_effect(url: str) -> None:
    between: list[str] = []

    @hf.effect
    async def act(agent: str) -> str:
        for frame in callers(sys._getframe().f_back):
            if frame.f_code.co_name == agent:
                return agent
            if file_of(frame) is not None:
                between.append(frame.f_code.co_name)
        raise AssertionError("the agent does not await it")

    @hf.agent
    async def walking() -> str:
        return await act("walking")

    assert hf.run(walking(), url=url) == "walking"
    names = ", ".join(f"`{name}`" for name in reversed(between))
    assert f"Between the agent and the body there are {len(between)}: {names}." in PAGE, names
    assert len(between) <= 4


def test_a_signal_goes_through_so_many_files_of_the_sender_until_it_is_accepted(url: str) -> None:
    @hf.agent
    async def waits() -> str:
        return await hf.receive(("go", str))

    async def sends(run: hf.Run[Any]) -> list[str]:
        with walked(sys._getframe().f_code, "", "") as found:
            assert await run.send("go", "yes")
        return sorted(found)

    async def main() -> list[str]:
        async with hf.connect(url) as app:
            run = await app.start(waits())
            await run.send("go", "first")
            return await sends(run)

    files = asyncio.run(main())
    assert {"handle/run.py", "control/signals.py", "store/sqlite/writer.py"} <= set(files)
    assert len(files) == said(r"Sending is (\d+) files on the caller's thread"), files
    assert len(files) <= 25


def said(pattern: str) -> int:
    [number] = re.findall(pattern, " ".join(PAGE.split()))
    return int(number)
