"""Graphs of LangGraph and agents of LangChain: real packages, real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

pytest.importorskip("langgraph", reason="langgraph is not installed: pip install 'holdfast[langgraph]'")
pytest.importorskip("langchain", reason="langchain is not installed: pip install 'holdfast[langchain]'")

from holdfast.ext.langgraph import drive
from tests.eventually import eventually
from tests.ext import graph_bots as bots
from tests.ext.living import lived, notes, stormed

POST, CHAT = "tests.ext.graph_bots:post", "tests.ext.graph_bots:chat"
ENDS: dict[str, Any] = {
    POST: ["sent 1a", "sent 1b", "sent 2a", "sent 2b", "True", "sent 3a"],
    CHAT: "sent 1a, sent 1b, sent 2a, sent 2b",
}
MAILS = {POST: ["1a", "1b", "2a", "2b", "3a"], CHAT: ["1a", "1b", "2a", "2b"]}


def check(agent: str, result: Any, folder: Path) -> None:
    assert result == ENDS[agent]
    done = [line for line in notes(folder) if line.startswith("mail")]
    assert sorted(done) == [f"mail {to}" for to in MAILS[agent]]


@pytest.mark.parametrize("agent", [POST, pytest.param(CHAT, marks=pytest.mark.prove)])
def test_what_was_killed_goes_on_and_a_call_in_doubt_is_settled_with_what_it_returns(
    tmp_path: Path, folder: Path, agent: str
) -> None:
    url = str(tmp_path / "runs.db")
    check(agent, lived(url, agent, folder=folder, faults=["effect.after_body:kill@3"]), folder)


@pytest.mark.prove
@pytest.mark.parametrize("agent", [POST, CHAT])
@pytest.mark.parametrize("point", ["effect.after_intent@1", "effect.after_body@2", "effect.after_outcome@4"])
def test_what_is_killed_anywhere_comes_to_the_same_end(url: str, folder: Path, agent: str, point: str) -> None:
    name, _, number = point.partition("@")
    check(agent, lived(url, agent, folder=folder, faults=[f"{name}:kill@{number}"]), folder)


@pytest.mark.prove
@pytest.mark.parametrize("agent", [POST, CHAT])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_in_a_storm_of_kills_comes_to_the_same_end(url: str, folder: Path, agent: str, seed: int) -> None:
    check(agent, stormed(url, agent, folder=folder, kills=10, seed=seed), folder)


async def result_of(url: str, agent: hf.Agent[..., Any], *arguments: Any) -> tuple[Any, list[str]]:
    async with hf.connect(url, agents=[agent]) as app:
        run = await app.start(agent(*arguments), id="r")
        found = await run.result(timeout=60)
        return found, [each.key for each in await run.history() if each.key]


def test_an_effect_before_an_interrupt_happens_once_and_no_process_waits(url: str, folder: Path) -> None:
    async def first() -> list[str]:
        async with hf.connect(url, agents=[bots.post]) as app:
            run = await app.start(bots.post("go"), id="r")
            (question,) = await eventually(app.questions)
            assert question.prompt == "More?"
            return [each.key for each in await run.history() if each.key]

    async def then() -> Any:
        async with hf.connect(url, agents=[bots.post]) as app:
            await (await app.questions())[0].answer(True)
            return await app.get("r").result(timeout=60)

    keys = asyncio.run(first())
    assert [key for key in keys if "mail" in key] == [
        "letters:1/1/first/key:mail.1",
        "letters:1/1/first/key:mail.2",
        "letters:1/2/second/key:mail.1",
    ]
    check(POST, asyncio.run(then()), folder)


def test_a_node_that_is_retried_makes_what_has_happened_no_second_time_and_what_failed_anew(
    tmp_path: Path, folder: Path
) -> None:
    bots.tries.clear()
    found, _ = asyncio.run(result_of(str(tmp_path / "runs.db"), bots.retried))
    assert found == ["charged 5", "taken"]
    assert notes(folder) == ["charge 5", "try", "try", "try"]


def test_nodes_at_the_same_time_are_told_apart(url: str, folder: Path) -> None:
    found, keys = asyncio.run(result_of(url, bots.fanned_out))
    assert found == 5
    assert sorted(notes(folder)) == [f"mail {n}" for n in range(5)]
    assert len({key for key in keys if key.endswith("key:mail.1")}) == 5
    assert not [key for key in keys if "pregel" in key]


def test_the_middleware_names_calls_by_their_ids(url: str, folder: Path) -> None:
    found, keys = asyncio.run(result_of(url, bots.chat, "go"))
    check(CHAT, found, folder)
    assert len([key for key in keys if "/tools" in key and "key:post_mail." in key]) == 4
    assert len([key for key in keys if key.endswith("/model/key:model.1")]) == 3


def test_outside_of_a_run_functions_are_plain_and_graphs_are_not_driven(folder: Path) -> None:
    async def main() -> None:
        assert await bots.mail("x") == "sent x"
        assert bots.mail_plainly("y") == "sent y"
        with pytest.raises(hf.NotInRun, match="inside a run only"):
            await drive(bots.compiled(), {})

    asyncio.run(main())
