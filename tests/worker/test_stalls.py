"""Code that blocks the event loop is named: the run, the call, the line."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.worker.stalls import Stall, StallWatch, blocking
from tests.eventually import eventually
from tests.worker.logged import Logged, logged

SETTINGS = hf.Settings(block_warning_s=0.4)


def line_of(function: object, text: str) -> str:
    """`file:line` of the first line of a function that has a text."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))  # type: ignore[arg-type]
    return f"{__file__}:{next(number for number, line in enumerate(lines, first) if text in line)}"


LOG: list[Logged] = []


def block_here() -> str:
    return "blocked" if LOG[-1].is_blocked.wait(60) else "never noticed"


@hf.step
async def blocking_step(n: int) -> str:
    await asyncio.sleep(0)
    return "blocked" if LOG[-1].is_blocked.wait(60) else "never noticed"


@hf.step(timeout=60)
async def blocking_deep_inside() -> str:
    return block_here()


@hf.step
async def blocking_in_a_task() -> str:
    async def inner() -> str:
        return block_here()

    return await asyncio.create_task(inner())


@hf.effect
async def blocking_effect() -> str:
    return "blocked" if LOG[-1].is_blocked.wait(60) else "never noticed"


@hf.effect
async def doubtful() -> str:
    raise ValueError("who knows")


@doubtful.verify
async def blocking_verify() -> hf.Verdict[str]:
    return hf.landed(block_here())


@hf.step
def in_a_thread() -> str:
    time.sleep(1.0)
    return "waited"


@hf.step
async def fine() -> None:
    await asyncio.sleep(0)


@hf.agent
async def second_step() -> str:
    await blocking_in_between()
    return await blocking_step(2)


async def blocking_in_between() -> None:
    await fine()


@hf.agent
async def deep() -> str:
    return await blocking_deep_inside()


@hf.agent
async def with_task() -> str:
    return await blocking_in_a_task()


@hf.agent
async def with_effect() -> str:
    return await blocking_effect()


@hf.agent
async def with_verify() -> str:
    return await doubtful()


@hf.agent
async def itself() -> str:
    await fine()
    return "blocked" if LOG[-1].is_blocked.wait(60) else "never noticed"


@hf.agent
async def in_branches() -> list[str]:
    async def branch(n: int) -> str:
        await fine()
        return await blocking_step(n) if n == 1 else "fine"

    return list(await asyncio.gather(branch(0), branch(1)))


@hf.agent
async def threaded() -> str:
    return await in_a_thread()


async def execute(call: hf.Call[object], url: Path) -> object:
    async with hf.connect(str(url), agents=[call.agent], settings=SETTINGS) as app:
        run = await app.start(call, id="r1")
        result = await run.result()
        await eventually(lambda: not LOG[-1].is_blocked.is_set() or LOG[-1].named("loop.unblocked"))
        return result


@pytest.mark.parametrize(
    ("agent", "call", "at", "function"),
    [
        (second_step, "blocking_step#1", (blocking_step, "is_blocked"), "blocking_step"),
        (deep, "blocking_deep_inside#1", (block_here, "is_blocked"), "block_here"),
        (with_task, "blocking_in_a_task#1", (block_here, "is_blocked"), "block_here"),
        (with_effect, "blocking_effect#1", (blocking_effect, "is_blocked"), "blocking_effect"),
        (with_verify, "doubtful#1", (block_here, "is_blocked"), "block_here"),
        (itself, None, (itself.fn, "is_blocked"), "itself"),
        (in_branches, "branch~2/blocking_step#1", (blocking_step, "is_blocked"), "blocking_step"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_run_the_call_and_the_line_that_block_are_named(
    agent: hf.Agent[[], object], call: str | None, at: tuple[Callable[..., object], str], function: str, tmp_path: Path
) -> None:
    with logged() as log:
        LOG.append(log)
        result = asyncio.run(execute(agent(), tmp_path / "s.db"))
        assert "never noticed" not in str(result)
    said = next(each for each in log.named("loop.blocked") if "run" in each)
    seconds = said.pop("seconds")
    assert isinstance(seconds, float)
    assert seconds >= 0.4
    assert said == {"run": "r1", "at": line_of(*at), "function": function} | ({} if call is None else {"call": call})
    assert [each["run"] for each in log.named("loop.unblocked") if "run" in each] == ["r1"]


def test_a_def_body_that_waits_blocks_nothing(tmp_path: Path) -> None:
    with logged() as log:
        LOG.append(log)
        assert asyncio.run(execute(threaded(), tmp_path / "s.db")) == "waited"
    assert [each for each in log.named("loop.blocked") if "run" in each] == []


def test_code_outside_of_any_run_is_named_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[itself], settings=SETTINGS):
            block_here()

    with logged() as log:
        LOG.append(log)
        asyncio.run(main())
    said = next(each for each in log.named("loop.blocked") if each["function"] == "block_here")
    assert "run" not in said


def frame_in_thread(main: Callable[[], Awaitable[None]], ready: threading.Event) -> Stall | None:
    """What `blocking` says of a loop in another thread, once it is ready."""
    done = threading.Event()

    async def until_done() -> None:
        await main()
        while not done.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(until_done()))
    thread.start()
    try:
        assert ready.wait(60)
        assert thread.ident is not None
        return blocking(sys._current_frames()[thread.ident])
    finally:
        done.set()
        thread.join()


def test_an_idle_loop_is_not_blocked() -> None:
    ready = threading.Event()

    async def idle() -> None:
        asyncio.get_running_loop().call_soon(ready.set)
        await asyncio.sleep(0.5)

    found = {frame_in_thread(idle, ready) for _ in range(3)}
    # The thread may be seen at work for a moment; code of a user that blocks it may not.
    assert {each.where for each in found if each is not None and each.where.startswith(__file__)} == set()


def test_a_thread_without_a_loop_is_not_a_blocked_loop() -> None:
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        ready.set()
        done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(60)
    assert thread.ident is not None
    assert blocking(sys._current_frames()[thread.ident]) is None
    done.set()
    thread.join()
    assert blocking(None) is None


# how often it is told


def told(log: Logged) -> list[tuple[str, object]]:
    return [(event, fields["seconds"]) for event, fields in log.events]


def test_a_warning_comes_again_at_each_doubling_and_its_end_is_told() -> None:
    here = Stall("a.py:1", "f", "r1", "f#1", "f")
    watch = StallWatch(1.0, most_us=300_000)
    with logged() as log:
        for look in range(1, 37):
            watch.look(look * 250_000, 250_000, lambda: here)
        assert told(log) == [("loop.blocked", 1.0), ("loop.blocked", 2.0), ("loop.blocked", 4.0), ("loop.blocked", 8.0)]
        for look in range(37, 42):
            watch.look(look * 250_000, 37 * 250_000, lambda: here)
        assert told(log)[4:] == [("loop.unblocked", 8.8), ("loop.blocked", 1.0)]


def test_a_loop_that_turns_is_never_accused() -> None:
    watch = StallWatch(1.0, most_us=300_000)
    with logged() as log:
        for look in range(1, 100):
            assert watch.look(look * 250_000, look * 250_000 - 240_000, lambda: Stall("a.py:1", "f")) < 0.3
    assert log.events == []


def test_a_process_that_was_stopped_as_a_whole_accuses_nobody() -> None:
    watch = StallWatch(1.0, most_us=300_000)
    with logged() as log:
        watch.look(250_000, 100_000, lambda: Stall("a.py:1", "f"))
        assert watch.look(3_600_000_000, 100_000, lambda: Stall("a.py:1", "f")) < 1.0
        watch.look(3_600_250_000, 3_600_100_000, lambda: Stall("a.py:1", "f"))
    assert log.events == []
