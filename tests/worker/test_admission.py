"""Whoever has a run go on: its queue is asked. Pauses, limits and rates count for people as for workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.app import arun
from holdfast.model import Kind
from holdfast.verbs.agent import Agent
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.stores import forkserver
from tests.workers import until

__all__ = ["forkserver"]

pytestmark = pytest.mark.postgres


class World:
    """What bodies do, and what holds them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.inside: set[str] = set()
        self.most = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.breaks = True
        self.pays = True
        self.is_slow = False

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())


world = World()


@pytest.fixture(autouse=True)
def a_new_world() -> None:
    world.__init__()  # type: ignore[misc]


@pytest.fixture
def url(forkserver: ForkServer, tmp_path: Path) -> str:
    return forkserver.store_url(tmp_path)


@hf.step
async def act(name: str) -> str:
    world.begun.append(name)
    world.inside.add(name)
    world.most = max(world.most, len(world.inside))
    await world.gate(name).wait()
    world.inside.discard(name)
    return name


@hf.effect(settle=0)
async def pay() -> None: ...


@hf.effect(settle=0)
async def ship() -> None: ...


@hf.effect
async def doubted() -> None:
    raise ConnectionError("who knows")


@hf.effect(settle=0)
async def slow() -> None:
    world.begun.append("slow")
    await world.gate("slow").wait()


async def pays_or_ships() -> None:
    if world.pays:
        await pay()
    else:
        await world.gate("ships").wait()
        await ship()


async def is_slow() -> None:
    if world.is_slow:
        await slow()


@hf.agent(queue="one")
async def tangled() -> str:
    await asyncio.gather(doubted(), is_slow(), pays_or_ships())
    return "it"


@hf.agent(queue="one")
async def works(name: str) -> str:
    return await act(name)


@hf.agent(queue="one")
async def breaks(name: str) -> str:
    if world.breaks:
        raise ValueError(name)
    return await act(name)


@hf.agent(queue="one")
async def changes(name: str) -> str:
    await (pay() if world.pays else ship())
    await hf.receive(("go", int))
    return await act(name)


@hf.agent(queue="one")
async def waits(name: str) -> str:
    await hf.receive(("go", int))
    return await act(name)


@hf.agent
async def passer_by() -> None: ...


AGENTS: list[Agent[..., Any]] = [works, breaks, changes, waits, tangled, passer_by]


async def all_was_looked_at(app: hf.Holdfast) -> None:
    """Another run has come and gone through another queue, twice: whatever could be claimed was."""
    for _ in range(2):
        await (await app.start(passer_by(), queue="elsewhere")).result(timeout=60)


async def paused(app: hf.Holdfast) -> tuple[hf.Run[str], Callable[[], Awaitable[None]]]:
    run = await app.start(waits("it"))
    await until(run, "waiting")
    await run.pause()
    await run.send("go", 1)
    return run, run.resume


async def not_begun(app: hf.Holdfast) -> tuple[hf.Run[str], Callable[[], Awaitable[None]]]:
    run = await app.start(works("it"), paused=True)
    return run, run.resume


async def failed(app: hf.Holdfast) -> tuple[hf.Run[str], Callable[[], Awaitable[None]]]:
    run = await app.start(breaks("it"))
    await until(run, "failed")
    world.breaks = False
    return run, run.retry


async def cancelled(app: hf.Holdfast) -> tuple[hf.Run[str], Callable[[], Awaitable[None]]]:
    run = await app.start(waits("it"))
    await until(run, "waiting")
    await run.cancel(timeout=60)

    async def retry() -> None:
        await run.retry()
        await run.send("go", 1)

    return run, retry


async def blocked(app: hf.Holdfast) -> tuple[hf.Run[str], Callable[[], Awaitable[None]]]:
    run = await app.start(changes("it"))
    await until(run, "waiting")
    world.pays = False
    await run.send("go", 1)
    await until(run, "blocked")
    world.pays = True
    return run, run.resume


async def full(app: hf.Holdfast) -> Callable[[], Awaitable[None]]:
    await app.queue("one", concurrency=1)
    await app.start(works("other"))
    await eventually(lambda: "other" in world.inside)

    async def end() -> None:
        world.gate("other").set()

    return end


async def shut(app: hf.Holdfast) -> Callable[[], Awaitable[None]]:
    await app.pause_queue("one")
    return lambda: app.resume_queue("one")


WAYS = [paused, not_begun, failed, cancelled, blocked]
OBSTACLES = [full, shut]


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_to_go_on_waits_until_its_queue_lets_it(
    url: str,
    way: Callable[[hf.Holdfast], Awaitable[tuple[hf.Run[str], Callable[[], Awaitable[None]]]]],
    obstacle: Callable[[hf.Holdfast], Awaitable[Callable[[], Awaitable[None]]]],
) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            run, go_on = await way(app)
            clear = await obstacle(app)
            await go_on()
            await all_was_looked_at(app)
            assert await run.status() == "queued"
            assert "it" not in world.begun
            await clear()
            world.gate("it").set()
            assert await run.result(timeout=60) == "it"
            assert world.most == 1
            assert world.begun.count("it") == 1

    asyncio.run(main())


def test_a_retry_that_waits_for_its_queue_survives_the_process_that_was_asked(url: str) -> None:
    """What is to be done anew is in the journal, with who wanted it."""

    async def main() -> None:
        world.gate("it").set()
        async with hf.connect(url, agents=AGENTS) as app:
            run, _ = await failed(app)
            await app.pause_queue("one")
            await run.retry(by="ada", note="the API is back")
        async with hf.connect(url, agents=AGENTS) as app:
            await all_was_looked_at(app)
            run = app.get(run.id)
            assert await run.status() == "queued"
            (opened,) = [r for r in await app._store.records(run.id) if r.kind == Kind.reopened]
            assert (opened.name, "the API is back" in (opened.payload or "")) == ("ada", True)
            await app.resume_queue("one")
            assert await run.result(timeout=60) == "it"

    asyncio.run(main())


def test_a_verdict_that_comes_while_a_run_is_being_blocked_has_it_wait_for_its_queue(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            run = await app.start(tangled())
            await until(run, "in_doubt")
            world.pays, world.is_slow = False, True
            await run.resume()
            await eventually(lambda: "slow" in world.begun)
            world.gate("ships").set()  # which the journal does not have: the run is blocked once its effect has ended
            await eventually(lambda: (here := app._here.local(run.id)) is not None and here.run.life.dead)
            await app.pause_queue("one")
            (doubt,) = await run.in_doubt()
            await doubt.resolve(hf.landed(None))
            world.gate("slow").set()
            await until(run, "queued")
            await all_was_looked_at(app)
            assert await run.status() == "queued"
            world.pays = True
            await app.resume_queue("one")
            assert await run.result(timeout=60) == "it"

    asyncio.run(main())


def test_runs_that_were_started_paused_need_a_permit_to_begin(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            runs = [await app.start(works(f"r{n}"), paused=True) for n in range(4)]
            await app.queue("one", rate=(2, 86_400))
            for run in runs[:2]:
                await run.resume()
            await app.resume_all(queue="one")
            await all_was_looked_at(app)
            await eventually(lambda: len(world.begun) == 2)
            await all_was_looked_at(app)
            assert len(world.begun) == 2
            assert sorted([await run.status() for run in runs]) == ["queued", "queued", "running", "running"]
            for run in runs:
                world.gate(f"r{runs.index(run)}").set()
            begun = [run for run in runs if await run.status() == "running"]
            for run in begun:
                await run.result(timeout=60)

    asyncio.run(main())


def test_a_run_with_a_delay_begins_when_it_is_resumed(url: str) -> None:
    async def main() -> None:
        world.gate("it").set()
        async with hf.connect(url, agents=AGENTS) as app:
            await app.queue("one", concurrency=1)
            end = await full(app)
            run = await app.start(works("it"), delay=86_400)
            await run.resume()
            await all_was_looked_at(app)
            assert await run.status() == "queued"
            await end()
            assert await run.result(timeout=60) == "it"

    asyncio.run(main())


def test_a_process_with_one_run_waits_for_the_queue_as_well_and_says_so(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world.gate("it").set()
        async with hf.connect(url) as client:
            await client.pause_queue("one")
            running: asyncio.Task[Any] = asyncio.create_task(arun(works("it"), id="r", thread_id=None, url=url))
            await eventually(lambda: "run.held_back" in caplog.text)
            assert "queue 'one' is paused" in caplog.text
            assert (await client.get("r").info()).status == "queued"
            assert world.begun == []
            await client.resume_queue("one")
            assert await asyncio.wait_for(running, 60) == "it"

    asyncio.run(main())
