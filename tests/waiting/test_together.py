"""Everything at once: branches that wait, people who act at random, workers that die at random."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast as hf
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.scene import Scene
from tests.workers import until

LINES, ROUNDS = 4, 5


async def answer_all(run: hf.Run[object], chance: random.Random) -> None:
    """A person who answers by the number in the prompt, sooner or later, and sometimes twice."""
    while not (await run.status()).is_final:
        for question in await run.questions():
            with suppress(hf.AlreadyDecided):
                for _ in range(chance.choice((1, 1, 2))):
                    await question.answer(int(question.prompt.strip("?").partition(".")[2]) % 2 == 0)
        await asyncio.sleep(chance.uniform(0, 0.2))


async def send_all(run: hf.Run[object], chance: random.Random) -> None:
    for value in range(ROUNDS):
        for n in range(LINES):
            with suppress(hf.RunFinished):
                for _ in range(chance.choice((1, 1, 2))):
                    await run.send(f"line{n}", value, dedup=f"{n}.{value}")
        await asyncio.sleep(chance.uniform(0, 0.4))


async def meddle(run: hf.Run[object], chance: random.Random, replies: list[int]) -> None:
    """Somebody who pauses and resumes it, and interrupts it."""
    await until(run, *(set(hf.Status) - {hf.Status.queued}))  # before that nobody knows what it takes
    for number in range(3):
        await asyncio.sleep(chance.uniform(0, 0.5))
        with suppress(hf.RunFinished):
            if chance.random() < 0.5:
                await run.pause()
                await asyncio.sleep(chance.uniform(0, 0.2))
                await run.resume()
            else:
                assert await run.interrupt(number, timeout=60) == number * 2
                replies.append(number)


async def live_together(scene: Scene, *, runs: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    workers = [scene.worker(), scene.worker()]

    async def kill_some() -> None:
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            index = chance.randrange(2)
            workers[index].kill()
            workers[index] = scene.worker()

    async def one(app: hf.Holdfast, n: int) -> None:
        run = await app.start(agents.medley(LINES, ROUNDS), id=f"r{n}")
        own, replies = random.Random(seed + n), list[int]()
        acting = [
            asyncio.create_task(each) for each in (answer_all(run, own), send_all(run, own), meddle(run, own, replies))
        ]
        try:
            result = await run.result(timeout=90)
        except BaseException:
            for task in acting:
                task.cancel()
            raise
        await asyncio.gather(*acting)
        assert result == agents.medley_result(LINES, ROUNDS), f"run r{n}"
        marks = Counter(mark for mark in scene.done("mark") if mark.startswith(f"r{n} "))
        wanted = {f"r{n} {line}.{i}" for line in range(LINES) for i in range(ROUNDS)}
        assert set(marks) >= wanted | {f"r{n} aside {number}" for number in replies}
        assert set(marks.values()) == {1}, f"run r{n}: {marks}"

    async with scene.client() as app:
        await asyncio.gather(kill_some(), *(one(app, n) for n in range(runs)))


def test_runs_come_to_their_end_whatever_people_and_kills_do_to_them(scene: Scene) -> None:
    asyncio.run(live_together(scene, runs=3, kills=4, seed=1))


@pytest.mark.prove
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("round_", range(4))
def test_many_runs_come_to_their_end_whatever_people_and_kills_do_to_them(
    round_: int, tmp_path: Path, forkserver: ForkServer
) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed} python -m pytest -m prove {Path(__file__).name}")
    with Scene(tmp_path, forkserver) as scene:
        asyncio.run(live_together(scene, runs=12, kills=25, seed=seed))
