"""Loops that stand still, and clocks that jump: who may be taken over from, and who may not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast as hf
from holdfast.base import clock
from holdfast.testing.ledger import VARIABLE
from holdfast.verbs.agent import Agent
from tests.ownership import agents
from tests.ownership.scene import BRIEF_S, LEASE_S, Scene

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]


def test_a_step_that_blocks_the_loop_for_longer_than_a_lease_is_named_and_keeps_its_run(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.stuck("gate"))
        old = scene.worker(lease_s=3.0)
        await scene.wait_reached("gate", old)
        other = scene.worker()
        await scene.at_work(other)
        await scene.renewed(old, for_s=3.0)
        scene.open("gate")
        assert await scene.finished([run]) == [["gate", 3]]
        assert await scene.owners(run) == [old.pid]
        assert scene.begun("stuck_step#1") == [old.pid]
        warnings = [line for line in scene.log_of(old) if line.startswith("loop.blocked")]
        assert warnings
        assert all(f"run={run.id}" in line and "call=stuck_step#1" in line for line in warnings)
        assert not [line for line in scene.log_of(other) if "taken_over" in line]

    live(story)


def test_a_loop_that_is_dead_for_good_is_taken_over_from(live: Live) -> None:
    """A thread that renews the lease is no proof that anything works."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.stuck("gate"))
        old = scene.worker(stall_limit_s=0.5, lease_s=BRIEF_S)
        await scene.wait_reached("gate", old)
        new = scene.worker()
        await scene.at_work(new)
        await scene.wait_reached("gate", new)
        assert any(line.startswith("lease.stalled") for line in scene.log_of(old))
        scene.open("gate", old)  # it lives after all, and is refused
        await scene.lost(old, run)
        scene.open("gate", new)
        assert await scene.finished([run]) == [["gate", 3]]
        assert await scene.owners(run) == [new.pid]
        assert scene.begun("post#1") == [new.pid]

    live(story)


@contextmanager
def early() -> Iterator[None]:
    """What the test starts meanwhile is ready for every worker, whatever its clock says."""
    clock.shift_us(-700_000_000)
    try:
        yield
    finally:
        clock.reset()


@pytest.mark.parametrize("shift_s", [-600, 600])
def test_a_worker_with_a_wrong_clock_keeps_its_runs_and_lets_others_keep_theirs(live: Live, shift_s: int) -> None:
    """Leases are of a clock that nobody can move."""

    async def story(scene: Scene) -> None:
        with early():
            runs = [await scene.app.start(agents.looped("gate", 2)) for _ in range(2)]
        first = scene.worker(concurrency=1)
        await scene.wait_reached("gate.0", first)
        wrong = scene.worker(concurrency=1, shift_s=shift_s)
        await scene.wait_reached("gate.0", wrong)
        await scene.renewed(first, wrong, for_s=1.0)  # each has looked at the other's lease, several times
        scene.open("gate.0")
        scene.open("gate.1")
        assert await scene.finished(runs) == [2, 2]
        owners = sorted([await scene.owners(run) for run in runs])
        assert owners == sorted([[first.pid], [wrong.pid]])

    live(story)


@pytest.mark.parametrize("shift_s", [-600, 600])
def test_timers_of_a_worker_with_a_wrong_clock_are_neither_lost_nor_fire_twice(live: Live, shift_s: int) -> None:

    async def story(scene: Scene) -> None:
        with early():
            runs = [await scene.app.start(agents.naps(1.5)) for _ in range(5)]
        wrong = scene.worker(shift_s=shift_s)
        await scene.at_work(wrong)
        for run in runs:
            await scene.is_at(run, "sleeping", "done")
        scene.worker()
        assert await scene.finished(runs) == [20] * 5
        assert len(scene.begun("look#1")) == len(scene.begun("look#2")) == 5
        for run in runs:
            records = await scene.records(run)
            assert [r.kind for r in records if r.key == "hf:sleep#1"] == ["started", "done"]
            assert [r.seq for r in records] == list(range(1, len(records) + 1))  # in order, whatever the clocks say

    live(story)


def test_a_run_that_is_ready_is_executed_by_a_worker_whose_clock_is_behind(live: Live) -> None:
    """It waits for no time, so no clock keeps it from being executed."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.one_look(1))
        scene.worker(shift_s=-600)
        assert await scene.finished([run]) == [10]

    live(story)


def test_a_clock_that_jumps_under_a_worker_fires_each_timer_once_and_costs_it_no_run(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty days ahead, and an hour back."""

    async def story(scene: Scene) -> None:
        monkeypatch.setenv(VARIABLE, str(scene.ledger.path))
        other = scene.worker()
        await scene.at_work(other)
        settings = hf.Settings(lease_s=LEASE_S, renew_s=0.2, sweep_s=0.1)
        known: list[Agent[..., Any]] = [agents.naps, agents.one_held_step]
        try:
            async with hf.connect(scene.url, agents=known, settings=settings) as app:
                held = await app.start(agents.one_held_step("gate"))
                sleepers = [await app.start(agents.naps(3600)) for _ in range(10)]
                for run in sleepers:
                    await scene.is_at(run, "sleeping")
                clock.shift_us(30 * 86_400_000_000)
                await scene.finished(sleepers)
                clock.shift_us(-31 * 86_400_000_000)
                await scene.renewed(other, for_s=1.0)  # it has looked several times at who is alive
                scene.open("gate")
                assert await scene.finished([held]) == ["gate"]
        finally:
            clock.reset()
        assert [(await scene.row(run)).epoch for run in sleepers] == [2] * 10
        assert (await scene.row(held)).epoch == 1
        assert len(scene.begun("look#2")) == 10

    live(story)
