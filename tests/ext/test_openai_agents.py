"""Agents of the OpenAI Agents SDK: real packages, real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import RunBlocked, UsageError

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'holdfast[openai-agents]'")

from agents import Runner

from holdfast.ext.openai_agents import durable, durable_tool
from tests.eventually import eventually
from tests.ext import openai_bots as bots
from tests.ext.living import END, check, lived, notes, stormed

POST = "tests.ext.openai_bots:post"


def test_a_killed_agent_goes_on_and_a_tool_in_doubt_is_settled_with_what_it_returns(
    killed_url: str, folder: Path
) -> None:
    check(lived(killed_url, POST, folder=folder, faults=["effect.after_body:kill@3"]), folder)
    assert len([line for line in notes(folder) if line.startswith("model")]) <= 4


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


async def result_of(url: str, agent: hf.Agent[..., Any], *arguments: Any, run_id: str = "r") -> tuple[Any, list[str]]:
    async with hf.connect(url, agents=[agent]) as app:
        run = await app.start(agent(*arguments), id=run_id)
        found = await run.result(timeout=60)
        return found, [each.key for each in await run.history() if each.key]


def test_keys_are_made_of_run_turn_and_call_and_two_runs_at_once_are_told_apart(url: str) -> None:
    found, keys = asyncio.run(result_of(url, bots.twice))
    assert found == [END, END]
    assert {key for key in keys if key.endswith("model#3")} == {f"run~{n}/poster:1/model#3" for n in (1, 2)}
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
    assert notes(folder) == []
    assert asyncio.run(then()) == "paid 500"
    assert notes(folder) == ["refund 500"]


@pytest.mark.parametrize(("how", "why"), [("lost", "EffectInDoubt"), ("unstorable", "ResultNotStored")])
def test_a_model_that_tries_again_does_not_hear_of_what_may_have_happened(
    tmp_path: Path, folder: Path, how: str, why: str
) -> None:
    agent = bots.acting(how, on_doubt="fail")
    with pytest.raises(RunBlocked, match=why):
        asyncio.run(result_of(str(tmp_path / "runs.db"), agent, "go"))
    assert notes(folder) == ["act"]


def test_the_handler_of_the_sdk_hears_of_a_proven_failure(tmp_path: Path, folder: Path) -> None:
    agent = bots.acting("refused", raises=bots.Refused)
    found, keys = asyncio.run(result_of(str(tmp_path / "runs.db"), agent, "go"))
    assert found == "done"
    assert notes(folder) == ["act"] * 3
    assert [key for key in keys if "act" in key] == [f"refused:1/{n + 1}/act/call_{n}/act#1" for n in range(3)]


def test_agents_as_tools_at_the_same_time_have_places_of_their_own(url: str) -> None:
    found, keys = asyncio.run(result_of(url, bots.edit, "go"))
    assert found == f"{END} | {END}"
    assert {key for key in keys if key.endswith("model#3")} == {f"editor:1/1/write/{each}/model#3" for each in "ab"}
    assert len([key for key in keys if key.endswith("/mail#1")]) == 8


def test_streams_handoffs_and_plain_runs_are_as_without(url: str) -> None:
    async def bare() -> tuple[list[str], str]:
        result = Runner.run_streamed(bots.poster, "go", run_config=bots.QUIET)
        kinds = [event.type async for event in result.stream_events()]
        handed = await Runner.run(bots.front, "go", run_config=bots.QUIET)
        return [*kinds, str(result.final_output)], handed.final_output

    async def first() -> None:
        async with hf.connect(url, agents=[bots.streams]) as app:
            await app.start(bots.streams(), id="r")
            await eventually(app.questions)

    async def then() -> Any:
        async with hf.connect(url, agents=[bots.streams]) as app:
            await (await app.questions())[0].answer(True)
            return await app.get("r").result(timeout=60)

    events, handed = asyncio.run(bare())
    asyncio.run(first())
    assert asyncio.run(then()) == events
    assert events[-1] == END
    front = durable(bots.front, run_config=bots.QUIET)
    found, _ = asyncio.run(result_of(url, front, "go", run_id="handed"))
    assert found == handed


def test_tools_of_mcp_servers_are_not_called_again_on_replay(url: str, folder: Path) -> None:
    async def first() -> list[str]:
        async with hf.connect(url, agents=[bots.served]) as app:
            run = await app.start(bots.served(), id="r")
            await eventually(app.questions)
            return [each.key for each in await run.history() if "mail" in each.key]

    async def then() -> Any:
        async with hf.connect(url, agents=[bots.served]) as app:
            await (await app.questions())[0].answer(True)
            return await app.get("r").result(timeout=60)

    keys = asyncio.run(first())
    assert [key.rpartition(".")[2] for key in keys] == ["1", "2"]
    assert all(key.startswith("served:1/1/mail/key:") for key in keys)
    assert asyncio.run(then()) == "2 sent"
    assert notes(folder) == ["mail 1a", "mail 1a"]


def test_what_is_no_agent_and_no_tool_is_refused_where_it_is_given() -> None:
    wrong: Any = bots.post
    with pytest.raises(UsageError, match="takes an Agent of the OpenAI Agents SDK"):
        durable(wrong)
    with pytest.raises(UsageError, match="what @function_tool made"):
        durable_tool(wrong)
