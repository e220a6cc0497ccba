"""Reducers: agents that are a function of state and event."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

import holdfast as hf
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene
from tests.workers import until


class Cart(BaseModel):
    items: list[str] = []


class Change(BaseModel):
    add: str = ""
    is_done: bool = False


@hf.reducer
def cart(state: Cart, event: Change) -> Cart:
    if event.is_done:
        raise hf.Stop(state)
    return Cart(items=[*state.items, event.add])


@hf.reducer
def broken(state: int, event: int) -> int:
    return state // event


def test_it_takes_events_one_by_one_until_it_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agents.total, cart]) as app:
            sums = await app.start(agents.total(5))
            for event in (1, 2, 3, 0):
                await sums.send("event", event)
            assert await sums.result(timeout=60) == 11
            shop = await app.start(cart(Cart()))
            for change in (Change(add="tea"), Change(add="milk"), Change(is_done=True)):
                await shop.send("event", change)
            assert await shop.result(timeout=60) == Cart(items=["tea", "milk"])
            states = [item for item in await shop.history() if item.name == "cart" and item.status == "done"]
            assert len(states) == 3, "the history of its states is in its journal"

    asyncio.run(run())


def test_an_event_of_the_wrong_type_is_refused_to_its_sender(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    async def run() -> None:
        async with hf.connect(url, agents=[agents.total, cart]) as app, hf.connect(url) as client:
            sums, shop = await app.start(agents.total(0)), await app.start(cart(Cart()))
            for each in (sums, client.get(sums.id)):
                with pytest.raises(hf.UsageError, match="does not fit signal 'event'"):
                    await each.send("event", "seven")
                with pytest.raises(hf.UsageError, match="takes no signal"):
                    await each.send("other", 7)
            with pytest.raises(hf.UsageError, match="does not fit"):
                await shop.send("event", {"add": 7})
            await sums.send("event", 7)
            await sums.send("event", 0)
            assert await sums.result(timeout=60) == 7
            await shop.cancel(timeout=60)

    asyncio.run(run())


def test_an_error_of_the_function_fails_the_run(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[broken]) as app:
            run = await app.start(broken(10))
            await run.send("event", 2)
            await run.send("event", 0)
            with pytest.raises(hf.RunFailed, match="ZeroDivisionError"):
                await run.result(timeout=60)

    asyncio.run(run())


def test_a_function_of_something_else_is_no_reducer() -> None:
    with pytest.raises(hf.UsageError, match="of a state and an event"):

        @hf.reducer  # type: ignore[arg-type]
        def one(state: int) -> int:
            return state


def test_its_state_survives_a_kill_at_any_point(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.total(100), id="r")
        await run.send("event", 1)
        await run.send("event", 2)
        await until(run, "waiting")
        for event in (4, 8, 0):
            await run.send("event", event)
        return await run.result(timeout=60)

    lives = live(tmp_path, forkserver, drive, only=("append.after_commit", "step.after_body", "park.after"), most=3)
    assert lives.end == 115
