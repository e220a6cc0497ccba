"""Pause and resume: at a durable boundary, with all timers, and back to exactly where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import Kind
from holdfast.testing import Clock
from tests.eventually import eventually
from tests.waiting import agents
from tests.waiting.scene import Scene, others_are_done
from tests.workers import asked, noted, until


@hf.agent
async def child(seconds: float) -> str:
    await hf.sleep(seconds)
    return "grown"


@hf.agent
async def waits(what: str) -> str:
    match what:
        case "signal":
            return await hf.receive(("word", str))
        case "sleep":
            await hf.sleep(hours=1)
            return "awake"
        case "question":
            return str(await hf.ask("Well?"))
        case _:
            return await child(3600)


async def epoch_of(app: hf.Holdfast, run: hf.Run[Any]) -> int:
    row = await app._store.run(run.id)
    assert row is not None
    return row.epoch


@pytest.mark.postgres
def test_a_running_run_stops_after_the_body_under_way(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            run = await app.start(agents.counting(3, 600), id="r")
            await eventually(lambda: scene.done("dawdle") == [600])
            assert await run.pause(by="ada", note="lunch") == "paused"
            await noted(run, "paused")
            assert await run.status() == "running"
            scene.open_gate()
            await until(run, "paused")
            assert scene.done("dawdled") == [600], "the body came to its end"
            records = await app._store.records(run.id)
            assert any(r.kind == Kind.done and r.name == "dawdle" for r in records), "and its outcome is recorded"
            await others_are_done(app)
            assert scene.done("dawdle") == [600]
            info = await run.info()
            assert info.reason is not None
            assert info.reason["why"] == "paused"
            await run.resume(by="bob")
            assert await run.result(timeout=60) == 3
            assert scene.done("dawdle") == [600] * 3
            told = [item.detail for item in await run.history() if item.name == "paused"]
            assert len(told) == 2
            assert "ada" in told[0]
            assert "lunch" in told[0]
            assert "bob" in told[1]

    asyncio.run(run())


@pytest.mark.parametrize("what", ["signal", "sleep", "question", "child"])
def test_a_parked_run_is_paused_at_once_and_goes_back_to_its_wait(what: str, tmp_path: Path) -> None:
    """No worker is needed to pause, none to resume, and nothing is replayed if nothing came meanwhile."""
    url = str(tmp_path / "s.db")
    status = "sleeping" if what == "sleep" else "waiting"

    async def run() -> None:
        async with hf.connect(url, agents=[waits, child]) as app:
            run = await app.start(waits(what), id="r")
            await until(run, status)
        async with hf.connect(url) as client:
            run = client.get("r")
            before = await run.info()
            assert await run.pause() == "paused"
            assert await run.status() == "paused"
            assert await run.pause() == "paused", "again"
            await run.resume()
            after = await run.info()
            assert after.status == status
            assert after.reason is not None
            assert before.reason is not None
            for each in ("why", "waits", "due"):
                assert after.reason[each] == before.reason[each]
            row = await client._store.run(run.id)
            assert row is not None
            assert row.wake_at == before.reason["due"]
            epoch = after.epoch
        async with hf.connect(url, agents=[waits, child]) as app, Clock(app) as clock:
            run = app.get("r")
            await clock.settle()
            assert (await run.info()).epoch == epoch, "nobody had a reason to take it up"
            match what:
                case "signal":
                    await run.send("word", "True")
                case "question":
                    await (await run.questions())[0].answer(True)
            await clock.skip(hours=2)
            assert await run.result(timeout=60) == {"sleep": "awake", "child": "grown"}.get(what, "True")

    asyncio.run(run())


def test_what_came_while_it_was_paused_is_found_on_resume(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[waits, child]) as app, Clock(app) as clock:
            question = await app.start(waits("question"))
            parent = await app.start(waits("child"))
            await asked(question)
            await until(question, "waiting")
            await until(parent, "waiting")
            for each in (question, parent):
                await each.pause()
            await (await question.questions())[0].answer(False)
            (info,) = [i for i in await app.runs() if i.parent_id == parent.id]
            await app.get(info.id).cancel(timeout=60)
            await clock.settle()
            assert {await question.status(), await parent.status()} == {"paused"}
            for each in (question, parent):
                await each.resume()
            assert await question.result(timeout=60) == "False"
            with pytest.raises(hf.RunFailed, match="cancelled"):
                await parent.result(timeout=60)

    asyncio.run(run())


def test_a_queued_run_and_one_that_is_started_paused_wait_until_they_are_resumed(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            queued = await app.start(agents.nap(0), id="queued")
            born = await app.start(agents.nap(0), id="born", paused=True)
            assert (await queued.status(), await born.status()) == ("queued", "paused")
            assert await queued.pause() == "paused"
            scene.worker()
            await others_are_done(app)
            assert scene.done() == []
            assert (await queued.status(), await born.status()) == ("paused", "paused")
            await queued.resume()
            await born.resume()
            assert [await run.result(timeout=60) for run in (queued, born)] == ["awake", "awake"]

    asyncio.run(run())


def test_runs_are_paused_resumed_and_cancelled_by_filter(tmp_path: Path) -> None:
    @hf.agent
    async def other() -> str:
        return await hf.receive(("word", str))

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[waits, other]) as app:
            threads = [await app.start(waits("signal"), thread_id=f"t{n % 2}") for n in range(6)]
            others = [await app.start(other()) for _ in range(3)]
            for run in threads + others:
                await until(run, "waiting")
            odd = {run.id for run in threads[1::2]}
            assert set(await app.pause_all(agent="waits", thread_id="t1", by="ada")) == odd
            assert {run.id for run in threads + others if await run.status() == "paused"} == odd
            assert await app.pause_all(agent="waits", thread_id="t1") == [], "they are"
            assert set(await app.pause_all(agent="other")) == {run.id for run in others}
            assert set(await app.resume_all(thread_id="t1")) == odd
            assert set(await app.cancel_all(status="paused")) == {run.id for run in others}
            assert {await run.status() for run in others} == {"cancelled"}
            assert set(await app.cancel_all()) == {run.id for run in threads}
            assert await app.cancel_all() == []

    asyncio.run(run())


def test_a_run_that_has_ended_cannot_be_paused_and_says_so(tmp_path: Path) -> None:
    @hf.agent
    async def quick() -> int:
        return 1

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[quick]) as app:
            run = await app.start(quick())
            await run.result(timeout=60)
            assert await run.pause() == "done"
            await run.resume()
            assert await run.status() == "done"

    asyncio.run(run())


def test_a_paused_run_stays_paused_when_its_worker_dies(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.counting(2, 600), id="r")
            await eventually(lambda: scene.done("dawdle") == [600])
            await run.pause()
            await noted(run, "paused")
            worker.kill()  # in the middle of the body that the pause waits for
            assert scene.done("dawdled") == []
            scene.worker()
            await until(run, "paused")
            assert scene.done("dawdle") == [600], "whoever took it over did not begin anything"
            scene.open_gate()
            await run.resume()
            assert await run.result(timeout=60) == 2

    asyncio.run(run())


def test_a_pause_that_its_owner_never_saw_holds_as_well(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.counting(2, 600), id="r")
            await eventually(lambda: scene.done("dawdle") == [600])
            await scene.stop_at_rest(worker)
            assert await run.pause() == "paused"
            worker.kill()
            scene.worker()
            await until(run, "paused")
            assert scene.done("dawdle") == [600]
            scene.open_gate()
            await run.resume()
            assert await run.result(timeout=60) == 2

    asyncio.run(run())


def test_pause_and_resume_in_quick_succession_lose_nothing(tmp_path: Path) -> None:
    began: list[int] = []

    @hf.step
    async def tick(n: int) -> int:
        began.append(n)
        await asyncio.sleep(0.002)
        return n

    @hf.agent
    async def ticks(count: int) -> list[int]:
        return [await tick(n) for n in range(count)]

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[ticks]) as app:
            run = await app.start(ticks(60))
            for n in range(25):
                await run.pause()
                if n % 3:
                    await asyncio.sleep(0.004 * (n % 5))
                await run.resume()
            assert await run.result(timeout=60) == list(range(60))
            assert began == list(range(60)), "no step ran twice"

    asyncio.run(run())


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_resuming_a_live_run_twenty_times_at_once_starts_nothing_twice(state: str, scene: Scene) -> None:

    async def run() -> None:
        async with scene.client() as app, scene.client() as other:
            for _ in range(2):
                scene.worker()
            call: hf.Call[Any] = agents.counting(2, 600) if state == "running" else agents.collect(1)
            run = await app.start(call, id="r")
            await until(run, state)
            if state == "running":
                await eventually(lambda: scene.done("dawdle"))
            epoch = await epoch_of(app, run)
            handles = [client.get("r") for client in (app, other) for _ in range(10)]
            done = await asyncio.gather(*(handle.resume() for handle in handles))
            assert done == [None] * 20
            if state == "waiting":  # it may be woken to look again; that is one execution after the other
                await until(run, "waiting")
                await run.send("number", 1)
                assert await run.result(timeout=60) == [1]
                assert scene.done("post") == [1]
            else:
                scene.open_gate()
                assert await run.result(timeout=60) == 2
                assert await epoch_of(app, run) == epoch
                assert scene.done("dawdle") == [600, 600]
                assert scene.done("post") == [2]

    asyncio.run(run())


@pytest.mark.postgres
def test_resuming_a_paused_run_twenty_times_at_once_makes_one_execution(scene: Scene) -> None:

    async def run() -> None:
        async with scene.client() as app, scene.client() as other:
            for _ in range(2):
                scene.worker()
            run = await app.start(agents.nap(0), id="r", paused=True)
            handles = [client.get("r") for client in (app, other) for _ in range(10)]
            await asyncio.gather(*(handle.resume() for handle in handles))
            assert await run.result(timeout=60) == "awake"
            assert scene.done() == [1, 2]
            records = await app._store.records(run.id)
            assert sum(r.kind == Kind.claimed for r in records) == 1

    asyncio.run(run())


def test_a_run_paused_for_two_weeks_goes_on_with_new_code(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    done: list[str] = []

    @hf.step
    async def fetch(n: int) -> int:
        done.append(f"fetch {n}")
        return n

    @hf.effect
    async def publish(n: int) -> str:
        done.append(f"publish {n}")
        return f"published {n}"

    @hf.agent(name="paper", version="1")
    async def before() -> str:
        n = await fetch(1)
        await hf.sleep(days=1)
        return await publish(n)

    @hf.agent(name="paper", version="2")
    async def after() -> str:
        n = await fetch(1)
        await hf.sleep(days=1)
        more = await fetch(2)
        return await publish(n + more)

    async def run() -> None:
        async with hf.connect(url, agents=[before]) as app, Clock(app) as clock:
            run = await app.start(before(), id="r")
            await clock.settle()
            await run.pause()
        async with hf.connect(url, agents=[after]) as app, Clock(app) as clock:
            run = app.get("r")
            await clock.skip(days=14)
            assert await run.status() == "paused"
            await run.resume()
            await clock.skip(seconds=1)
            assert await run.result(timeout=60) == "published 3"
        assert done == ["fetch 1", "fetch 2", "publish 3"]

    asyncio.run(run())


def test_a_worker_with_a_clock_two_weeks_ahead_resumes_it(scene: Scene) -> None:

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.nap(3600), id="r")
            with scene.working():
                await until(run, "sleeping")
            await run.pause()
            with scene.working(shift_s=14 * 86_400):
                await others_are_done(app)
                assert await run.status() == "paused"
                await run.resume()
                assert await run.result(timeout=60) == "awake"
            assert scene.done() == [1, 2]

    asyncio.run(run())


def test_a_run_whose_owner_is_dead_can_be_paused_without_another_one(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(agents.counting(2, 600), id="r")
            await eventually(lambda: scene.done("dawdle") == [600])
            worker.kill()
            assert await run.pause() == "paused"
            scene.open_gate()
            scene.worker()
            await until(run, "paused")
            await others_are_done(app)
            assert await run.status() == "paused"
            await run.resume()
            assert await run.result(timeout=60) == 2

    asyncio.run(run())
