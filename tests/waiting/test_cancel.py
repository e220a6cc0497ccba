"""Cancelling: quick, truthful, with everything undone that was to be undone, and final."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene, others_are_done
from tests.workers import noted, until

# running


def test_a_body_under_way_is_cancelled_before_the_answer_is_given(tmp_path: Path) -> None:
    """How soon is measured by `make bench`."""
    told: list[str] = []
    began = asyncio.Event()

    @hf.step
    async def body() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    @hf.agent
    async def agent() -> None:
        await body()

    async def run() -> None:
        url = str(tmp_path / "s.db")
        async with hf.connect(url, agents=[agent]) as app, hf.connect(url) as client:
            run = await app.start(agent())
            await began.wait()
            assert await client.get(run.id).cancel(by="ada", note="enough", timeout=60) == "cancelled"
            assert told == ["cancelled"]
            assert await run.status() == "cancelled"
            with pytest.raises(hf.RunCancelled):
                await run.result(timeout=60)
            assert await run.cancel(timeout=60) == "cancelled", "again"
            noted = next(item for item in await run.history() if item.name == "cancel")
            assert "ada" in noted.detail
            assert "enough" in noted.detail

    asyncio.run(run())


@pytest.mark.parametrize(
    ("times", "seed"), [(500, 1), pytest.param(2000, random.randrange(10**6), id="many", marks=pytest.mark.prove)]
)
def test_cancel_and_completion_race_and_the_answer_is_the_truth(tmp_path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    url = str(tmp_path / "s.db")

    @hf.step
    async def work(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    @hf.agent
    async def quick(turns: int) -> int:
        return await work(turns)

    async def one(app: hf.Holdfast, client: hf.Holdfast, n: int) -> tuple[str, hf.Status]:
        run = await app.start(quick(chance.choice((0, 30, 300, 1500))), id=f"r{n}")
        for _ in range(chance.choice((0, 1, 3, 10, 30, 100, 300))):
            await asyncio.sleep(0)
        return run.id, await chance.choice((app, client)).get(run.id).cancel(timeout=60)

    async def run() -> None:
        told: dict[str, hf.Status] = {}
        async with hf.connect(url, agents=[quick]) as app, hf.connect(url) as client:
            for start in range(0, times, 25):
                told.update(await asyncio.gather(*(one(app, client, n) for n in range(start, start + 25))))
            for run_id, status in told.items():
                assert await app.get(run_id).status() == status, f"seed {seed}, run {run_id}"
                assert await app.get(run_id).cancel(timeout=60) == status, "it does not change any more"
        assert set(told.values()) == {"cancelled", "done"}, f"only one order occurred: {Counter(told.values())}"

    asyncio.run(run())


def test_nothing_can_be_done_to_a_cancelled_run(tmp_path: Path) -> None:
    @hf.agent
    async def agent() -> str:
        return await hf.receive(("word", str))

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            await until(run, "waiting")
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.pause() == "cancelled"
            await run.resume()
            with pytest.raises(hf.RunFinished):
                await run.send("word", "x")
            assert await run.status() == "cancelled"

    asyncio.run(run())


# code that does not want to stop


@hf.step
async def tick(n: int) -> int:
    await asyncio.sleep(0.001)
    return n


@hf.agent
async def shielded() -> str:
    async def inner() -> int:
        return sum([await tick(n) for n in range(500)])

    with suppress(asyncio.CancelledError):
        await asyncio.shield(asyncio.ensure_future(inner()))
    for n in range(500):
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.ensure_future(tick(n)))
    return "finished all the same"


@hf.agent
async def waiting_for() -> str:
    """`wait_for` of a body that ends with a value when it is cancelled."""

    async def inner() -> str:
        try:
            while True:
                await tick(0)
        except asyncio.CancelledError:
            return "swallowed"

    said = await asyncio.wait_for(inner(), 60)
    for n in range(500):
        await tick(n)
    return said


@hf.agent
async def returns_anyway() -> str:
    with suppress(asyncio.CancelledError):
        await tick(0)
        await hf.sleep(3600)
        await tick(1)
    return "a result"


@pytest.mark.parametrize("agent", [shielded, waiting_for, returns_anyway], ids=lambda agent: agent.name)
def test_code_that_swallows_its_cancellation_is_stopped(agent: hf.Agent[[], Any], tmp_path: Path) -> None:

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            await noted(run, "tick")
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled", "the answer was not given before it was true"
            records = (await run.info()).records
        async with hf.connect(str(tmp_path / "s.db")) as client:  # whoever executed it has ended
            assert (await client.get(run.id).info()).records == records

    asyncio.run(run())


@pytest.mark.prove  # it is given some seconds first
def test_a_worker_with_code_that_does_not_stop_stops(scene: Scene) -> None:
    """The run is over, and the process ends when it is told to."""

    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.stubborn(), id="r")
            await eventually(lambda: scene.done("look"))
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            other = await app.start(agents.nap(0))
            assert await other.result(timeout=60) == "awake"
            worker.send(signal.SIGTERM)
            assert await worker.wait_dead() == 0

    asyncio.run(run())


# clean-up


def test_clean_up_with_durable_calls_runs_to_its_end(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            run = await app.start(agents.tidy(), id="r")
            await eventually(lambda: scene.done("dawdle"))
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            assert scene.done("post") == [1, 2]
            assert scene.done("look")[-1] == 4

    asyncio.run(run())


def test_a_saga_is_undone_when_the_run_is_cancelled(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            with scene.working():
                run = await app.start(agents.busy_trip(), id="running")
                await eventually(lambda: scene.done("dawdle"))
                assert await run.cancel(timeout=60) == "cancelled"
                assert await run.status() == "cancelled"
                assert scene.done("unbook") == ["flight"]
                parked = await app.start(agents.trip(1), id="parked")
                await until(parked, "waiting")
            # Nobody works: it is not over before it is undone, and whoever comes does that.
            assert await parked.cancel(timeout=0.1) in ("queued", "waiting", "cancelled")
            assert await parked.status() == "queued"
            assert scene.done("unbook") == ["flight"]
            scene.worker()
            await until(parked, "cancelled")
            assert scene.done("unbook") == ["flight", "hotel", "flight"]

    asyncio.run(run())


def test_a_paused_saga_is_undone_as_well(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            run = await app.start(agents.trip(1), id="r")
            await until(run, "waiting")
            await run.pause()
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            assert scene.done("unbook") == ["hotel", "flight"]

    asyncio.run(run())


async def cancel_trip(scene: Scene, app: hf.Holdfast) -> object:
    run = await app.start(agents.trip(1), id="r")
    await eventually(lambda: scene.done("book") == ["flight", "hotel"])
    await run.cancel(timeout=60)
    await until(run, "cancelled")
    return scene.done("book"), list(dict.fromkeys(scene.done("unbook")))


async def cancel_tidy(scene: Scene, app: hf.Holdfast) -> object:
    run = await app.start(agents.tidy(), id="r")
    await eventually(lambda: scene.done("dawdle"))
    await noted(run, "dawdle")  # what is on disk: one of which nothing is, is cancelled before it begins anew
    await run.cancel(timeout=60)
    await until(run, "cancelled")
    return scene.done("post"), set(scene.done("look"))


def test_undoing_goes_on_after_a_crash_in_its_middle(tmp_path: Path, forkserver: ForkServer) -> None:
    only = ("cancel.accepted", "undo.before@2", "undo.after@1", "effect.after_body@3")
    lives = live(tmp_path, forkserver, cancel_trip, only=only)
    assert lives.end == (["flight", "hotel"], ["hotel", "flight"])
    assert {"cancel.accepted", "undo.before", "undo.after"} <= set(lives.killed_at)


def test_a_cancelled_run_is_cancelled_at_the_same_place_when_it_is_replayed(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    only = ("cancel.accepted", "effect.after_body@1", "step.after_body@4", "finish.before")
    lives = live(tmp_path, forkserver, cancel_tidy, only=only)
    assert lives.end == ([1, 2], {1, 2, 3, 4})


@pytest.mark.prove
@pytest.mark.parametrize("drive", [cancel_trip, cancel_tidy])
def test_cancelling_survives_a_kill_at_every_point(drive: Any, tmp_path: Path, forkserver: ForkServer) -> None:
    print(live(tmp_path, forkserver, drive))


# nobody there


@pytest.mark.parametrize("state", ["waiting", "sleeping", "queued", "paused"])
def test_what_nobody_executes_and_has_nothing_to_undo_ends_at_once(state: str, scene: Scene) -> None:
    """No worker is alive."""

    async def run() -> None:
        async with scene.client() as app:
            call: hf.Call[Any] = agents.collect(1) if state == "waiting" else agents.nap(3600)
            run = await app.start(call, id="r", paused=state == "paused")
            if state in ("waiting", "sleeping"):
                with scene.working():
                    await until(run, state)
            assert await run.status() == state
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            scene.worker()
            await others_are_done(app)
            assert await run.status() == "cancelled"
            assert scene.done() == ([1] if state == "sleeping" else [])

    asyncio.run(run())


@pytest.mark.postgres
def test_a_run_whose_worker_died_is_cancelled_by_the_next_one(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            with scene.working():
                run = await app.start(agents.tidy(), id="r")
                await eventually(lambda: scene.done("dawdle"))
                await noted(run, "look", times=3)  # on disk: when it is replayed, it is in the middle of its work
            await run.cancel(timeout=0.1)
            scene.worker()
            await until(run, "cancelled")
            assert scene.done("post") == [1, 2], "its clean-up ran"

    asyncio.run(run())


async def gambled(scene: Scene, app: hf.Holdfast) -> hf.Run[Any]:
    """A run whose worker died in an effect, and which is in doubt with the next one."""
    with scene.working():
        run = await app.start(agents.gambles(), id="r")
        await eventually(lambda: scene.done("risky"))
    scene.worker()
    await until(run, "in_doubt")
    return run


def test_a_run_in_doubt_can_be_cancelled_and_says_what_is_left_in_doubt(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await gambled(scene, app)
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            assert scene.done("risky") == [1]
            assert await app.in_doubt() == []
            told = " ".join(f"{item.name} {item.detail}" for item in await run.history())
            assert "left in doubt" in told or "risky" in told

    asyncio.run(run())


def test_a_verdict_on_a_run_that_ends_meanwhile_comes_too_late(scene: Scene) -> None:
    """It ends after the person's process has looked at it, and before that stores the verdict."""

    async def run() -> None:
        async with scene.client() as app:
            run = await gambled(scene, app)
            (doubt,) = await run.in_doubt()
            store = app._store
            send = store.send

            async def send_late(*given: Any, **more: Any) -> Any:
                store.send = send  # type: ignore[method-assign]
                await run.cancel(kill=True)
                return await send(*given, **more)

            store.send = send_late  # type: ignore[method-assign]
            with pytest.raises(hf.AlreadySettled):
                await doubt.resolve(hf.not_landed())

    asyncio.run(run())


def test_a_run_is_reached_while_others_wait_for_a_full_queue(scene: Scene) -> None:
    """Who looks for runs to take up, and gets none, hears all the same what came for those under way."""

    async def run() -> None:
        async with scene.client() as app:
            await app.queue("lane", concurrency=3)
            scene.worker()
            under_way = [await app.start(agents.counting(1, 600), queue="lane") for _ in range(3)]
            await eventually(lambda: scene.done("dawdle") == [600] * 3)
            for _ in range(3):
                await app.start(agents.counting(1, 600), queue="lane")
            other = await app.start(agents.nap(0))
            assert await other.result(timeout=60) == "awake"  # by then it has tried to take up those that wait
            assert await under_way[0].cancel(timeout=60) == "cancelled"

    asyncio.run(run())


# children


@pytest.mark.postgres
def test_children_follow_whatever_they_do(scene: Scene) -> None:
    """Awaited and started, parked, running here and elsewhere."""

    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            scene.worker()
            run = await app.start(agents.family(600), id="r")
            await eventually(lambda: len(scene.done("dawdle")) == 3)
            assert await run.cancel(timeout=60) == "cancelled"
            assert await run.status() == "cancelled"
            children = [info for info in await app.runs() if info.parent_id == "r"]
            assert len(children) == 5
            for child in children:
                await until(app.get(child.id), "cancelled")
            assert scene.done("dawdled") == []

    asyncio.run(run())


def test_children_of_a_parked_run_follow_without_a_worker(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.family(3600), id="r")
            with scene.working():
                await eventually(lambda: len(scene.done("dawdle")) == 3)
            assert await run.cancel(kill=True) == "cancelled"
            assert {info.status for info in await app.runs()} == {"cancelled"}

    asyncio.run(run())


# kill


def test_kill_ends_a_run_whose_code_blocks_its_worker(scene: Scene) -> None:
    """Final at once; what its code does afterwards is refused."""

    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.blocks(), id="r")
            await eventually(lambda: scene.done("post") == [1])
            assert await run.cancel(kill=True, by="ada") == "cancelled"
            records = await app._store.records(run.id)
            scene.open_gate()
            await others_are_done(app)  # the worker itself goes on
            assert worker.code is None
            worker.send(signal.SIGTERM)
            assert await worker.wait_dead() == 0
            assert await run.status() == "cancelled"
            assert await app._store.records(run.id) == records
            assert scene.done("post") == [1], "no effect begins after the end"

    asyncio.run(run())


def test_kill_ends_a_run_whose_worker_stands_still(scene: Scene) -> None:
    """The zombie wakes up, and all it writes is refused."""

    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.lingers(), id="r")
            await eventually(lambda: scene.done("dawdle"))
            await scene.stop_at_rest(worker)
            assert await run.cancel(kill=True) == "cancelled"
            records = await app._store.records(run.id)
            scene.open_gate()
            worker.go_on()
            await others_are_done(app)
            worker.send(signal.SIGTERM)
            assert await worker.wait_dead() == 0
            assert await run.status() == "cancelled"
            assert await app._store.records(run.id) == records
            assert len(scene.done("linger")) <= 1, "no more than a body that was about to begin"
            assert scene.done("post") == []

    asyncio.run(run())


@pytest.mark.parametrize("state", ["running", "in a handler", "by itself"])
def test_it_can_be_cancelled_whatever_it_does(state: str, tmp_path: Path) -> None:
    """While a pause waits for a body, while a handler of an interrupt works, and by its own code."""
    begun: list[str] = []

    @hf.step
    async def body(name: str) -> str:
        begun.append(name)
        await asyncio.sleep(600 if name == "long" else 0.001)
        return name

    @hf.agent
    async def agent() -> str:
        try:
            if state == "by itself":
                await hf.get(hf.this_run().id).cancel()  # it may be heard here already, or in the body
            return await body("long")
        finally:
            await body("clean-up")

    @agent.on_interrupt
    async def handler(message: str) -> str:
        return await body(message)

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            replied: asyncio.Task[Any] | None = None
            if state != "by itself":
                await eventually(lambda: begun)
                if state == "running":
                    assert await run.pause() == "paused"
                    await noted(run, "paused")
                else:
                    replied = asyncio.create_task(run.interrupt("long", timeout=60))
                    await eventually(lambda: len(begun) == 2)
                assert await run.cancel(timeout=60) == "cancelled"
            with pytest.raises(hf.RunCancelled):
                await run.result(timeout=60)
            assert begun[-1] == "clean-up"
            if replied is not None:
                with pytest.raises(hf.RunFinished, match="cancelled"):
                    await replied

    asyncio.run(run())
