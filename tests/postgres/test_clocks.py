"""What the clocks of workers' machines say does not matter for leases: they are of the database's clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base import clock
from holdfast.model import RunId
from holdfast.testing.ledger import VARIABLE
from tests.eventually import eventually as until
from tests.forkserver import ForkServer, eventually
from tests.ownership import agents
from tests.workers import Scene

SETTINGS: dict[str, Any] = {"lease_s": 10.0, "renew_s": 0.2, "sweep_s": 0.1}


@pytest.fixture
def scene(tmp_path: Path, postgres_url: str) -> Iterator[Scene]:
    forkserver = ForkServer(lambda _: postgres_url)
    try:
        with Scene(tmp_path, forkserver, agents=agents.__name__, settings=SETTINGS) as scene:
            scene.env = {VARIABLE: str(tmp_path / "ledger.jsonl")}
            yield scene
    finally:
        forkserver.close()


async def owners(app: hf.Holdfast, run: hf.Run[Any]) -> list[int]:
    records = await app._store.records(RunId(run.id))
    return [json.loads(r.payload or "{}")["pid"] for r in records if r.kind == "claimed"]


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_worker_whose_clock_is_hours_off_keeps_its_runs_and_is_missed_when_it_dies(scene: Scene, hours: int) -> None:
    async def story() -> None:
        async with scene.client() as app:
            clock.shift_us(-8 * 3_600_000_000)  # so that the runs are due by every clock
            try:
                runs = [await app.start(agents.one_held_step("gate")) for _ in range(2)]
            finally:
                clock.reset()
            wrong = scene.worker(shift_s=hours * 3600, concurrency=1)
            reached = scene.folder / "gate.reached"

            def at_gate() -> list[int]:
                return [int(pid) for pid in reached.read_text().split()] if reached.exists() else []

            await eventually(lambda: at_gate() == [wrong.pid], what="the worker with the wrong clock")
            right = scene.worker(concurrency=1)
            await eventually(lambda: at_gate() == [wrong.pid, right.pid], what="the other worker")
            held = [await owners(app, run) for run in runs]
            assert sorted(held) == sorted([[wrong.pid], [right.pid]])

            async def leases() -> list[int]:
                return [each.lease_until_ms for each in await app._store.workers()]

            async def have_renewed() -> bool:
                return min(await leases()) > max(before) + 1000

            before = await leases()
            await until(have_renewed)  # each has looked at the other's lease, several times
            assert [await owners(app, run) for run in runs] == held
            assert len([each for each in await app.workers() if each.alive]) == 2
            wrong.kill()
            third = scene.worker(lease_s=2.0)  # a server that is up for no longer proves nothing to it
            await eventually(lambda: third.pid in at_gate(), what="the run of the dead worker")
            (scene.folder / "gate.open").touch()
            async with asyncio.timeout(60):
                assert [await run.result() for run in runs] == ["gate", "gate"]

    asyncio.run(story())
