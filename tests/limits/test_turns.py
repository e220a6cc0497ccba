"""Plans, guards and what is used, in a run with turns: a checkpoint carries all that its past still decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.control.plans import change_plan
from holdfast.model import RunId
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
