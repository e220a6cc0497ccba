"""Agents of Google's ADK: real packages, real kills."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import RunBlocked, RunFailed

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'holdfast[adk]'")

from google.adk.events.event_actions import EventActions
from google.adk.models import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from holdfast.ext.adk_values import ANSWER, RESULT, Told
from tests.eventually import eventually
from tests.ext import adk_bots as bots
from tests.ext.living import END, check, lived, notes, stormed

POST = "tests.ext.adk_bots:post"


def test_a_killed_agent_goes_on_and_a_tool_in_doubt_is_settled_with_what_it_returns(
    killed_url: str, folder: Path
) -> None:
    check(lived(killed_url, POST, folder=folder, faults=["effect.after_body:kill@3"]), folder)
    assert len([line for line in notes(folder) if line.startswith("model")]) <= 4


#: Three requests, four calls of a tool: 20 places to die at.
POINTS = [f"step.{when}_body:kill@{number}" for when in ("before", "after") for number in (1, 2, 3)] + [
    f"effect.{when}:kill@{number}"
    for when in ("before_intent", "after_intent", "after_body")
    for number in (1, 2, 3, 4)
]
POINTS += [f"effect.after_outcome:kill@{number}" for number in (1, 4)]


@pytest.mark.prove
@pytest.mark.parametrize("fault", POINTS)
def test_an_agent_that_is_killed_anywhere_comes_to_the_same_end(url: str, folder: Path, fault: str) -> None:
    check(lived(url, POST, folder=folder, faults=[fault]), folder)
    assert len([line for line in notes(folder) if line.startswith("model")]) <= 4


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(5))
def test_an_agent_in_a_storm_of_kills_comes_to_the_same_end(url: str, folder: Path, seed: int) -> None:
    check(stormed(url, POST, folder=folder, kills=10, seed=seed), folder)


async def result_of(url: str, agent: hf.Agent[..., Any], *arguments: Any) -> tuple[Any, list[str]]:
    async with hf.connect(url, agents=[agent]) as app:
        run = await app.start(agent(*arguments), id="r")
        found = await run.result(timeout=60)
        return found, [each.key for each in await run.history() if each.key]


def answered(url: str, agent: hf.Agent[..., Any], answer: Any, *arguments: Any) -> tuple[Any, Any]:
    """The question, and the result: it is answered when nobody has the run any more."""

    async def first() -> Any:
        async with hf.connect(url, agents=[agent]) as app:
            await app.start(agent(*arguments), id="r")
            (question,) = await eventually(app.questions)
            return question

    async def then() -> Any:
        async with hf.connect(url, agents=[agent]) as app:
            (question,) = await app.questions()
            await question.answer(answer)
            return await app.get("r", agent).result(timeout=60)

    return asyncio.run(first()), asyncio.run(then())


def test_keys_are_made_of_run_turn_and_call_and_two_runs_at_once_are_told_apart(url: str) -> None:
    found, keys = asyncio.run(result_of(url, bots.twice))
    assert found == [f"poster: {END}"] * 2
    assert {key for key in keys if key.endswith("model#3")} == {f"one~{n}/poster:1/model#3" for n in (1, 2)}
    assert len([key for key in keys if "/1/mail/adk-" in key and key.endswith("/mail#1")]) == 4


def test_a_confirmation_is_a_question_with_the_arguments_shown_and_no_process_waits(url: str, folder: Path) -> None:
    question, found = answered(url, bots.refunds, True, "refund")
    assert question.prompt == "May refund be called?"
    assert "500" in str(question.show)
    assert found == "paid 500"
    assert [line for line in notes(folder) if line.startswith("refund")] == ["refund 500"]
    assert notes(folder).count("model 0") == 1


def test_what_nobody_allows_is_not_called(tmp_path: Path, folder: Path) -> None:
    _, found = answered(str(tmp_path / "runs.db"), bots.refunds, False, "refund")
    assert "rejected" in found
    assert not [line for line in notes(folder) if line.startswith("refund")]


def test_what_a_long_running_tool_comes_to_is_asked(tmp_path: Path, folder: Path) -> None:
    question, found = answered(str(tmp_path / "runs.db"), bots.applies, "granted", "refund")
    assert question.prompt == "What has refund come to?"
    assert found == "granted"
    assert [line for line in notes(folder) if line.startswith("refund")] == ["refund 500"]


@pytest.mark.parametrize(("how", "why"), [("lost", "EffectInDoubt"), ("unstorable", "ResultNotStored")])
def test_a_model_that_tries_again_does_not_hear_of_what_may_have_happened(
    tmp_path: Path, folder: Path, how: str, why: str
) -> None:
    agent = bots.acting(how, on_doubt="fail")
    with pytest.raises(RunBlocked, match=why):
        asyncio.run(result_of(str(tmp_path / "runs.db"), agent, "go"))
    assert notes(folder) == ["act"]


def test_callbacks_hear_of_a_proven_failure_and_ids_may_repeat_from_turn_to_turn(tmp_path: Path, folder: Path) -> None:
    agent = bots.acting("refused", raises=bots.Refused)
    found, keys = asyncio.run(result_of(str(tmp_path / "runs.db"), agent, "go"))
    assert found == "done"
    assert notes(folder) == ["act"] * 3
    assert [key for key in keys if "act" in key] == [f"refused:1/{n}/act/call_0/act#1" for n in (1, 2, 3)]


@pytest.mark.filterwarnings("ignore:The `plugins` argument:DeprecationWarning")  # of the framework's own
@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
def test_agents_as_tools_side_by_side_and_handed_over_to_have_places_of_their_own(tmp_path: Path) -> None:
    found, keys = asyncio.run(result_of(str(tmp_path / "nested.db"), bots.outer_of(AgentTool(bots.poster)), "go"))
    assert found == f"{END} | {END}"
    places = {f"editor:1/1/poster/{each}/poster:1" for each in "ab"}
    assert {key for key in keys if key.endswith("model#3")} == {f"{place}/model#3" for place in places}
    assert len([key for key in keys if key.endswith("/mail#1")]) == 8
    found, keys = asyncio.run(result_of(str(tmp_path / "beside.db"), bots.side_by_side(), "go"))
    assert found == END
    assert {key for key in keys if key.endswith("model#3")} == {
        f"both:1/both.{each}/model#3" for each in ("left", "right")
    }
    found, keys = asyncio.run(result_of(str(tmp_path / "handed.db"), bots.front, "go"))
    assert found == END
    models = [key for key in keys if "model" in key]
    assert models == ["front:1/model#1", *(f"front:1/inner/model#{n}" for n in (1, 2, 3))]


def test_streams_are_as_without_and_a_replay_has_the_state_that_tools_left(url: str, folder: Path) -> None:
    bare = asyncio.run(bots.told(bots.runner_of(bots.poster).run_async, run_config=bots.SSE))
    (folder / "notes.txt").unlink()
    _, events = answered(url, bots.streams, True)
    assert events[:-1] == bare
    assert [each for each in bare if each.endswith("…")]
    assert events[-1] == str([(f"{turn}{who}", "sent") for turn in (1, 2) for who in "ab"])
    assert len(notes(folder)) == 10
    assert notes(folder)[:2] == ["model 1", "over"], "no tool is called before its call is recorded"


def test_media_and_what_a_tool_did_to_its_context_are_stored_as_they_are() -> None:
    part = types.Part.from_bytes(data=b"\xff\xd8", mime_type="image/png")
    told = Told({"pages": [part, 1], "note": None}, EventActions(state_delta={"a": [1]}, escalate=True))
    assert RESULT.load(json.loads(json.dumps(RESULT.dump(told)))) == told
    answer = [LlmResponse(content=types.Content(role="model", parts=[*bots.text("x"), part]), partial=False)]
    assert ANSWER.load(json.loads(json.dumps(ANSWER.dump(answer)))) == answer


def test_sessions_that_a_replay_would_write_again_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="not by SqliteSessionService"):
        asyncio.run(result_of(str(tmp_path / "runs.db"), bots.stored, str(tmp_path / "sessions.db")))


def test_an_agent_as_a_tool_without_plugins_is_one_effect(tmp_path: Path, folder: Path) -> None:
    agent = bots.outer_of(AgentTool(bots.poster, include_plugins=False))
    found, keys = asyncio.run(result_of(str(tmp_path / "runs.db"), agent, "go"))
    assert found == f"{END} | {END}"
    assert [key for key in keys if "model" not in key] == [f"editor:1/1/poster/{each}/poster#1" for each in "ab"]
