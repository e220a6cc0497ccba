"""Who speaks in a thread is killed or stopped: nothing is said twice, nothing is lost, and all have one order."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from holdfast.base.config import Settings
from holdfast.history.threads import everything
from holdfast.model import RunId, ThreadId
from holdfast.store import open_store
from holdfast.testing import Life, assert_survives
from holdfast.testing.reading import in_own_loop
from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer
from tests.ownership.scene import Scene
from tests.stores import forkserver
from tests.threads import agents

__all__ = ["forkserver"]


def said_in(url: str, run_id: str) -> list[str]:
    """What was said in the thread of a run, as it is stored."""

    async def look() -> list[str]:
        store = open_store(url, settings=Settings())
        await store.open(read_only=True)
        try:
            row = await store.run(RunId(run_id))
            assert row is not None
            return [message.body async for message in everything(store, row.thread_id)]
        finally:
            await store.close()

    found: list[str] = in_own_loop(look)
    return found


def said_once_and_in_order(life: Life) -> None:
    said = said_in(life.url, life.run_id)
    assert len(said) == 2, said
    assert life.result in said[1]


def each_branch_was_heard(life: Life) -> None:
    said = said_in(life.url, life.run_id)
    assert len(said) == 5, said
    assert sorted(said[:4]) == ['"a 0"', '"a 1"', '"b 0"', '"b 1"']


def test_a_chat_killed_at_every_point_says_each_thing_once() -> None:
    points = ["say.*@1", "append.after_commit@2"]
    survival = assert_survives(agents.chat("tides"), points=points, check=said_once_and_in_order)
    print(survival)
    assert {"say.before_commit", "say.after_commit"} <= survival.killed_at


@pytest.mark.prove
def test_a_chat_killed_on_postgresql_says_each_thing_once(postgres_url: str) -> None:
    survival = assert_survives(
        agents.chat("tides"), points=["say.after_commit@1"], url=postgres_url, check=said_once_and_in_order
    )
    print(survival)


def test_branches_that_read_and_speak_hear_the_same_when_they_are_killed() -> None:
    """Other branches speak in between, so what one reads is not the same in two lives; in the replay of one it is."""
    points = ["say.after_commit@2", "append.after_commit@5"]
    print(assert_survives(agents.thinker(2), points=points, check=each_branch_was_heard, same_end=False))


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_a_chat_killed_anywhere_again_and_again(sort: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else None
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed}")
    print(assert_survives(agents.chat("tides"), url=url, check=said_once_and_in_order, rounds=60, seed=seed))
    print(
        assert_survives(agents.thinker(2), url=url, check=each_branch_was_heard, rounds=60, seed=seed, same_end=False)
    )


class Talking(Scene):
    """A scene whose agents speak."""

    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver)
        self._agents = agents.__name__


@pytest.mark.postgres
def test_a_zombie_says_nothing_that_anybody_hears(tmp_path: Path, forkserver: ForkServer) -> None:
    async def story(scene: Talking) -> None:
        async with scene:
            run = await scene.app.start(agents.talker("me", 6), thread_id="t")
            memory = scene.app.thread("t", str)
            old = scene.worker(fault="effect.after_intent:stop@4", lease_s=1.0)
            await old.wait_stopped()
            assert await memory.recent() == ["me 0", "me 1", "me 2"]
            scene.worker()
            assert await run.result() == [1, 2, 3, 4, 5, 6]
            old.go_on()  # it is in the middle of saying the fourth
            await scene.lost(old, run)
            assert await memory.recent() == [f"me {number}" for number in range(6)]

    asyncio.run(story(Talking(tmp_path, forkserver)))


def speakers_are_killed(
    tmp_path: Path, forkserver: ForkServer, *, workers: int, runs: int, each: int, kills: int
) -> None:
    """Workers with runs that all speak in one thread, killed and replaced."""

    async def story(scene: Talking) -> None:
        chance = random.Random(3)
        async with scene:
            started = [
                await scene.app.start(agents.talker(f"r{number}", each), thread_id="t") for number in range(runs)
            ]
            alive: list[Forked] = [scene.worker(concurrency=max(1, runs // workers)) for _ in range(workers)]
            store = started[0]._store
            for kill in range(kills):

                async def is_far(wanted: int = runs * each * (kill + 1) // (kills + 2)) -> bool:
                    row = await store.thread(ThreadId("t"))
                    return row is not None and row.last >= wanted

                await eventually(is_far, timeout=600)
                victim = alive.pop(chance.randrange(len(alive)))
                victim.kill()
                alive.append(scene.worker(concurrency=max(1, runs // workers)))
            numbers = await asyncio.wait_for(asyncio.gather(*(run.result() for run in started)), 900)
            said = [message async for message in everything(store, ThreadId("t"))]
            assert [message.number for message in said] == list(range(1, runs * each + 1))
            assert len({message.body for message in said}) == runs * each
            for number, own in enumerate(numbers):
                assert [said[place - 1].body for place in own] == [f'"r{number} {n}"' for n in range(each)]
            async with scene.client() as other:
                assert await other.thread("t", str).since(0) == [message.body[1:-1] for message in said]

    asyncio.run(story(Talking(tmp_path, forkserver)))


@pytest.mark.postgres
def test_killed_speakers_leave_no_gap_and_say_nothing_twice(tmp_path: Path, forkserver: ForkServer) -> None:
    speakers_are_killed(tmp_path, forkserver, workers=2, runs=4, each=8, kills=2)


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_ten_thousand_messages_of_killed_workers(tmp_path: Path, forkserver: ForkServer) -> None:
    speakers_are_killed(tmp_path, forkserver, workers=4, runs=8, each=1250, kills=8)
