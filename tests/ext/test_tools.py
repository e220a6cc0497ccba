"""Tools for a loop of one's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.ext.tools import Tools, tool

made: list[str] = []


@tool
async def mail(to: str, copies: int = 1) -> dict[str, int]:
    """Send a mail.

    To somebody.
    """
    made.append(to)
    return {to: copies}


@tool(kind="step", name="find")
async def look(query: str) -> list[str]:
    return [query]


tools = Tools(mail, look)


@hf.agent
async def agent() -> list[str]:
    return [
        await tools.call("mail", '{"to": "ada", "copies": "2"}'),
        await tools.call("mail", {"copies": 1}),
        await tools.call("find", {"query": "x"}),
        await tools.call("lose", "{}"),
        str(await mail("bo")),
    ]


def test_a_tool_is_recorded_and_bad_arguments_are_told_before_anything_happens(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], list[str]]:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[agent]) as app:
            run = await app.start(agent(), id="r")
            return await run.result(timeout=30), [each.key for each in await run.history() if each.key]

    found, keys = asyncio.run(main())
    assert found == [
        '{"ada": 2}',
        "These arguments do not fit mail: to: Field required",
        '["x"]',
        "There is no tool lose; there are find, mail.",
        "{'bo': 1}",
    ]
    assert keys == ["mail#1", "find#1", "mail#2"]
    assert made == ["ada", "bo"]


def test_a_model_is_told_names_descriptions_and_schemas() -> None:
    first, second = tools.openai()
    assert first["function"]["description"] == "Send a mail.\n\nTo somebody."
    assert first["function"]["parameters"]["required"] == ["to"]
    assert second["function"]["name"] == "find"
    assert tools.anthropic()[0]["input_schema"]["properties"]["copies"]["default"] == 1


def test_what_cannot_be_a_tool_is_refused() -> None:
    with pytest.raises(hf.UsageError, match="same name"):
        Tools(mail, mail)
    with pytest.raises(hf.UsageError, match="async function"):
        tool(len)  # type: ignore[arg-type]
    with pytest.raises(hf.UsageError, match='"step" or an "effect"'):
        tool(kind="inside")  # type: ignore[call-overload]
