"""Workers that are told to go: what they had goes on elsewhere, at once, as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from tests.eventually import eventually
from tests.ownership import agents
from tests.ownership.scene import Scene

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]


def test_a_worker_that_is_told_to_go_hands_over_at_once_and_nothing_is_done_again(live: Live) -> None:

    async def story(scene: Scene) -> None:
        runs = [await scene.app.start(agents.busy_until("gate")) for _ in range(3)]
        old = scene.worker(lease_s=1000.0)
        await eventually(lambda: scene.at_work_on(old) == {run.id for run in runs})
        new = scene.worker()
        await scene.at_work(new)
        old.send(signal.SIGTERM)
        assert await old.wait_dead() == 0
        await eventually(lambda: scene.at_work_on(new) == {run.id for run in runs})  # nobody waits for a lease
        scene.open("gate")
        counts = await scene.finished(runs)
        for run, count in zip(runs, counts, strict=True):
            assert await scene.owners(run) == [old.pid, new.pid]
            records = await scene.records(run)
            assert not [r for r in records if r.kind in ("failed", "cancelled", "attempt", "settled")]
            begun = [line.key for line in scene.ledger.lines() if line.what == "begin" and line.run == run.id]
            assert sorted(begun) == sorted(f"has_opened#{n}" for n in range(1, count + 1))
            claims = [r.payload or "" for r in records if r.kind == "claimed"]
            assert '"proof": "released"' in claims[1]

    live(story)


def test_a_body_under_way_is_let_end_before_its_worker_goes(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.looks_on("gate", 5))
        old = scene.worker(drain_s=1000.0)
        await scene.wait_reached("gate", old)
        new = scene.worker()
        await scene.at_work(new)
        old.send(signal.SIGTERM)
        await scene.is_leaving(old, run)
        assert old.code is None  # it waits for the body
        assert (await scene.row(run)).status == "running"
        scene.open("gate")
        assert await old.wait_dead() == 0
        assert await scene.finished([run]) == [[n * 10 for n in range(10)]]
        assert scene.begun("held_step#1") == [old.pid]
        assert scene.begun("look#6") == [new.pid]

    live(story)


def test_a_worker_that_is_killed_while_it_leaves_loses_nothing(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.looks_on("gate", 5))
        old = scene.worker(drain_s=1000.0)
        await scene.wait_reached("gate", old)
        old.send(signal.SIGTERM)
        await scene.is_leaving(old, run)
        old.kill()
        new = scene.worker()
        await scene.wait_reached("gate", new)
        scene.open("gate")
        assert await scene.finished([run]) == [[n * 10 for n in range(10)]]
        assert await scene.owners(run) == [old.pid, new.pid]
        assert scene.begun("held_step#1") == [old.pid, new.pid]
        assert not [r for r in await scene.records(run) if r.kind in ("failed", "cancelled", "attempt")]

    live(story)


def test_a_body_that_takes_too_long_is_cut_off_and_done_again_elsewhere(live: Live) -> None:
    """`drain_s` is all it gets."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.looks_on("gate", 2))
        old = scene.worker(drain_s=0.3)
        await scene.wait_reached("gate", old)
        old.send(signal.SIGTERM)
        assert await old.wait_dead() == 0
        row = await scene.row(run)
        assert (row.status, row.owner) == ("queued", None)
        new = scene.worker()
        await scene.wait_reached("gate", new)
        scene.open("gate")
        assert await scene.finished([run]) == [[0, 10, 20, 30]]
        assert not [r for r in await scene.records(run) if r.kind in ("failed", "cancelled", "attempt")]

    live(story)
