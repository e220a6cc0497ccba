"""Runs that dead workers left: each is taken up once, by somebody, soon; one that cannot be does not hold up others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import reasons
from tests.forkserver import Forked, eventually
from tests.ownership import agents
from tests.ownership.scene import LEASE_S, Scene

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]


async def orphans(scene: Scene, count: int, **options: Any) -> tuple[list[hf.Run[Any]], Forked]:
    """Runs that were under way in a worker when it was killed."""
    runs = await asyncio.gather(*(scene.app.start(agents.in_a_step("gate")) for _ in range(count)))
    worker = scene.worker(concurrency=count, **options)
    await eventually(lambda: len(scene.reached("gate")) == count, what="all runs to be under way")
    worker.kill()
    (scene.folder / "gate.reached").unlink()
    return list(runs), worker


@pytest.mark.postgres
def test_two_workers_that_find_the_same_runs_share_them(live: Live) -> None:
    """Each run is claimed and executed by exactly one of them."""

    async def story(scene: Scene) -> None:
        runs, dead = await orphans(scene, 50)
        first, second = scene.worker(), scene.worker()
        await eventually(lambda: len(scene.reached("gate")) >= 50, what="all runs to be under way again")
        scene.open("gate")
        assert await scene.finished(runs) == [[10, "gate", 2]] * 50
        for run in runs:
            owners = await scene.owners(run)
            assert owners[0] == dead.pid
            assert len(owners) == 2
            assert owners[1] in (first.pid, second.pid)
            assert (await scene.row(run)).epoch == 3
        assert len(scene.reached("gate")) == 50
        begins = Counter((line.run, line.key) for line in scene.ledger.lines() if line.what == "begin")
        assert {begins[run.id, "held_step#1"] for run in runs} == {2}
        assert {begins[run.id, "post#1"] for run in runs} == {1}

    live(story)


def test_runs_that_are_started_while_another_worker_looks_for_orphans_are_not_adopted(live: Live) -> None:
    """Who owns a run is in its row, whatever its age."""

    async def story(scene: Scene) -> None:
        settings = hf.Settings(lease_s=LEASE_S, renew_s=0.2, sweep_s=0.05)
        eager = [scene.worker(sweep_s=0.01), scene.worker(sweep_s=0.01)]
        await scene.at_work(*eager)
        async with hf.connect(scene.url, agents=[agents.doubles], settings=settings) as app:
            runs = [await app.start(agents.doubles(n)) for n in range(100)]
            assert await scene.finished(runs) == [n * 2 for n in range(100)]
        assert {(await scene.row(run)).epoch for run in runs} == {1}

    live(story)


def test_a_run_that_kills_its_process_is_blocked_and_the_others_are_not(live: Live) -> None:

    async def story(scene: Scene) -> None:
        poison = await scene.app.start(agents.poison())
        healthy = [await scene.app.start(agents.long(5)) for _ in range(3)]
        deaths, worker = 0, scene.worker(crash_limit=4)
        while True:
            while worker.code is None and (await scene.row(poison)).status != "blocked":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if worker.code is None:
                break
            deaths += 1
            assert deaths < 10
            worker = scene.worker(crash_limit=4)
        row = await scene.row(poison)
        assert row.status == "blocked"
        assert reasons.why(row.reason) == "crash loop"
        assert "post#1" in reasons.detail_of(row.reason)  # the last call that is known
        assert len(scene.begun("post#1")) == 1
        assert 4 <= deaths <= 6
        assert await scene.finished(healthy) == [5, 5, 5]
        assert worker.code is None

    live(story)


async def restarts(scene: Scene, count: int) -> None:
    """Kill the worker in each step of a run: it gets further each time."""
    run = await scene.app.start(agents.looped("gate", count))
    for n in range(count):
        worker = scene.worker(crash_limit=3)
        await scene.wait_reached(f"gate.{n}", worker)
        worker.kill()
        scene.open(f"gate.{n}")
    scene.worker(crash_limit=3)
    assert await scene.finished([run]) == [count]
    assert len(await scene.owners(run)) >= count


def test_a_run_that_gets_further_each_time_is_no_crash_loop(live: Live) -> None:
    live(lambda scene: restarts(scene, 5))


@pytest.mark.prove
def test_a_run_that_gets_further_in_thirty_restarts_is_no_crash_loop(live: Live) -> None:
    live(lambda scene: restarts(scene, 30))


@pytest.mark.corrupts
def test_one_corrupt_run_does_not_strand_nine_others(live: Any, tmp_path: Any, forkserver: Any) -> None:

    async def story(scene: Scene) -> None:
        runs, _ = await orphans(scene, 10)
        damaged, others = runs[3], [run for run in runs if run is not runs[3]]
        scene.damage(damaged, "look#1")
        scene.open("gate")
        worker = scene.worker()
        assert await scene.finished(others) == [[10, "gate", 2]] * 9
        assert (await scene.is_at(damaged, "quarantined")).owner is None
        assert worker.code is None
        fresh = await scene.app.start(agents.one_look(7))
        assert await scene.finished([fresh]) == [70]

    async def told() -> None:
        async with Scene(tmp_path, forkserver) as scene:
            await story(scene)

    asyncio.run(told())


async def stampede(scene: Scene, count: int, concurrency: int) -> None:
    runs, _ = await orphans(scene, count)
    scene.open("gate")
    worker = scene.worker(concurrency=concurrency)
    most = 0
    store = scene.app._store
    pending = asyncio.create_task(scene.finished(runs, timeout_s=90))
    while not pending.done():
        for each in await store.workers():
            if each.pid == worker.pid:
                most = max(most, len(await store.mail_counts(each.id)))
        await asyncio.sleep(0.01)
    assert await pending == [[10, "gate", 2]] * count
    assert 0 < most <= concurrency
    for run in runs:
        assert (await scene.row(run)).epoch == 3


def test_many_orphans_at_once_are_taken_up_a_few_at_a_time(live: Live) -> None:
    live(lambda scene: stampede(scene, 60, 7))


@pytest.mark.prove
def test_three_hundred_orphans_are_taken_up_twenty_at_a_time(live: Live) -> None:
    live(lambda scene: stampede(scene, 300, 20))


def test_when_the_only_worker_that_looked_is_killed_the_next_one_notices_before_its_lease_is_over(live: Live) -> None:
    """No worker is special."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_a_step("gate"))
        old = scene.worker(lease_s=1000.0)
        await scene.wait_reached("gate", old)
        new = scene.worker()
        await scene.at_work(new)
        old.kill()
        await scene.wait_reached("gate", new)
        scene.open("gate")
        assert await scene.finished([run]) == [[10, "gate", 2]]
        assert scene.begun("held_step#1") == [old.pid, new.pid]

    live(story)


def test_workers_of_the_same_kind_have_different_ids_each_time(live: Live) -> None:
    """A new process is never taken for the one it replaces."""

    async def story(scene: Scene) -> None:
        workers = [scene.worker() for _ in range(3)]
        await scene.at_work(*workers)
        ids = {each.id for each in await scene.app.workers()}
        assert len(ids) == 3
        workers[0].kill()
        again = scene.worker()
        await scene.at_work(again)
        new = {each.id for each in await scene.app.workers() if each.pid == again.pid}
        assert not new & ids

    live(story)


@pytest.mark.sqlite_alone("leases in a database are of its clock, which no boot of a worker's machine sets back")
def test_the_runs_of_another_boot_are_taken_over_at_once(live: Live) -> None:
    """Leases of a machine that has booted since mean nothing, however long they last."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_a_step("gate"))
        old = scene.worker(boot="before", lease_s=1000.0)
        await scene.wait_reached("gate", old)
        await scene.stop(old)
        new = scene.worker()
        await scene.wait_reached("gate", new)
        assert [each.proof for each in await scene.app.workers() if each.pid == old.pid] in ([], ["boot"])
        scene.open("gate")
        assert await scene.finished([run]) == [[10, "gate", 2]]
        claims = [r.payload or "" for r in await scene.records(run) if r.kind == "claimed"]
        assert '"proof": "boot"' in claims[1]

    live(story)
