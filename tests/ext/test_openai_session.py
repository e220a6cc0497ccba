"""Sessions of the OpenAI Agents SDK in the store of the runs, with real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import UsageError

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'holdfast[openai-agents]'")

from agents.memory import Session as Protocol
from agents.memory import SessionSettings, SQLiteSession

from holdfast.ext.openai_agents_session import Session
from tests.ext.living import lived, notes
from tests.ext.session_bots import talk, talked


async def stock() -> list[Any]:
    session = SQLiteSession("ada")
    try:
        return await talked(session)
    finally:
        session.close()


async def items(url: str) -> list[Any]:
    async with hf.connect(url) as app:
        return await Session("ada", app=app).get_items()


def test_a_conversation_is_what_it_is_with_the_session_of_the_sdk(url: str) -> None:
    async def main() -> None:
        expected = await stock()
        async with hf.connect(url, agents=[talk]) as app:
            assert isinstance(Session("ada", app=app), Protocol)
            assert await talked(Session("ada", app=app)) == expected
            await Session("ada", app=app).clear_session()
            assert await Session("ada", app=app).get_items() == []
            assert await Session("ada", app=app).pop_item() is None
            run = await app.start(talk("go"), id="r")
            assert await run.result(timeout=60) == expected
            keys = [each.key for each in await run.history() if each.key]
            assert "counter:1/session/ada/get_items#1" in keys
            assert await Session("ada", app=app, session_settings=SessionSettings(limit=3)).get_items() == expected[-2]
            spaces = await app.extension("openai_agents").spaces()
            assert sorted(spaces) == ["1:ada", "done:ada", "sessions"], "what was cleared is gone"

    asyncio.run(main())


def check_killed(url: str, folder: Path, faults: list[str]) -> None:
    expected = asyncio.run(stock())
    (folder / "notes.txt").unlink()
    assert lived(url, "tests.ext.session_bots:talk", folder=folder, faults=faults) == expected
    assert asyncio.run(items(url)) == expected[-1]
    assert len(notes(folder)) == len(set(notes(folder))), "no request is paid twice"


def test_a_conversation_that_is_killed_after_something_was_added_has_it_once(tmp_path: Path, folder: Path) -> None:
    check_killed(str(tmp_path / "runs.db"), folder, ["define.after_commit:kill@3"])


@pytest.mark.prove
def test_a_conversation_that_is_killed_around_each_change_comes_to_the_same_end(url: str, folder: Path) -> None:
    check_killed(url, folder, [f"define.{when}_commit:kill@2" for when in ("after", "before", "after", "before")])


def test_those_who_add_at_the_same_time_are_both_heard(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as first, hf.connect(url) as second:
            said = [[{"role": "user", "content": f"{who}{number}"} for number in range(3)] for who in "ab"]
            sessions = [Session("ada", app=app) for app in (first, second)]
            await asyncio.gather(*(each.add_items(given) for each, given in zip(sessions, said, strict=True)))
            assert await sessions[0].get_items() in (said[0] + said[1], said[1] + said[0])
            assert await sessions[1].get_items(limit=0) == []
            with pytest.raises(UsageError, match="outside of one there is"):
                await Session("ada").get_items()

    asyncio.run(main())
