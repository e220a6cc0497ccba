"""Plans, guards and what is used, in a run with turns: a checkpoint carries all that its past still decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.control.plans import change_plan
from holdfast.journal.checkpoints import Past
from holdfast.model import RunId
from tests.eventually import eventually
from tests.workers import asked, until

outside = ["one"]


@hf.step
async def work(n: int) -> int:
    hf.usage(model="m", cost=0.5)
    return n


@hf.agent(budget=hf.Budget(cost=9.0))
async def loops() -> list[str]:
    await hf.guard("it", lambda: outside[0])
    todo = await hf.plan(["one", "two"])
    async for state in hf.turns({"n": 0}):
        state["n"] += 1
        await todo.tick(min(state["n"], 2))
        hf.usage(model="m", cost=0.25)
        await work(state["n"])
        await hf.ask("go on?")
        if state["n"] == 2:
            continue  # what somebody sent meanwhile is taken in the next turn
        await todo.refresh()
        if state["n"] > 2:
            break
    return [f"{item.id} {item.done}" for item in todo.items]


def test_a_turn_begins_with_the_plan_and_what_guards_found_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[loops]) as app:
            run = await app.start(loops(), id="run")
            for turn in range(1, 4):
                (question,) = await asked(run)
                await until(run, "waiting")
                if turn == 1:
                    outside[0] = "two"
                if turn == 2:
                    ops: list[dict[str, Any]] = [{"op": "add", "text": "new", "after": "1"}]
                    await change_plan(app._store, RunId("run"), ops, by="ann", note="")
                await question.answer(True)
            assert await run.result(timeout=60) == ["1 True", "e2.1 False", "2 True"]
            assert (await run.info()).cost == 3 * 0.75
            assert [[each["now"] for each in receipt.gap] for receipt in await run.receipts()] == [["two"]]

    asyncio.run(story())


@hf.agent
async def lets_it_lie() -> list[str]:
    todo = await hf.plan(["one"])
    async for state in hf.turns({"n": 0}):
        state["n"] += 1
        await hf.ask("go on?")
        if state["n"] == 3:
            break
    await todo.refresh()
    return [item.text for item in todo.items]


def test_what_somebody_changed_in_the_plan_turns_ago_is_not_lost_by_a_resume(tmp_path: Path) -> None:
    """Each turn is taken up by a process of its own."""

    async def turn(number: int) -> list[str] | None:
        async with hf.connect(tmp_path / "a.db", agents=[lets_it_lie]) as app:
            run = await app.start(lets_it_lie(), id="run")
            (question,) = await asked(run)
            if number == 1:
                ops: list[dict[str, Any]] = [{"op": "add", "text": "new", "after": "1"}]
                await change_plan(app._store, RunId("run"), ops, by="ann", note="")
            await question.answer(True)
            if number == 3:
                return await run.result(timeout=60)
            await eventually(lambda: is_asked_again(run, question.id))
            await until(run, "waiting")
            return None

    async def is_asked_again(run: hf.Run[list[str]], before: str) -> bool:
        return any(each.id != before for each in await run.questions())

    assert [asyncio.run(turn(number)) for number in (1, 2, 3)] == [None, None, ["one", "new"]]


@hf.step
async def write(place: hf.Workspace, name: str) -> list[str]:
    (place.path / name).write_text(name)
    return sorted(each.name for each in place.path.iterdir())


@hf.agent(budget=hf.Budget(steps=3), signals=[hf.Signal("go", int)])
async def keeps() -> list[Any]:
    place = await hf.workspace("place")
    if place.version == 0:  # on each replay too, whatever was left in it since
        await write(place, "first")
    async for state in hf.turns({"seen": [place.version]}):
        turn = hf.this_run().turn
        state["seen"].append(place.version)
        if turn in (1, 5):
            state["seen"].append(len(await write(place, f"{turn}")))
        state["seen"].append(place.version)
        await hf.receive(("go", int))
        state["seen"].append(place.version)
        if turn == 5:
            return state["seen"] + await write(place, "last")
    raise AssertionError


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_turn_begins_with_the_workspaces_and_the_budget_that_earlier_ones_left(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "a.db") if store == "sqlite" else str(request.getfixturevalue("postgres_url"))

    async def life(story: Any) -> Any:
        async with hf.connect(url, agents=[keeps]) as app:
            return await story(app)

    async def begin(app: hf.Holdfast) -> None:
        run = await app.start(keeps(), id="run")
        for turn in range(1, 5):
            await until(run, "waiting")
            await run.send("go", turn)
        await until(run, "waiting")  # in turn 5

    async def end(app: hf.Holdfast) -> Any:
        run = app.get("run")
        ((head, _),) = await app._store.checkpoints(RunId("run"), turn=5)
        past = Past.read(head)
        assert (past.budget, (past.workspaces or {})["place"]["version"]) == ({"steps": 3}, 2)
        await run.resume()
        await run.send("go", 5)
        await until(run, "blocked")
        fork = await run.fork(turn=5)
        assert (await fork.info()).budget == {"steps": 3}
        await run.resume(budget=hf.Budget(steps=9))
        return await run.result(timeout=60)

    asyncio.run(life(begin))
    seen = [1, *(1, 2, 2, 2), *(2, 2, 2) * 3, *(2, 3, 3, 3)]
    assert asyncio.run(life(end)) == [*seen, "1", "5", "first", "last"]
