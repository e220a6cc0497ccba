"""Programs with turns, killed at every crash point, come to the end that they come to without a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.base.faults import POINTS
from holdfast.testing import Life, Survival, assert_survives
from holdfast.testing.postgres import Databases
from tests.crash.agents import World
from tests.turns import loops

#: What is said, by the agent's name, in order; each once.
SAID: dict[str, list[tuple[hf.Signal[Any], Any]]] = {
    "listens": [(loops.word, "first"), (loops.other, 5), (loops.other, 6), (loops.word, "last")],
    "total": [(hf.Signal("event", int), n) for n in (3, 4, 0)],
}


def drive(url: str, run_id: str) -> None:
    """Say the next thing, answer what is asked."""

    async def say() -> None:
        async with hf.connect(url) as app:
            run = app.get(run_id)
            if await run.status() is hf.Status.paused:
                return await run.resume()
            for number, (signal, value) in enumerate(SAID.get((await run.info()).agent, [])):
                if await run.send(signal, value, dedup=f"said-{number}"):
                    return
            for question in await run.questions():
                await question.answer(True, by="ada")

    asyncio.run(say())


def posts(*expected: object) -> Callable[[Life], None]:
    def check(life: Life) -> None:
        acts = World(life.folder).deeds()
        assert [value for what, value, _ in acts if what == "post"] == list(expected)
        assert len({key for what, _, key in acts if what == "post"}) == len(expected), "a key of its own each"

    return check


def booked(*expected: object) -> Callable[[Life], None]:
    def check(life: Life) -> None:
        assert list(dict.fromkeys(World(life.folder).values("book"))) == list(expected)

    return check


CASES = {
    "effects": (loops.effects_at_both_ends(0), posts(100, 0, 51, 1, 2, 53, 3, 200)),
    "caught": (loops.caught(0), posts(0, 1, 7)),
    "gathers": (loops.gathers(0), posts(0, 1, 2)),
    "runs out": (loops.runs_out(0), None),
    "is cut off": (loops.is_cut_off(0), None),
    "awaits later": (loops.awaits_later(0), None),
    "listens": (loops.listens(0), booked(1, 2)),
    "asks": (loops.asks(0), posts(0, 1, 2)),
    "is told": (loops.is_told_at_the_head(0), posts(0, 1, 2, 99)),
    "takes back": (loops.takes_back(1), booked(1, 2, 3)),
    "keeps files": (loops.keeps_files(0), posts(0, 1, 2, 3, 4)),
    "reducer": (loops.total(0), None),
}


#: What a store has of agents is written by the first life in it alone.
ONCE = ("define.before_commit", "define.after_commit")


def killed(name: str, url: str | None = None, points: list[str] | None = None) -> Survival:
    call, check = CASES[name]
    survival = assert_survives(
        call, setup=lambda _: {loops.STORE: url or ""}, drive=drive, check=check, url=url, points=points
    )
    print(survival)
    assert {"turn.before", "turn.after"} <= survival.killed_at
    return survival


@pytest.mark.parametrize("name", ["effects", pytest.param("listens", marks=pytest.mark.prove)])
def test_a_loop_that_is_killed_at_the_head_of_a_turn_comes_to_the_same_end(name: str) -> None:
    killed(name, points=["turn.before@2", "turn.after@2"])


@pytest.mark.prove
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_a_loop_that_is_killed_anywhere_comes_to_the_same_end(name: str) -> None:
    killed(name)


@pytest.mark.prove
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_so_it_does_on_postgresql(name: str, postgres_databases: Databases) -> None:
    killed(name, postgres_databases.fresh(), [each for each in POINTS if each not in ONCE])
