"""How long a run stood still, and what counts as having been taken up again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.base import clock
from holdfast.model import Kind, RunId
from tests.forkserver import eventually
from tests.ownership import agents
from tests.ownership.scene import LEASE_S, Scene
from tests.workers import until

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]

_LIVED_S = 2.0  # in the step, before it is killed
_SLACK_S = 0.5  # between two clocks of one machine


@pytest.mark.postgres
def test_an_outage_is_counted_from_when_the_lost_worker_was_last_heard_of(live: Live) -> None:
    """It had been in a step for a while, and lived."""

    async def story(scene: Scene) -> None:
        store = scene.app._store
        run = await scene.app.start(agents.in_a_step("gate"))
        worker = scene.worker()
        await scene.wait_reached("gate", worker)
        lived_ms = store.lease_clock_ms() + int(_LIVED_S * 1000)
        lived_us = clock.now_us() + int(_LIVED_S * 1e6)

        async def has_renewed() -> bool:
            leases = [each.lease_until_ms for each in await store.workers() if each.pid == worker.pid]
            return leases[0] >= lived_ms + LEASE_S * 1000

        await eventually(has_renewed, what="the worker to renew its lease")
        worker.kill()
        (scene.folder / "gate.reached").unlink()
        await scene.wait_reached("gate", scene.worker())
        scene.open("gate")
        await scene.finished([run])
        (receipt,) = await run.receipts()
        assert receipt.lost is not None
        claim = [r for r in await store.records(RunId(run.id)) if r.kind == Kind.claimed][-1]
        assert receipt.down_s <= (claim.at - lived_us) / 1e6 + _SLACK_S

    live(story)


@pytest.mark.postgres
def test_a_run_that_wakes_up_was_not_resumed_and_one_that_was_cut_off_was(live: Live) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.waits_and_is_held("gate"))
        first = scene.worker()
        for number in range(2):
            await until(run, "waiting")
            await run.send("go", number)
        await scene.wait_reached("gate", first)
        first.kill()
        (scene.folder / "gate.reached").unlink()
        await scene.wait_reached("gate", scene.worker())
        scene.open("gate")
        assert await scene.finished([run]) == [[0, 1, "gate"]]
        (receipt,) = await run.receipts()
        assert receipt.lost is not None
        assert [item.kind for item in await run.history() if item.kind in ("outage", "resumed")] == ["outage"]
        records = await scene.app._store.records(RunId(run.id))
        assert len([r for r in records if r.kind == Kind.claimed]) == 4
        assert len([r for r in records if r.kind == Kind.noted and r.name == "resumed"]) == 1

    live(story)
