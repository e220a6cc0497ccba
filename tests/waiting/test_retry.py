"""Opening a run again that was cancelled: what was cut off is done anew, what was done before is kept."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.model import Kind
from holdfast.testing import Clock, check_history
from tests.eventually import eventually
from tests.waiting import agents
from tests.waiting.scene import FOLDER, Scene
from tests.workers import asked, until


def test_a_retry_does_anew_what_the_cancellation_cut_off(tmp_path: Path) -> None:
    done: list[str] = []
    blocked = asyncio.Event()

    @hf.step
    async def work(name: str) -> str:
        done.append(name)
        if name == "second":
            await blocked.wait()
        return name

    @hf.agent
    async def agent() -> list[str]:
        return [await work("first"), await work("second"), await work("third")]

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            await eventually(lambda: done == ["first", "second"])
            assert await run.cancel(timeout=60) == "cancelled"
            blocked.set()
            await run.retry(note="after all")
            assert await run.result(timeout=60) == ["first", "second", "third"]
            assert done == ["first", "second", "second", "third"]
            assert await run.status() == "done"

    asyncio.run(run())


def test_what_was_undone_is_not_taken_for_done_by_a_retry(scene: Scene) -> None:
    async def run() -> None:
        async with hf.connect(scene.url, agents=[agents.trip]) as app:
            os.environ[FOLDER] = str(scene.folder)
            try:
                run = await app.start(agents.trip(1), id="r")
                await until(run, "waiting")
                assert await run.cancel(timeout=60) == "cancelled"
                assert scene.done("unbook") == ["hotel", "flight"]
                with pytest.raises(hf.UsageError, match="took back what it had done"):
                    await run.retry()
                assert await run.status() == "cancelled"
            finally:
                del os.environ[FOLDER]

    asyncio.run(run())


@pytest.mark.parametrize("key", [None, "mine"])
@pytest.mark.parametrize("error", [OSError("closed"), SystemExit("closed")])
def test_what_its_rule_could_not_take_back_stays_in_doubt(
    key: str | None, error: BaseException, tmp_path: Path
) -> None:
    done: list[str] = []
    undoing = [True]

    @hf.effect(settle=0, on_doubt="undo")
    async def pay() -> None:
        done.append("paid")
        raise ConnectionError("who knows")

    @pay.undo
    async def take_back(paid: None) -> None:
        if undoing:
            raise error
        done.append("taken back")

    @hf.agent
    async def agent() -> None:
        await (pay if key is None else pay.with_options(key=key))()

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app, Clock(app) as clock:
            run = await app.start(agent(), id="r")

            async def how_it_fails() -> str:
                await clock.skip(minutes=1)  # from one attempt to the next
                with pytest.raises(hf.RunFailed) as caught:
                    await run.result(timeout=60)
                return str(caught.value)

            assert "Its undo failed" in await how_it_fails()
            await run.retry()
            assert "Its undo failed" in await how_it_fails()
            undoing.clear()
            await run.retry()
            assert "was undone" in await how_it_fails()
            assert done == ["paid", "taken back"]
            with pytest.raises(hf.UsageError, match="took back what it had done"):
                await run.retry()

    asyncio.run(run())
    assert check_history(str(tmp_path / "s.db")) == []


@pytest.mark.parametrize("what", ["signal", "sleep", "ask", "branches", "child"])
def test_a_retry_of_a_run_that_was_cancelled_while_it_waited_waits_again(what: str, tmp_path: Path) -> None:
    @hf.agent
    async def child() -> str:
        return await hf.receive(("word", str))

    @hf.agent
    async def agent() -> str:
        match what:
            case "signal":
                return await hf.receive(("word", str))
            case "sleep":
                await hf.sleep(3600)
                return "x"
            case "ask":
                return "x" if await hf.ask("Well?") else "y"
            case "branches":
                first, second = await asyncio.gather(hf.receive(("word", str)), hf.receive(("other", str)))
                return first if second == "o" else "?"
            case _:
                return await child()

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent, child]) as app, Clock(app) as clock:
            run = await app.start(agent(), id="r")
            await clock.settle()
            assert await run.status() in ("waiting", "sleeping")
            if what == "branches":
                await run.send("other", "o")
                await clock.settle()
                assert await run.status() == "waiting"
            assert await run.cancel(timeout=60) == "cancelled"
            await run.retry()
            await until(run, "waiting", "sleeping", "running")
            match what:
                case "signal" | "branches":
                    await run.send("word", "x")
                case "sleep":
                    await clock.skip(hours=2)
                case "ask":
                    await (await asked(run))[0].answer(True)
                case "child":
                    with pytest.raises(hf.RunFailed, match="cancelled"):
                        await run.result(timeout=60)  # its child was cancelled with it, and that is its result
                    return
            assert await run.result(timeout=60) == "x"

    asyncio.run(run())


def test_a_cancelled_run_cannot_be_reopened_by_a_resume_and_a_done_one_not_at_all(tmp_path: Path) -> None:
    @hf.agent
    async def agent() -> int:
        return 1

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent())
            await run.result(timeout=60)
            with pytest.raises(hf.UsageError, match="only failed and cancelled"):
                await run.retry()
            queued = await app.start(agent(), paused=True)
            await queued.cancel(timeout=60)
            await queued.resume()
            assert await queued.status() == "cancelled"
            await queued.retry()
            assert await queued.result(timeout=60) == 1
            kinds = [r.kind for r in await app._store.records(queued.id)]
            assert Kind.reopened in kinds

    asyncio.run(run())
