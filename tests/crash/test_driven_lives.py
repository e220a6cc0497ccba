"""A life that somebody has to help along is killed behind its waits as well, or the test says that it was not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.testing import Life, Survival, assert_survives
from tests.crash import permits
from tests.crash.agents import World

EFFECT = ["effect.*"]


def drive(url: str, run_id: str) -> None:
    """What a person does who permits everything, except for a question that is meant for nobody."""

    async def permit() -> None:
        async with hf.connect(url) as app:
            for question in await app.questions():
                if question.prompt == "May I?":
                    await question.answer(True, by="ada")
            if (await app.get(run_id).info()).agent.startswith("receives"):
                await app.get(run_id).send(permits.permit, True, dedup="permit")

    asyncio.run(permit())


def paid(life: Life) -> None:
    assert set(World(life.folder).values("paid")) == {1}
    assert life.result == 1


def second_deaths(survival: Survival) -> Counter[str]:
    """Where recovery was killed, and how often; what had to be tried again counts once."""
    return Counter(deaths[1].partition("@")[0] for deaths in {life.deaths for life in survival.lives} if deaths[1:])


@pytest.fixture(scope="module")
def unasked() -> Survival:
    """The same agent, if it waits for nothing."""
    return assert_survives(permits.pays(1), points=EFFECT, check=paid)


#: They take their time, and are much like the others.
ALIKE = (
    permits.asks,
    permits.lets_ask,
    permits.asks_in_time,
    permits.receives,
    permits.receives_until,
    permits.asks_while_it_sleeps,
)


@pytest.mark.parametrize(
    "agent",
    [
        permits.asks_until,
        *(pytest.param(each, marks=pytest.mark.prove) for each in ALIKE),
    ],
    ids=lambda agent: agent.name,
)
def test_an_agent_that_waits_and_then_pays_is_killed_as_often_as_one_that_just_pays(
    agent: hf.Agent[[int], int], unasked: Survival
) -> None:
    survival = assert_survives(agent(1), drive=drive, points=EFFECT, check=paid)
    assert survival.points == unasked.points
    assert {life.deaths[0] for life in survival.lives} == {*survival.points}
    assert second_deaths(survival) == second_deaths(unasked)
    assert survival.kills >= len(survival.points) + 2 * second_deaths(survival).total()


def test_points_are_counted_over_all_processes_of_a_life() -> None:
    survival = assert_survives(permits.asks_until(1), drive=drive, points=["append.after_commit", "claim.*", "park.*"])
    assert {"park.after@1", "claim.after_commit@1", "append.after_commit@2"} <= {*survival.points}
    assert len({*survival.points}) == len(survival.points)
    assert {life.deaths[0].partition("@")[0] for life in survival.lives} >= {"park.after", "claim.after_commit"}


def test_what_is_left_open_on_purpose_is_waited_for() -> None:
    survival = assert_survives(permits.asks_in_vain(1), drive=drive, points=["effect.after_body"], check=paid)
    assert survival.kills >= 1


def said(call: hf.Call[int], drive: Callable[[str, str], object] | None, **more: Any) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        assert_survives(call, drive=drive, **more)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("call", "open_wait"),
    [
        (permits.asks(1), "survivor asks 'May I?'"),
        (permits.receives(1), "survivor waits for signal 'permit'"),
    ],
    ids=["a question", "a signal"],
)
def test_a_run_that_nobody_drives_does_not_come_to_an_end(call: hf.Call[int], open_wait: str) -> None:
    assert said(call, None, points=EFFECT)[:2] == [
        f"{call.agent.name} does not come to an end even without a crash:",
        f"  {open_wait}, and nobody comes: pass drive=, a function that does what a person would.",
    ]


def test_somebody_who_comes_and_does_nothing_is_no_help() -> None:
    assert said(permits.asks(1), lambda url, run_id: None, points=EFFECT)[:2] == [
        "asks does not come to an end even without a crash:",
        "  drive was called 3 times, and it is as before: survivor asks 'May I?'",
    ]


def test_a_kill_that_does_not_happen_is_a_failure() -> None:
    lives: list[Path] = []

    def setup(folder: Path) -> dict[str, str]:
        lives.append(folder)
        return {"WAY": str(len(lives))}

    told = said(permits.posts_once(1), None, setup=setup, points=["effect.after_body"])
    assert told[0] == "posts_once did not survive: 1 of 3 lives went wrong."
    assert told[2:4] == [
        "killed at nothing:",
        "- it was to be killed at effect.after_body@1 (the effect happened, its outcome is not recorded), where the "
        "undisturbed run came before any drive; in 3 lives no process came there. Does the agent, or drive, do the "
        "same each time? If it depends on chance, leave the point out with points=.",
    ]


def test_a_life_that_its_kill_missed_is_lived_again_and_not_counted() -> None:
    lives: list[Path] = []

    def setup(folder: Path) -> dict[str, str]:
        lives.append(folder)
        return {"WAY": "2" if len(lives) == 2 else "1"}

    survival = assert_survives(permits.posts_once(1), setup=setup, points=["effect.after_body"], same_end=False)
    assert [life.deaths[:1] for life in survival.lives] == [("effect.after_body@1",)] * len(survival.lives)
    assert len(lives) == 1 + 1 + len(survival.lives)
    assert survival.lives


def test_points_where_nobody_would_be_killed_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        assert_survives(permits.pays(1), points=["undo.*", "effect.after_body@2"])
    told, _, passed = str(caught.value).partition(" It passes ")
    assert told == "points=: pays passes none of undo.*, effect.after_body@2, so nobody would be killed."
    assert "effect.after_intent@1, effect.after_body@1, effect.after_outcome@1, finish.before@1" in passed


def test_how_to_see_it_again_tells_when_somebody_came() -> None:
    def refuse(life: Life) -> None:
        raise AssertionError("never")

    told = said(permits.asks_until(1), drive, points=["effect.after_body"], check=refuse)
    commands = [line.strip() for line in told[told.index("to see it again:") + 1 :]]
    came = commands.index("# here drive('again/store.db', 'r') was called")
    assert "HOLDFAST_FAULT" not in commands[came - 1]
    assert commands[came - 1].endswith("asks_until r again/store.db --driven")
    assert "HOLDFAST_FAULT=effect.after_body:kill@1 python -m holdfast.testing.child" in commands[came + 1]
