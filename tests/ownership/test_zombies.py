"""A worker that was stopped for longer than its lease wakes up, and nothing that it wants to write is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.journal.chain import seal_row
from holdfast.journal.journal import Journal
from holdfast.model import WorkerId
from holdfast.testing.samples import new_worker
from tests.forkserver import Forked, eventually
from tests.ownership import agents
from tests.ownership.scene import BRIEF_S, Scene, is_free

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]


async def taken_over(scene: Scene, run: hf.Run[Any], gate: str) -> tuple[Forked, Forked]:
    """A worker is stopped at a gate past its lease; another one has the run and stands at the gate."""
    old = scene.worker(lease_s=BRIEF_S)
    await scene.wait_reached(gate, old)
    await scene.stop(old)
    new = scene.worker()
    await scene.wait_reached(gate, new)
    assert await scene.owners(run) == [old.pid, new.pid]
    return old, new


async def stopped_at(scene: Scene, call: hf.Call[Any], point: str, *, signals: int = 0) -> tuple[hf.Run[Any], Forked]:
    """A run whose worker has stopped at a point, outside of any transaction."""
    name, _, count = point.partition("@")
    for _ in range(5):
        run = await scene.app.start(call)
        for _ in range(signals):
            await run.send("go", 6)
        worker = scene.worker(fault=f"{name}:stop@{count}", lease_s=BRIEF_S)
        await worker.wait_stopped()
        if is_free(scene.url):
            return run, worker
        worker.kill()
        await run.cancel(kill=True)
    raise AssertionError(f"at {point} the process always has the store locked")


def test_a_step_of_a_zombie_leaves_no_trace(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_a_step("gate"))
        old, new = await taken_over(scene, run, "gate")
        before = await scene.row(run)
        scene.open("gate", old)
        old.go_on()
        await scene.lost(old, run)
        assert await scene.row(run) == before  # the outcome was not accepted, nor anything after it
        scene.open("gate", new)
        assert await scene.finished([run]) == [[10, "gate", 2]]
        assert await scene.owners(run) == [old.pid, new.pid]
        assert scene.begun("held_step#1") == [old.pid, new.pid]
        assert scene.begun("look#1") == [old.pid]
        assert scene.begun("post#1") == [new.pid]
        await eventually(lambda: "lease.late" in "\n".join(scene.log_of(old)), what="the old worker to say so")

    live(story)


def test_an_effect_of_a_zombie_is_in_doubt_and_begins_once_more_at_most(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_an_effect("gate"))
        old, new = await taken_over(scene, run, "gate")
        scene.open("gate", old)
        old.go_on()
        await scene.lost(old, run)
        assert (await scene.row(run)).status == "running"
        scene.open("gate", new)
        assert await scene.finished([run]) == [[10, "gate", 20]]
        assert scene.begun("held_effect#1") == [old.pid, new.pid]
        settled = [r for r in await scene.records(run) if r.kind == "settled"]
        assert [r.key for r in settled] == ["held_effect#1"]
        assert scene.begun("look#2")[-1] == new.pid

    live(story)


#: What an agent does right behind its gate, and how its run stands when another worker was let through.
KINDS: dict[str, tuple[Any, str]] = {
    "step": (agents.before_a_step, "done"),
    "intent": (agents.before_an_effect, "done"),
    "end": (agents.before_its_end, "done"),
    "failure": (agents.before_its_failure, "failed"),
    "park": (agents.before_a_sleep, "sleeping"),
    "question": (agents.before_a_question, "waiting"),
    "child": (agents.before_a_child, "done"),
}


@pytest.mark.postgres
def test_what_a_zombie_goes_on_to_write_is_refused_whatever_it_is(live: Live) -> None:

    async def story(scene: Scene) -> None:
        runs = {kind: await scene.app.start(agent(kind)) for kind, (agent, _) in KINDS.items()}
        old = scene.worker(lease_s=BRIEF_S)
        for kind in KINDS:
            await scene.wait_reached(kind, old)
        await scene.stop(old)
        new = scene.worker()
        for kind in KINDS:
            await scene.wait_reached(kind, new)
        before = {kind: await scene.row(run) for kind, run in runs.items()}
        for kind in KINDS:
            scene.open(kind, old)
        old.go_on()
        await scene.lost(old, *runs.values())
        assert {kind: await scene.row(run) for kind, run in runs.items()} == before
        assert {row.epoch for row in before.values()} == {3}
        assert scene.begun("post#1") == []
        assert await scene.app.questions(only_open=False) == []
        assert {each.id for each in await scene.app.runs()} == {run.id for run in runs.values()}
        for kind, (_, status) in KINDS.items():
            scene.open(kind, new)
            await scene.is_at(runs[kind], status)
            assert (await scene.owners(runs[kind]))[:2] == [old.pid, new.pid]
        assert len(await runs["question"].questions()) == 1
        assert scene.begun("post#1") == [new.pid]

    live(story)


def test_a_worker_that_lost_its_runs_is_a_worker_again(live: Live) -> None:
    """It has a lease again, and may take up the run that it lost."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_a_step("gate"))
        old, new = await taken_over(scene, run, "gate")
        old.go_on()
        await scene.at_work(old)
        new.kill()
        await eventually(lambda: scene.reached("gate").count(old.pid) == 2, what="the old worker to take the run again")
        scene.open("gate")
        assert await scene.finished([run]) == [[10, "gate", 2]]
        assert await scene.owners(run) == [old.pid, new.pid, old.pid]

    live(story)


def test_a_zombie_whose_row_was_removed_is_refused_its_renewal_and_loses_its_runs(live: Live) -> None:

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_a_step("gate"))
        old = scene.worker(lease_s=300.0)
        await scene.wait_reached("gate", old)
        await scene.stop(old)
        owner = (await scene.row(run)).owner
        await scene.app._store.remove_worker(WorkerId(str(owner)))
        new = scene.worker()
        await scene.wait_reached("gate", new)  # it is gone: nobody waits for its lease
        before = await scene.row(run)
        scene.open("gate", old)
        old.go_on()
        await eventually(
            lambda: any("lease.lost" in line for line in scene.log_of(old)), what="the renewal to be refused"
        )
        await scene.lost(old, run)
        assert await scene.row(run) == before
        scene.open("gate", new)
        assert await scene.finished([run]) == [[10, "gate", 2]]
        assert scene.begun("post#1") == [new.pid]

    live(story)


#: Where the process is stopped, and how often it has been there.
POINTS = [
    "step.before_body@1",
    "step.after_body@1",
    "effect.before_intent@1",
    "effect.after_intent@1",
    "effect.after_body@1",
    "effect.after_outcome@1",
    "child.before_start@1",
    "child.after_start@1",
    "park.before@1",
    "park.after@1",
    "finish.before@1",
    "finish.before@2",
    "finish.after@2",
    "append.after_commit@1",
    "append.after_commit@2",
    "append.after_commit@3",
    "append.after_commit@4",
]
QUICK_POINTS = ("effect.after_body@1", "park.before@1")


@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=() if each in QUICK_POINTS else pytest.mark.prove) for each in POINTS]
)
def test_a_zombie_of_any_point_changes_nothing(live: Live, point: str) -> None:
    """Stopped there, taken over, woken up while the other one works or after it has ended."""

    async def story(scene: Scene) -> None:
        run, old = await stopped_at(scene, agents.everything(), point, signals=1)
        new = scene.worker()
        if (await scene.is_at(run, "done", "in_doubt")).status == "in_doubt":
            # The old one has not proven to be dead: nobody but it, or a person, knows whether it still acts.
            old.go_on()
            await scene.lost(old, run)
            doubt = (await run.in_doubt())[0]
            has_happened = scene.ledger.happened(doubt.key, run=run.id)
            await doubt.resolve(hf.landed(2 if doubt.key == "post#1" else 5) if has_happened else hf.not_landed())
        assert await scene.finished([run]) == [[10, 2, 30, 40, 5, 6]]
        row = await scene.row(run)
        old.go_on()
        await scene.lost(old, run)
        assert await scene.row(run) == row
        for key in ("post#1", "post#2"):
            assert scene.ledger.happened(key, run=run.id) == 1
            assert len(scene.begun(key, run)) == 1
        assert new.code is None

    live(story)


@pytest.mark.postgres
def test_a_zombie_that_has_written_its_intent_does_not_act_on_it_any_more(live: Live) -> None:
    """It was stopped while it waited for the commit, and finds its lease expired."""

    async def story(scene: Scene) -> None:
        run, old = await stopped_at(scene, agents.posts(), "append.after_commit@1")
        new = scene.worker()
        await scene.is_at(run, "in_doubt")
        await (await run.in_doubt())[0].resolve(hf.not_landed(), note="seen nothing")
        assert await scene.finished([run]) == [2]
        old.go_on()
        await scene.lost(old, run)
        assert scene.begun("post#1", run) == [new.pid]

    live(story)


@hf.effect
async def pay(paid: str) -> None:
    with open(paid, "a") as file:
        file.write("paid\n")


@hf.agent
async def paying(paid: str) -> None:
    await pay(paid)


@pytest.mark.postgres
def test_a_lease_that_was_renewed_too_late_is_no_leave_to_act(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped between the commit of its intent and the effect; its lease is there again before its loop looks."""
    barrier, gone_on = Journal.barrier, asyncio.Event()

    async def story(scene: Scene) -> None:
        other = scene.app._store
        async with hf.connect(scene.url, agents=[paying], settings=hf.Settings(renew_s=0.05)) as app:
            executor: Any = app._here
            lease = executor.lease

            async def late(journal: Journal, *, inline: bool = False) -> None:
                await barrier(journal, inline=inline)
                lease._renewed_ms -= 2 * lease.lease_ms
                await eventually(lambda: lease.remaining_s() > 0, what="the lease to be renewed")
                bob = WorkerId("w_bob")
                await other.add_worker(new_worker(bob, lease_until_ms=other.lease_clock_ms() + 600_000))
                row = journal.row
                taken = seal_row(replace(row, epoch=row.epoch + 1))
                assert await other.claim(taken, owner=bob, expected_epoch=row.epoch, expected_owner=lease.worker_id)
                gone_on.set()

            monkeypatch.setattr(Journal, "barrier", late)
            await app.start(paying(str(tmp_path / "paid")), id="r")
            await gone_on.wait()
            await eventually(lambda: executor.executions.get("r") is None, what="it to be given up")
        assert not (tmp_path / "paid").exists()

    live(story)


@pytest.mark.sqlite_alone("one transaction writes at a time")
def test_a_worker_that_is_stopped_inside_a_transaction_holds_everybody_up_and_loses_nothing(live: Live) -> None:
    """Nobody can write meanwhile, so nobody can take its run; what it had begun to write is accepted."""

    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.long(20))
        old = scene.worker(fault="append.before_commit:stop@3", lease_s=BRIEF_S)
        await old.wait_stopped()
        epoch = (await scene.row(run)).epoch
        new = scene.worker()
        await scene.is_expired(old)
        assert (await scene.row(run)).epoch == epoch
        old.go_on()
        assert await scene.finished([run]) == [20]
        await scene.at_work(old, new)

    live(story)


@pytest.mark.parametrize("what", ["ask", "child"])
def test_a_zombie_asks_and_starts_nothing_for_a_run_that_was_cancelled_meanwhile(live: Live, what: str) -> None:
    """What leaves a run is not in its journal, so the fence of the journal does not hold it."""

    async def story(scene: Scene) -> None:
        # That it asks is on disk, the question is not; likewise the child.
        run, old = await stopped_at(scene, agents.asks_and_starts(what), "append.after_commit@1")
        cancelling = asyncio.create_task(run.cancel())
        new = scene.worker()
        assert await cancelling == "cancelled"
        old.go_on()
        await scene.lost(old, run)
        assert await run.questions() == []
        assert [each.id for each in await scene.app.runs() if each.id.startswith(run.id)] == [run.id]
        assert new.code is None

    live(story)
