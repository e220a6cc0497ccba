"""Tools of an MCP server: a real one on stdio, real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

pytest.importorskip("mcp", reason="mcp is not installed: pip install 'holdfast[mcp]'")

from tests.eventually import eventually
from tests.ext import mcp_bots as bots
from tests.ext.living import lived, notes

END = ["seen x", "sent 1a", "sent 1b"]


def test_a_killed_client_goes_on_and_a_tool_in_doubt_is_settled_with_its_text(tmp_path: Path, folder: Path) -> None:
    url = str(tmp_path / "runs.db")
    assert lived(url, "tests.ext.mcp_bots:post", folder=folder, faults=["effect.after_body:kill@1"]) == END
    assert [line for line in notes(folder) if line.startswith("mail")] == ["mail 1a", "mail 1b"]


def test_kinds_follow_annotations_and_a_replay_that_needs_no_server_starts_none(tmp_path: Path, folder: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def first() -> dict[str, str]:
        async with hf.connect(url, agents=[bots.post]) as app:
            run = await app.start(bots.post("go"), id="r")
            await eventually(app.questions)
            return {each.key: each.kind for each in await run.history() if each.key}

    async def then() -> Any:
        async with hf.connect(url, agents=[bots.post]) as app:
            await (await app.questions())[0].answer(False)
            return await app.get("r").result(timeout=60)

    kinds = asyncio.run(first())
    assert (str(kinds["look#1"]), str(kinds["mail#1"]), str(kinds["mcp.tools#1"])) == ("step", "effect", "step")
    assert asyncio.run(then()) == END[:2]
    assert notes(folder) == ["server started", "look x", "mail 1a"]
