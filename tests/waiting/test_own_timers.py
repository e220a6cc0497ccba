"""Timers of the code's own beside durable waits: they fire, and what of them cannot be kept is reported."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast as hf
from holdfast.model import Kind, Record
from holdfast.running.own_timers import OwnTimers
from holdfast.testing import Clock
from holdfast.worker.execution import Execution
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.waiting import own
from tests.workers import Scene, noted, seen, until

Main = Callable[[], Coroutine[Any, Any, None]]


def on_asyncio(main: Main) -> None:
    asyncio.run(main())


def on_uvloop(main: Main) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def on_eager_tasks(main: Main) -> None:
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("Python 3.12 has eager tasks first")

    async def eagerly() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        await main()

    asyncio.run(eagerly())


LOOPS = {"asyncio": on_asyncio, "uvloop": on_uvloop, "eager tasks": on_eager_tasks}


@pytest.fixture(params=LOOPS)
def in_loop(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    return LOOPS[request.param]


def notes(records: list[Record], name: str) -> list[Record]:
    return [record for record in records if record.kind == Kind.noted and record.name == name]


async def records_of(app: hf.Holdfast, run: hf.Run[Any]) -> list[Record]:
    return list(await app._store.records(run.id))


def test_timers_fire_whatever_durable_wait_they_are_around_or_beside(
    tmp_path: Path, in_loop: Callable[[Main], None]
) -> None:
    # anyio knows asyncio's factory of eager tasks by its code, and makes others in its groups; not if it is wrapped.
    ways = [way for way in own.WAYS if in_loop is not on_eager_tasks or "group of anyio" not in way]

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[own.waits, own.never]) as app:
            runs = {way: await app.start(own.waits(way)) for way in ways}
            ended = {way: await run.result(timeout=60) for way, run in runs.items()}
            assert ended == dict.fromkeys(ways, "seen, timed out")
            assert {(await run.info()).epoch for run in runs.values()} == {1}, "none left memory meanwhile"

    in_loop(main)


def test_a_timer_is_heard_though_the_loop_was_held_up(tmp_path: Path) -> None:
    """Then a loop calls the timer and looks whether the run can leave memory in one turn, before the code goes on."""

    async def hold_up(execution: Execution) -> bool:
        loop = asyncio.get_running_loop()
        [(timer, _)] = await eventually(lambda: execution.run.activity.own_timers.pending(0))
        while loop.time() < timer.when():
            look = execution._parking._look_later
            if look is not None and look.when() > timer.when():
                time.sleep(look.when() - loop.time() + 0.01)  # it is what holds the loop up
                return True
            await asyncio.sleep(0.001)
        return False

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[own.waits]) as app:
            was_held_up = False
            while not was_held_up:
                run = await app.start(own.waits("wait"))
                [execution] = app._here.executions
                was_held_up = await hold_up(execution)
                assert await run.result(timeout=60) == "seen, timed out"

    asyncio.run(main())


def test_a_run_leaves_memory_once_its_timers_are_gone(tmp_path: Path, in_loop: Callable[[Main], None]) -> None:
    gate = asyncio.Event()

    @hf.step
    async def with_a_client() -> None:
        """What a body sets and leaves behind, as the idle timer of a client's connections, is not the run's."""
        asyncio.get_running_loop().call_later(own.WEEK, print)
        asyncio.create_task(asyncio.sleep(own.WEEK))  # noqa: RUF006

    @hf.agent
    async def passing() -> str:
        async with asyncio.timeout(own.WEEK):
            await with_a_client()
        with anyio.move_on_after(own.WEEK):
            await with_a_client()
        asyncio.get_running_loop().call_later(own.WEEK, print).cancel()
        for _ in range(50):
            await asyncio.wait_for(gate.wait(), own.WEEK)
        await asyncio.sleep(0.01)
        return await hf.receive(("go", str))

    async def main() -> None:
        gate.set()
        async with hf.connect(str(tmp_path / "s.db"), agents=[passing]) as app:
            run = await app.start(passing())
            await until(run, "waiting", timeout_s=60)
            await run.send("go", "went")
            assert await run.result(timeout=60) == "went"
            assert not notes(await records_of(app, run), "own timer")

    in_loop(main)


def test_the_timers_of_one_run_do_not_keep_another(tmp_path: Path) -> None:
    @hf.agent
    async def plain() -> str:
        return await hf.receive(("go", str))

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[own.hangs, plain]) as app:
            kept, free = await app.start(own.hangs(own.WEEK)), await app.start(plain())
            await until(free, "waiting", timeout_s=60)
            assert await kept.status() == "running"
            await kept.send("go", "went")
            assert await kept.result(timeout=60) == "went"

    asyncio.run(main())


def test_what_was_set_and_is_over_does_not_pile_up() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers = OwnTimers(loop)
        alive = [loop.call_later(own.WEEK, print) for _ in range(40)]
        for handle in alive:
            timers.add(handle, "")
        for _ in range(10_000):
            passing = loop.call_later(own.WEEK, print)
            timers.add(passing, "")
            timers.add(passing, "")
            passing.cancel()
        assert len(timers._set) < 200
        assert [handle for handle, _ in timers.pending(loop.time())] == alive
        for handle in alive:
            handle.cancel()

    asyncio.run(main())


def test_a_run_that_a_timer_keeps_for_long_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        settings = hf.Settings(outside_s=0.1)
        async with hf.connect(str(tmp_path / "s.db"), agents=[own.hangs], settings=settings) as app:
            run = await app.start(own.hangs(own.WEEK), id="long")
            await noted(run, "own timer", timeout_s=60)
            (note,) = await _noted(app, run, "own timer")
            assert "keeps the run in memory" in (note.payload or "")
            assert "own.py:" in (note.payload or ""), "it says where"
            shown = [item for item in await run.history() if item.status == "own timer"]
            assert "own.py:" in shown[0].detail
            assert await run.status() == "running"
            await run.send("go", "went")
            assert await run.result(timeout=60) == "went"
            assert len(notes(await records_of(app, run), "own timer")) == 1

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    (line,) = [record.getMessage() for record in caplog.records if "run.own_timer" in record.getMessage()]
    assert "run=long" in line
    assert "hf.timeout" in line


async def _noted(app: hf.Holdfast, run: hf.Run[Any], name: str) -> list[Record]:
    return notes(await records_of(app, run), name)


@pytest.fixture
def scene(tmp_path: Path, forkserver: ForkServer) -> Scene:
    return Scene(tmp_path, forkserver, agents=own.__name__, settings={"sweep_s": 0.1})


@pytest.mark.parametrize("how", ["killed", "told to go", "paused"])
def test_a_timer_that_begins_anew_is_reported_once(scene: Scene, how: str) -> None:
    async def _logged() -> str:
        return scene.log.read_text()

    async def main() -> None:
        async with scene.client() as app:
            worker = scene.worker()
            run = await app.start(own.hangs(3600), id="anew")
            await noted(run, "hf:receive.go", timeout_s=60)
            for times in (1, 2):
                if how == "paused":
                    await run.pause()
                    await until(run, "paused", timeout_s=60)
                    await run.resume()
                else:
                    worker.send(signal.SIGKILL if how == "killed" else signal.SIGTERM)
                    worker.wait(60)
                    worker = scene.worker()
                await seen(_logged, lambda log: log.count("run.own_timer") >= times, timeout_s=60, what=str)  # noqa: B023
            await noted(run, "own timer", timeout_s=60)
            (note,) = await _noted(app, run, "own timer")
            assert "began anew" in (note.payload or "")
            await run.send("go", "went")
            assert await run.result(timeout=60) == "went"
            assert len(await _noted(app, run, "own timer")) == 1

    with scene:
        asyncio.run(main())


# what is awaited outside


@asynccontextmanager
async def late_server(delay_s: float) -> AsyncIterator[tuple[int, list[str]]]:
    """Answers each connection after a while; who connected."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append("asked")
        try:
            await asyncio.wait_for(reader.read(), delay_s)  # until nobody listens any more
        except TimeoutError:
            writer.write(b"late\n")
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, family=socket.AF_INET) as server:
        yield server.sockets[0].getsockname()[1], asked


@hf.agent
async def beside(port: int) -> str:
    """A call without a step, while another branch waits for a person."""
    waiting = asyncio.create_task(hf.receive(("go", str)))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        line = (await reader.readline()).decode().strip()
    finally:
        writer.close()
    return line + " " + await waiting


def test_an_answer_from_outside_that_takes_seconds_is_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with late_server(3) as (port, asked), hf.connect(str(tmp_path / "s.db"), agents=[beside]) as app:
            run = await app.start(beside(port))
            await until(run, "waiting", timeout_s=60)  # it has its answer, and waits for the person
            assert asked == ["asked"]
            await run.send("go", "went")
            assert await run.result(timeout=60) == "late went"
            assert not notes(await records_of(app, run), "outside")

    asyncio.run(main())


def test_a_run_that_leaves_while_a_branch_waits_outside_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        settings = hf.Settings(outside_s=0.1)
        async with (
            late_server(3600) as (port, asked),
            hf.connect(str(tmp_path / "s.db"), agents=[beside], settings=settings) as app,
        ):
            run = await app.start(beside(port), id="left")
            for times in (1, 2):
                await until(run, "waiting", timeout_s=60)
                await noted(run, "outside", timeout_s=60)
                (note,) = await _noted(app, run, "outside")
                assert "test_own_timers.py:" in (note.payload or "")
                assert len(asked) == times, "what it awaited is begun anew"
                await run.pause()
                await run.resume()
                await eventually(lambda: len(asked) > times)  # noqa: B023
            await run.cancel(timeout=60)

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records if "run.outside" in record.getMessage()]
    assert lines
    assert all("run=left" in line and "step" in line for line in lines)


@pytest.mark.parametrize("what", ["anyio group", "shield", "event", "thread that ends"])
def test_branches_that_wait_for_each_other_do_not_wait_outside(tmp_path: Path, what: str) -> None:
    async def wait() -> str:
        return await hf.receive(("go", str))

    @hf.agent
    async def together() -> str:
        if what == "anyio group":
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
        elif what == "shield":
            await asyncio.shield(asyncio.create_task(wait()))
        elif what == "event":
            event = anyio.Event()

            async def poke() -> None:
                await wait()
                event.set()

            task = asyncio.create_task(poke())
            await event.wait()
            await task
        else:
            await asyncio.to_thread(threading.Event().wait, 0.2)
            await wait()
        return "went"

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[together]) as app:
            run = await app.start(together())
            await until(run, "waiting", timeout_s=30)  # well before it would leave for what is outside
            await run.send("go", "went")
            assert await run.result(timeout=60) == "went"
            assert not notes(await records_of(app, run), "outside")

    asyncio.run(main())


def test_the_clock_of_tests_does_not_wait_for_a_run_that_its_own_timer_keeps(tmp_path: Path) -> None:
    @hf.agent
    async def patient() -> str:
        async with asyncio.timeout(own.WEEK):
            await hf.sleep(days=2)
        return "slept"

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[patient]) as app, Clock(app) as clock:
            run = await app.start(patient())
            await clock.skip(days=2)
            assert await run.result(timeout=60) == "slept"
            assert (await run.info()).epoch == 1

    asyncio.run(main())
