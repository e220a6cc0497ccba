"""More queues than a worker looks at in one go: those that let nobody go hide none of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.base import clock
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.stores import forkserver
from tests.worker import tenants
from tests.workers import Scene

__all__ = ["forkserver"]

pytestmark = pytest.mark.postgres

MANY = 250


@pytest.fixture
def scene(tmp_path: Path, forkserver: ForkServer) -> Iterator[Scene]:
    with Scene(tmp_path, forkserver, agents=tenants.__name__, settings={"sweep_s": 0.1}) as scene:
        scene.env["HOLDFAST_TEST_FOLDER"] = str(tmp_path)
        yield scene


async def close(app: hf.Holdfast, queue: str, how: str) -> None:
    if how == "paused":
        await app.pause_queue(queue)
    else:
        await app._here.queues.hold(queue, clock.now_us() + 86_400_000_000)


@pytest.mark.parametrize("how", ["paused", "held"])
def test_closed_queues_do_not_starve_an_open_one(scene: Scene, how: str) -> None:
    """A busy queue before it, so that there is always something else to do."""

    async def main() -> None:
        async with scene.client() as app:
            names = [f"tenant{number:03}" for number in range(MANY)]
            await asyncio.gather(*(close(app, name, how) for name in names))
            await asyncio.gather(*(app.start(tenants.quick(name), queue=name) for name in names))
            await app.queue("busy", concurrency=1)
            await app.start(tenants.held("busy"), queue="busy")
            await asyncio.gather(*(app.start(tenants.quick("busy"), queue="busy") for _ in range(20)))
            scene.worker()
            await eventually((scene.folder / "busy.begun").exists)
            lone = await app.start(tenants.quick("lone"), queue="zz")
            assert await lone.result(timeout=60) == "lone"
            assert {await app.get(run.id).status() for run in await app.runs(queue=names[0])} == {"queued"}

    asyncio.run(main())


def test_full_queues_do_not_starve_an_open_one(scene: Scene) -> None:
    """Neither for runs that wait in line, nor for those whose sleep is over."""

    async def main() -> None:
        async with scene.client() as app:
            names = [f"tenant{number:03}" for number in range(MANY)]
            await asyncio.gather(*(app.queue(name, concurrency=1) for name in names))
            sleepers = await asyncio.gather(*(app.start(tenants.naps(name), queue=name) for name in [*names, "zz"]))
            scene.worker(concurrency=MANY + 5)

            async def all_asleep() -> bool:
                return len(await app.runs(status="sleeping", limit=1000)) == len(sleepers)

            await eventually(all_asleep)
            await asyncio.gather(*(app.start(tenants.held(name), queue=name) for name in names))
            await eventually(lambda: len(list(scene.folder.glob("*.begun"))) == MANY)
            await asyncio.gather(*(app.start(tenants.quick(name), queue=name) for name in names))
            scene.worker(concurrency=20, shift_s=3600)  # by its clock all have slept enough
            lone = await app.start(tenants.quick("lone"), queue="zz")
            assert await lone.result(timeout=60) == "lone"
            assert await sleepers[-1].result(timeout=60) == "zz"
            assert len(await app.runs(status="sleeping", limit=1000)) == MANY

    asyncio.run(main())
