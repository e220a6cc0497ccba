"""A worker that stands still in the middle of what it spends, while another one goes on with its runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.model import RunRow
from tests.forkserver import Forked, ForkServer, eventually
from tests.limits import agents
from tests.limits.agents import COST
from tests.limits.test_budgets import used_by
from tests.ownership.scene import BRIEF_S, Scene
from tests.workers import seen

CHILDREN, THOUGHTS, LIMIT = 2, 5, 8


class Spenders(Scene):
    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver)
        self._agents = agents.__name__

    def begun_by(self, worker: Forked) -> int:
        return sum(line.what == "begin" and line.pid == worker.pid for line in self.ledger.lines())

    async def rows(self) -> list[RunRow]:
        return [await self.row(self.app.get(info.id)) for info in await self.app.runs()]

    async def used(self) -> float:
        return await used_by(self.app._store, [row.id for row in await self.rows()])

    async def is_stuck(self) -> bool:
        return sorted(row.status for row in await self.rows()) == ["blocked", "blocked", "waiting"]


@pytest.mark.postgres
def test_what_a_worker_that_stood_still_was_about_to_spend_is_counted_once(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    async def story() -> None:
        async with Spenders(tmp_path, forkserver) as scene:
            run = await scene.app.start(agents.held_family("gate", CHILDREN, THOUGHTS), id="run")
            old = scene.worker(lease_s=BRIEF_S)
            await eventually(lambda: scene.reached("gate").count(old.pid) == CHILDREN, 60, what="the first thoughts")
            await scene.stop(old)
            assert await scene.used() == CHILDREN * COST, "it counts as soon as it was said"
            new = scene.worker()
            await eventually(lambda: scene.reached("gate").count(new.pid) == CHILDREN, 60, what="the same thoughts")
            scene.open("gate", new)
            await seen(scene.is_stuck, bool, what=lambda _: "the family is not blocked")
            rows, used = await scene.rows(), await scene.used()
            assert LIMIT * COST <= used <= (LIMIT + CHILDREN) * COST
            assert used == (scene.begun_by(old) + scene.begun_by(new) + CHILDREN) * COST, "each use is counted once"
            scene.open("gate")
            old.go_on()
            await scene.lost(old, *[scene.app.get(row.id) for row in rows])
            assert await scene.rows() == rows, "what it says now comes too late"
            assert scene.begun_by(old) == CHILDREN, "and it begins nothing more"
            await run.resume(budget=hf.Budget(cost=100.0))
            assert await run.result(timeout=60) == CHILDREN * THOUGHTS
            assert scene.begun_by(old) + scene.begun_by(new) == CHILDREN * THOUGHTS + CHILDREN
            assert await scene.used() == (CHILDREN * (THOUGHTS + 1) + CHILDREN) * COST, "also what was cut off, once"

    asyncio.run(story())
