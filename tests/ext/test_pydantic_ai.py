"""Agents of Pydantic AI: real packages, real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: pip install 'holdfast[pydantic-ai]'")

from pydantic_ai.models.test import TestModel

from holdfast.ext.pydantic_ai import Durability, durable
from tests.eventually import eventually
from tests.ext import pydantic_bots as bots
from tests.ext.living import END, check, lived, notes, stormed

POST = "tests.ext.pydantic_bots:post"


def test_a_killed_agent_goes_on_and_a_tool_in_doubt_is_settled_with_what_it_returns(
    killed_url: str, folder: Path
) -> None:
    check(lived(killed_url, POST, folder=folder, faults=["effect.after_body:kill@3"]), folder)
    assert len([line for line in notes(folder) if line.startswith("model")]) <= 4  # one is paid twice at most


@pytest.mark.prove
@pytest.mark.parametrize(
    "fault",
    [
        "step.before_body@2",
        "step.after_body@1",
        "effect.after_intent@1",
        "effect.after_body@2",
        "effect.after_outcome@4",
    ],
)
def test_an_agent_that_is_killed_anywhere_comes_to_the_same_end(url: str, folder: Path, fault: str) -> None:
    point, _, number = fault.partition("@")
    check(lived(url, POST, folder=folder, faults=[f"{point}:kill@{number}"]), folder)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(5))
def test_an_agent_in_a_storm_of_kills_comes_to_the_same_end(url: str, folder: Path, seed: int) -> None:
    check(stormed(url, POST, folder=folder, kills=10, seed=seed), folder)


def test_keys_are_made_of_run_step_and_call_and_two_runs_at_once_are_told_apart(url: str) -> None:
    async def main() -> list[str]:
        async with hf.connect(url, agents=[bots.twice]) as app:
            run = await app.start(bots.twice(), id="r")
            assert await run.result(timeout=60) == [END, END]
            return [each.key for each in await run.history() if each.key]

    keys = asyncio.run(main())
    assert {key for key in keys if key.endswith("model#3")} == {f"run~{n}/poster:1/model#3" for n in (1, 2)}
    assert not [key for key in keys if "_run" in key]
    assert len([key for key in keys if "/1/mail/" in key and key.endswith("/mail#1")]) == 4


def test_an_approval_is_a_question_with_the_arguments_shown_and_no_process_waits(url: str, folder: Path) -> None:
    async def first() -> None:
        async with hf.connect(url, agents=[bots.refunds]) as app:
            await app.start(bots.refunds("refund"), id="r")
            (question,) = await eventually(app.questions)
            assert question.prompt == "May refund be called?"
            assert "500" in str(question.show)

    async def then() -> Any:
        async with hf.connect(url, agents=[bots.refunds]) as app:
            (question,) = await app.questions()
            await question.answer(True)
            return await app.get("r", bots.refunds).result(timeout=60)

    asyncio.run(first())
    assert notes(folder) == ["model 0"]
    assert asyncio.run(then()) == "paid 500, {'at': 'ledger'}"
    assert notes(folder) == ["model 0", "refund 500", "model 2"]


def test_outside_of_a_run_the_agent_is_what_it_was(folder: Path) -> None:
    async def main() -> None:
        with bots.poster.override(model=TestModel(custom_output_text="hi", call_tools=[])):
            result = await bots.poster.run("go", capabilities=[Durability()])
        assert result.output == "hi"

    asyncio.run(main())


def test_a_retry_that_a_tool_asks_for_is_told_to_the_model_live_and_on_replay(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=[bots.picky]) as app:
            await app.start(bots.picky(), id="r")
            await eventually(app.questions)
        async with hf.connect(url, agents=[bots.picky]) as app:
            await (await app.questions())[0].answer(True)
            assert await app.get("r").result(timeout=60) == "took 2 after 2 requests"

    asyncio.run(main())


def test_a_model_that_streams_is_recorded_as_one_that_does_not(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=[bots.streaming]) as app:
            await app.start(bots.streaming(), id="r")
            await eventually(app.questions)
        async with hf.connect(url, agents=[bots.streaming]) as app:
            await (await app.questions())[0].answer(True)
            assert await app.get("r").result(timeout=60) == "one two"

    asyncio.run(main())


def test_what_is_no_agent_is_refused_where_it_is_given() -> None:
    wrong: Any = bots.post
    with pytest.raises(hf.UsageError, match="takes an Agent of Pydantic AI"):
        durable(wrong)
