"""Interrupts: a handler replies while the main line is held, and the main line is none the wiser."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import Clock
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene
from tests.workers import asked, noted, until

log: list[str] = []
held: set[str] = set()  #: bodies that do not end before they are taken out of it


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    held.clear()


async def write(text: str) -> None:
    log.append(text)
    await asyncio.sleep(0.01)
    await eventually(lambda: text not in held)


@hf.step
async def work(n: int) -> int:
    await write(f"work {n}")
    return n * 10


@hf.step
async def note(text: str) -> str:
    await write(text)
    return text


@hf.agent
async def works(count: int) -> list[int]:
    done = []
    for n in range(count):
        hf.progress(n, count)
        done.append(await work(n))
    return done


@works.on_interrupt
async def interrupted(message: dict[str, Any], main: hf.MainLine) -> dict[str, Any]:
    for each in message.get("notes", []):
        await note(each)
    if message.get("raise"):
        raise KeyError("nothing there")
    return {"now": main.now, "calls": list(main.calls), "last": main.last, "progress": main.progress}


@hf.agent
async def listens() -> str:
    return await hf.receive(("word", str))


@listens.on_interrupt
async def heard(message: str) -> str:
    if message == "ask":
        return f"they said {await hf.ask('Is it?', hf.Approval)}"
    if message == "receive":
        return await hf.receive(("other", str))
    return message.upper()


def test_the_handler_replies_and_knows_where_the_main_line_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app:
            held.add("work 2")
            run = await app.start(works(8))
            await eventually(lambda: "work 2" in log)
            reply = await run.interrupt({}, by="ada", timeout=60)
            held.clear()
            assert reply["calls"][:2] == ["work#1", "work#2"]
            assert reply["last"] == (len(reply["calls"]) - 1) * 10
            assert reply["progress"]["total"] == 8
            assert reply["now"]
            assert await run.result(timeout=60) == [n * 10 for n in range(8)]
            assert log == [f"work {n}" for n in range(8)]

    asyncio.run(run())


def test_the_main_line_is_held_at_its_next_call_and_goes_on_after(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app:
            held.add("work 1")
            run = await app.start(works(6))
            await eventually(lambda: "work 1" in log)
            reply = asyncio.create_task(run.interrupt({"notes": ["a", "b", "c"]}, timeout=60))
            await eventually(lambda: "a" in log)
            held.clear()
            await reply
            assert await run.result(timeout=60) == [n * 10 for n in range(6)]
            first, last = log.index("a"), log.index("c")
            assert last - first == 2, f"nothing of the main line began meanwhile: {log}"
            assert [each for each in log if each.startswith("work")] == [f"work {n}" for n in range(6)]

    asyncio.run(run())


def test_an_error_in_the_handler_is_the_reply_and_not_the_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app:
            held.add("work 4")
            run = await app.start(works(5))
            with pytest.raises(KeyError, match="nothing there"):
                await run.interrupt({"raise": True}, timeout=60)
            held.clear()
            assert await run.result(timeout=60) == [0, 10, 20, 30, 40]

    asyncio.run(run())


def test_messages_and_replies_may_be_large(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens]) as app:
            run = await app.start(listens())
            assert await run.interrupt("x" * 50_000, timeout=60) == "X" * 50_000
            await run.send("word", "w")
            assert await run.result(timeout=60) == "w"

    asyncio.run(run())


def test_a_message_of_the_wrong_type_is_an_error_for_its_sender_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens]) as app:
            run = await app.start(listens())
            with pytest.raises(hf.HoldfastError):
                await run.interrupt({"not": "a text"}, timeout=60)
            assert await run.interrupt("a text", timeout=60) == "A TEXT"
            await run.send("word", "x")
            assert await run.result(timeout=60) == "x"

    asyncio.run(run())


def test_several_are_handled_in_order(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app:
            held.add("work 19")
            run = await app.start(works(20))
            replies = await asyncio.gather(
                *(run.interrupt({"notes": [f"{n} begins", f"{n} ends"]}, timeout=60) for n in range(5))
            )
            assert len(replies) == 5
            held.clear()
            assert await run.result(timeout=60) == [n * 10 for n in range(20)]
            notes = [each for each in log if not each.startswith("work")]
            assert sorted(notes[::2]) == [f"{n} begins" for n in range(5)]
            for n in range(0, 10, 2):
                assert notes[n + 1] == notes[n].replace("begins", "ends"), "one after the other"

    asyncio.run(run())


def test_a_parked_run_is_woken_for_it_and_goes_back_to_its_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens]) as app:
            run = await app.start(listens())
            await until(run, "waiting")
            assert await run.interrupt("hello", timeout=60) == "HELLO"
            await until(run, "waiting")
            assert await run.interrupt("again", timeout=60) == "AGAIN"
            await until(run, "waiting")
            await run.send("word", "done")
            assert await run.result(timeout=60) == "done"

    asyncio.run(run())


def test_a_paused_run_handles_it_when_it_is_resumed(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app, Clock(app) as clock:
            run = await app.start(works(3), paused=True)
            reply = asyncio.create_task(run.interrupt({"notes": ["a"]}, timeout=60))
            await eventually(lambda: app._store.mail(run.id, after=0))
            await clock.settle()
            assert await run.status() == "paused"
            assert log == []
            held.add("work 2")  # the run does not end before the interrupt has begun
            await run.resume()
            await reply
            held.clear()
            assert await run.result(timeout=60) == [0, 10, 20]

    asyncio.run(run())


def test_a_handler_is_paused_with_its_run(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app, Clock(app) as clock:
            held.update(("work 4", "a"))
            run = await app.start(works(5))
            await eventually(lambda: "work 0" in log)
            reply = asyncio.create_task(run.interrupt({"notes": ["a", "b", "c"]}, timeout=60))
            await eventually(lambda: "a" in log)
            await run.pause()
            await noted(run, "paused")
            held.clear()
            await until(run, "paused")
            so_far = list(log)
            assert "b" not in so_far
            await clock.settle()
            assert log == so_far
            await run.resume()
            await reply
            assert await run.result(timeout=60) == [0, 10, 20, 30, 40]
            assert len(log) == len(set(log)) == 8

    asyncio.run(run())


def test_a_handler_can_wait_for_people_and_for_signals(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens]) as app, Clock(app) as clock:
            run = await app.start(listens())
            await until(run, "waiting")
            reply = asyncio.create_task(run.interrupt("ask", timeout=60))
            (question,) = await asked(run)
            await until(run, "waiting")
            await question.answer(True, by="ada")
            assert "ada" in await reply
            reply = asyncio.create_task(run.interrupt("receive", timeout=60))
            await noted(run, "hf:receive.other")
            await run.send("word", "main")  # the main line is held
            await clock.settle()
            assert await run.status() != "done"
            await run.send("other", "aside")
            assert await reply == "aside"
            assert await run.result(timeout=60) == "main"

    asyncio.run(run())


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_wait_of_the_main_line_does_not_end_while_a_handler_works(is_parked: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens]) as app, Clock(app) as clock:
            run = await app.start(listens())
            if is_parked:
                await until(run, "waiting")
            reply = asyncio.create_task(run.interrupt("receive", timeout=60))
            await noted(run, "hf:receive.other")
            await run.send("word", "main")
            await clock.settle()
            await run.send("other", "aside")
            assert await reply == "aside"
            assert await run.result(timeout=60) == "main"

    asyncio.run(run())


def test_a_run_does_not_end_while_a_handler_works(tmp_path: Path) -> None:
    is_interrupted = asyncio.Event()

    @hf.step
    async def last() -> str:
        await is_interrupted.wait()
        return "the last"

    @hf.agent
    async def brief() -> str:
        return await last()

    @brief.on_interrupt
    async def lengthy(message: list[str], main: hf.MainLine) -> bool:
        is_interrupted.set()
        for each in message:
            await note(each)
        return main.last is None

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[brief]) as app:
            run = await app.start(brief())
            assert await run.interrupt(["a", "b", "c", "d"], timeout=60) is True
            assert log == ["a", "b", "c", "d"]
            assert await run.result(timeout=60) == "the last"

    asyncio.run(run())


def test_without_a_handler_it_is_refused_to_the_sender(tmp_path: Path) -> None:
    @hf.agent
    async def deaf() -> str:
        return await hf.receive(("word", str))

    async def run() -> None:
        url = str(tmp_path / "s.db")
        async with hf.connect(url, agents=[deaf]) as app, hf.connect(url) as client:
            run = await app.start(deaf())
            for each in (run, client.get(run.id)):
                with pytest.raises(hf.UsageError, match="does not handle interrupts"):
                    await each.interrupt("hello", timeout=60)
            with pytest.raises(hf.RunNotFound):
                await app.get("r_nobody").interrupt("hello", timeout=60)

    asyncio.run(run())


def test_a_run_that_has_ended_takes_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[works]) as app:
            run = await app.start(works(0))
            await run.result(timeout=60)
            with pytest.raises(hf.RunFinished):
                await run.interrupt({}, timeout=60)

    asyncio.run(run())


def test_the_handler_can_cancel_the_run(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            run = await app.start(agents.writes(500), id="r")
            await eventually(lambda: len(scene.done("look")) >= 3)
            with suppress(hf.RunFinished):  # its reply may come before that, or not at all
                assert (await run.interrupt("cancel", timeout=60)).startswith("cancel")
            await until(run, "cancelled")
            assert scene.done("post").count(1000) == 1

    asyncio.run(run())


def test_an_interrupt_of_a_run_whose_worker_is_down_is_handled_by_the_next(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            with scene.working():
                run = await app.start(agents.writes(5), id="r")
                await eventually(lambda: len(scene.done("look")) >= 2)
            reply = asyncio.create_task(run.interrupt("hello", timeout=60))
            await eventually(lambda: app._store.mail(run.id, after=0))
            scene.worker()
            assert (await reply).startswith("hello: ")
            scene.open_gate()
            assert await run.result(timeout=60) == [0, 10, 20, 30, 40]
            posts = scene.done("post")
            assert sorted(posts) == [0, 1, 2, 3, 4, 1000]

    asyncio.run(run())


async def interrupt_twice(scene: Scene, app: hf.Holdfast) -> object:
    run = await app.start(agents.writes(15), id="r")
    await eventually(lambda: scene.done("look"))
    replies = [await run.interrupt("first", timeout=15), await run.interrupt("second", timeout=60)]
    scene.open_gate()
    result = await run.result(timeout=60)
    posts = scene.done("post")
    # How far the main line was is not the same in every life.
    return [r.partition(":")[0] + r.rpartition(",")[2] for r in replies], result, sorted(posts)


def test_handlers_survive_a_kill_at_any_point(tmp_path: Path, forkserver: ForkServer) -> None:
    """The same replies, effects once, and the main line has the same results."""
    only = ("interrupt.before@1", "effect.after_body@3", "step.after_body@4", "finish.before")
    lives = live(tmp_path, forkserver, interrupt_twice, only=only)
    assert lives.end == (["first 990", "second 990"], [n * 10 for n in range(15)], [*range(15), 1000, 1000])


@pytest.mark.prove
def test_handlers_survive_a_kill_at_every_point(tmp_path: Path, forkserver: ForkServer) -> None:
    print(live(tmp_path, forkserver, interrupt_twice))


def test_a_reply_is_the_same_after_a_crash(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            with scene.working():
                run = await app.start(agents.writes(30), id="r")
                await eventually(lambda: len(scene.done("look")) >= 3)
                replies = [await run.interrupt(f"{n}", timeout=60) for n in range(3)]
            scene.open_gate()
            scene.worker()
            assert await run.result(timeout=60) == [n * 10 for n in range(30)]
            told = [item for item in await run.history() if item.name == "hf:interrupt.end"]
            assert len(told) == 3
            assert len(set(replies)) == 3
            assert scene.done("post").count(1000) == 3

    asyncio.run(run())
