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


async def orphans(place: Scene, count: int, **options: Any) -> tuple[list[hf.Run[Any]], Forked]:
    """Runs that were under way in a worker when it was killed."""
    runs = await asyncio.gather(*(place.app.start(agents.in_a_step("gate")) for _ in range(count)))
    worker = place.worker(concurrency=count, **options)
    await eventually(lambda: len(place.reached("gate")) == count, what="all runs to be under way")
    worker.kill()
    (place.folder / "gate.reached").unlink()
    return list(runs), worker


@pytest.mark.postgres
def test_two_workers_that_find_the_same_runs_share_them(live: Live) -> None:
    """Each run is claimed and executed by exactly one of them."""

    async def story(place: Scene) -> None:
        runs, dead = await orphans(place, 50)
        first, second = place.worker(), place.worker()
        await eventually(lambda: len(place.reached("gate")) >= 50, what="all runs to be under way again")
        place.open("gate")
        assert await place.finished(runs) == [[10, "gate", 2]] * 50
        for run in runs:
            owners = await place.owners(run)
            assert owners[0] == dead.pid
            assert len(owners) == 2
            assert owners[1] in (first.pid, second.pid)
            assert (await place.row(run)).epoch == 3
        assert len(place.reached("gate")) == 50
        begins = Counter((line.run, line.key) for line in place.ledger.lines() if line.what == "begin")
        assert {begins[run.id, "held_step#1"] for run in runs} == {2}
        assert {begins[run.id, "post#1"] for run in runs} == {1}

    live(story)


def test_runs_that_are_started_while_another_worker_looks_for_orphans_are_not_adopted(live: Live) -> None:
    """Who owns a run is in its row, whatever its age."""

    async def story(place: Scene) -> None:
        settings = hf.Settings(lease_s=LEASE_S, renew_s=0.2, sweep_s=0.05)
        eager = [place.worker(sweep_s=0.01), place.worker(sweep_s=0.01)]
        await place.at_work(*eager)
        async with hf.connect(place.url, agents=[agents.doubles], settings=settings) as app:
            runs = [await app.start(agents.doubles(n)) for n in range(100)]
            assert await place.finished(runs) == [n * 2 for n in range(100)]
        assert {(await place.row(run)).epoch for run in runs} == {1}

    live(story)


def test_a_run_that_kills_its_process_is_blocked_and_the_others_are_not(live: Live) -> None:

    async def story(place: Scene) -> None:
        poison = await place.app.start(agents.poison())
        healthy = [await place.app.start(agents.long(5)) for _ in range(3)]
        deaths, worker = 0, place.worker(crash_limit=4)
        while True:
            while worker.code is None and (await place.row(poison)).status != "blocked":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if worker.code is None:
                break
            deaths += 1
            assert deaths < 10
            worker = place.worker(crash_limit=4)
        row = await place.row(poison)
        assert row.status == "blocked"
        assert reasons.why(row.reason) == "crash loop"
        assert "post#1" in reasons.detail_of(row.reason)  # the last call that is known
        assert len(place.begun("post#1")) == 1
        assert 4 <= deaths <= 6
        assert await place.finished(healthy) == [5, 5, 5]
        assert worker.code is None

    live(story)


async def restarts(place: Scene, count: int) -> None:
    """Kill the worker in each step of a run: it gets further each time."""
    run = await place.app.start(agents.looped("gate", count))
    for n in range(count):
        worker = place.worker(crash_limit=3)
        await place.wait_reached(f"gate.{n}", worker)
        worker.kill()
        place.open(f"gate.{n}")
    place.worker(crash_limit=3)
    assert await place.finished([run]) == [count]
    assert len(await place.owners(run)) >= count


def test_a_run_that_gets_further_each_time_is_no_crash_loop(live: Live) -> None:
    live(lambda place: restarts(place, 5))


@pytest.mark.prove
def test_a_run_that_gets_further_in_thirty_restarts_is_no_crash_loop(live: Live) -> None:
    live(lambda place: restarts(place, 30))


@pytest.mark.corrupts
def test_one_corrupt_run_does_not_strand_nine_others(live: Any, tmp_path: Any, forkserver: Any) -> None:

    async def story(place: Scene) -> None:
        runs, _ = await orphans(place, 10)
        damaged, others = runs[3], [run for run in runs if run is not runs[3]]
        place.damage(damaged, "look#1")
        place.open("gate")
        worker = place.worker()
        assert await place.finished(others) == [[10, "gate", 2]] * 9
        assert (await place.is_at(damaged, "quarantined")).owner is None
        assert worker.code is None
        fresh = await place.app.start(agents.one_look(7))
        assert await place.finished([fresh]) == [70]

    async def told() -> None:
        async with Scene(tmp_path, forkserver) as place:
            await story(place)

    asyncio.run(told())


async def stampede(place: Scene, count: int, concurrency: int) -> None:
    runs, _ = await orphans(place, count)
    place.open("gate")
    worker = place.worker(concurrency=concurrency)
    most = 0
    store = place.app._store
    pending = asyncio.create_task(place.finished(runs, timeout_s=90))
    while not pending.done():
        for each in await store.workers():
            if each.pid == worker.pid:
                most = max(most, len(await store.mail_counts(each.id)))
        await asyncio.sleep(0.01)
    assert await pending == [[10, "gate", 2]] * count
    assert 0 < most <= concurrency
    for run in runs:
        assert (await place.row(run)).epoch == 3


def test_many_orphans_at_once_are_taken_up_a_few_at_a_time(live: Live) -> None:
    live(lambda place: stampede(place, 60, 7))


@pytest.mark.prove
def test_three_hundred_orphans_are_taken_up_twenty_at_a_time(live: Live) -> None:
    live(lambda place: stampede(place, 300, 20))


def test_when_the_only_worker_that_looked_is_killed_the_next_one_notices_before_its_lease_is_over(live: Live) -> None:
    """No worker is special."""

    async def story(place: Scene) -> None:
        run = await place.app.start(agents.in_a_step("gate"))
        old = place.worker(lease_s=1000.0)
        await place.wait_reached("gate", old)
        new = place.worker()
        await place.at_work(new)
        old.kill()
        await place.wait_reached("gate", new)
        place.open("gate")
        assert await place.finished([run]) == [[10, "gate", 2]]
        assert place.begun("held_step#1") == [old.pid, new.pid]

    live(story)


def test_workers_of_the_same_kind_have_different_ids_each_time(live: Live) -> None:
    """A new process is never taken for the one it replaces."""

    async def story(place: Scene) -> None:
        workers = [place.worker() for _ in range(3)]
        await place.at_work(*workers)
        ids = {each.id for each in await place.app.workers()}
        assert len(ids) == 3
        workers[0].kill()
        again = place.worker()
        await place.at_work(again)
        new = {each.id for each in await place.app.workers() if each.pid == again.pid}
        assert not new & ids

    live(story)


@pytest.mark.sqlite_alone("leases in a database are of its clock, which no boot of a worker's machine sets back")
def test_the_runs_of_another_boot_are_taken_over_at_once(live: Live) -> None:
    """Leases of a machine that has booted since mean nothing, however long they last."""

    async def story(place: Scene) -> None:
        run = await place.app.start(agents.in_a_step("gate"))
        old = place.worker(boot="before", lease_s=1000.0)
        await place.wait_reached("gate", old)
        await place.stop(old)
        new = place.worker()
        await place.wait_reached("gate", new)
        assert [each.proof for each in await place.app.workers() if each.pid == old.pid] in ([], ["boot"])
        place.open("gate")
        assert await place.finished([run]) == [[10, "gate", 2]]
        claims = [r.payload or "" for r in await place.records(run) if r.kind == "claimed"]
        assert '"proof": "boot"' in claims[1]

    live(story)
