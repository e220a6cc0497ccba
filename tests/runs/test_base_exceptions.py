"""What is no `Exception`: out of effects it is doubt, out of steps and agents a failure. Nothing hangs, nobody dies."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

import holdfast as hf
from holdfast.journal.journal import Journal
from holdfast.model import Applied
from holdfast.testing.processes import environment
from holdfast.verbs.effect import performing
from tests.eventually import eventually
from tests.runs.journal import load
from tests.workers import until

ACTS: list[str] = []


class Weird(BaseException):
    """As frameworks have them: `pytest.fail`, an interrupt of a graph."""


class Mute(BaseException):
    """It cannot be asked what it says."""

    def __str__(self) -> str:
        raise SystemExit("no comment")


async def cancelled_within() -> NoReturn:
    inner = asyncio.ensure_future(asyncio.sleep(1000))
    inner.cancel()
    await inner
    raise AssertionError


async def raises(what: str) -> NoReturn:
    ACTS.append(what)
    if what == "inner":
        await cancelled_within()
    raise KINDS[what]()


KINDS: dict[str, Callable[[], BaseException]] = {
    "inner": asyncio.CancelledError,
    "cancelled": lambda: asyncio.CancelledError("by hand"),
    "weird": lambda: Weird("odd"),
    "exit": lambda: SystemExit(2),
    "interrupt": KeyboardInterrupt,
    "closed": GeneratorExit,
    "mute": Mute,
    "group": lambda: BaseExceptionGroup("several", [Weird("one"), ValueError("two")]),
}


@hf.effect(settle=0)
async def act(what: str) -> str:
    await raises(what)


@hf.effect(settle=0)
def act_in_thread(what: str) -> str:
    ACTS.append(what)
    raise concurrent.futures.CancelledError if what == "inner" else KINDS[what]()


@hf.effect(settle=0)
async def act_in_task(what: str) -> str:
    return await asyncio.create_task(raises(what))


@hf.effect(settle=0, retries=1)
async def verified(what: str) -> str:
    ACTS.append(what)
    raise ValueError("who knows")


@verified.verify
async def ask(what: str) -> hf.Verdict[str]:
    if what == "inner":
        await cancelled_within()
    raise KINDS[what]()


@hf.effect(settle=0, transaction=True)
def in_transaction(what: str) -> str:
    ACTS.append(what)
    with hf.transaction():
        raise KINDS[what]()


@hf.step
async def look(what: str) -> str:
    await raises(what)


@hf.step
async def look_in_task(what: str) -> str:
    return await asyncio.create_task(look(what))


@hf.step
def look_in_thread(what: str) -> str:
    raise concurrent.futures.CancelledError if what == "inner" else KINDS[what]()


@hf.step
def stops(what: str) -> str:
    raise StopIteration(what)


@hf.step
async def after() -> str:
    return "after"


CALLS: dict[str, Callable[[str], Any]] = {
    "act": act,
    "thread": act_in_thread,
    "task": act_in_task,
    "verify": verified,
    "look": look,
    "look in a thread": look_in_thread,
    "look in a task": look_in_task,
}


@hf.agent
async def insists(call: str, what: str) -> list[str]:
    """Tries again whatever it sees: an effect must not be done twice by that."""
    seen = []
    for _ in range(3):
        try:
            return [await CALLS[call](what)]
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
    return [*seen, await after()]


@hf.agent
async def bystander() -> str:
    for _ in range(20):
        await after()
        await hf.sleep(0.01)
    return "fine"


@pytest.fixture(autouse=True)
def no_acts() -> None:
    ACTS.clear()


@pytest.mark.parametrize("call", ["act", "thread", "task", "verify"])
@pytest.mark.parametrize("what", KINDS)
def test_out_of_an_effect_it_is_doubt(tmp_path: Path, call: str, what: str) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[insists, bystander]) as app:
            other = await app.start(bystander(), id="other")
            run = await app.start(insists(call, what), id="r")
            with pytest.raises(hf.NeedsHuman):
                await run._result_or_needs(timeout=60)
            assert [what] == ACTS
            [doubt] = await run.in_doubt()
            await doubt.resolve(hf.landed("it was"))
            assert await run.result(timeout=60) == ["it was"]
            assert await other.result(timeout=60) == "fine"

    asyncio.run(main())
    assert [what] == ACTS


@pytest.mark.parametrize("call", ["look", "look in a thread", "look in a task"])
@pytest.mark.parametrize("what", KINDS)
def test_out_of_a_step_it_is_a_failure_that_the_agent_sees(tmp_path: Path, call: str, what: str) -> None:
    url = str(tmp_path / "s.db")
    seen = hf.run(insists(call, what), id="r", url=url)
    assert len(seen) == 4
    assert seen[-1] == "after"
    assert all(each.startswith("StepError: ") for each in seen[:-1])
    assert hf.run(insists(call, what), id="r", url=url) == seen


@pytest.mark.parametrize("what", [each for each in KINDS if each != "inner"])  # a thread has no tasks
def test_in_a_transaction_it_rolls_back(tmp_path: Path, what: str) -> None:
    @hf.agent
    async def agent() -> str:
        try:
            return await in_transaction(what)
        except Exception as error:
            return type(error).__name__

    assert hf.run(agent(), id="r", url=str(tmp_path / "s.db")) == "StepError"


def test_a_thread_that_raises_stop_iteration_ends(tmp_path: Path) -> None:
    @hf.agent
    async def agent() -> str:
        try:
            return await stops("x")
        except RuntimeError as error:
            return str(error)

    assert hf.run(agent(), id="r", url=str(tmp_path / "s.db")) == "the body raised StopIteration"


@hf.agent
async def raising(what: str, where: str) -> str:
    await after()
    match where:
        case "branch":
            await asyncio.gather(raises(what), hf.sleep(1000))
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(raises(what))
                group.create_task(hf.sleep(1000))
        case _:
            await raises(what)
    return "?"


@raising.on_interrupt
async def reply(message: str) -> str:
    await raises(message)


@pytest.mark.parametrize(
    ("what", "where"),
    # A group takes a task that is cancelled for one that is not wanted any more, and waits for the others.
    [(w, p) for w in KINDS for p in ("agent", "branch", "group") if p != "group" or w not in ("inner", "cancelled")],
)
def test_out_of_an_agent_it_is_the_failure_of_the_run(tmp_path: Path, what: str, where: str) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[raising, bystander]) as app:
            other = await app.start(bystander(), id="other")
            run = await app.start(raising(what, where), id="r")
            with pytest.raises(hf.RunFailed):
                await run.result(timeout=60)
            assert await run.status() is hf.Status.failed
            assert await other.result(timeout=60) == "fine"

    asyncio.run(main())


@pytest.mark.parametrize("what", KINDS)
def test_out_of_an_interrupts_handler_it_is_the_reply(tmp_path: Path, what: str) -> None:
    @hf.agent
    async def waits() -> str:
        return await hf.receive(("go", str))

    waits.on_interrupt(reply)

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[waits]) as app:
            run = await app.start(waits(), id="r")
            with pytest.raises(hf.StepError):
                await run.interrupt(what, timeout=60)
            await run.send("go", "on")
            assert await run.result(timeout=60) == "on"

    asyncio.run(main())


def test_what_an_agent_raised_is_told(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with pytest.raises(hf.RunFailed, match="Weird: odd"):
        hf.run(raising("weird", "agent"), id="r", url=url)
    row, _ = load(url, "r")
    assert row.summary["now"] == "Weird: odd"


CTRL_C = """
    import asyncio, os, signal, sys, time
    import holdfast as hf

    @hf.step
    async def stuck() -> None:
        print("at work", flush=True)
        while True:
            time.sleep(0.01)

    @hf.agent
    async def agent() -> None:
        await stuck()

    async def main() -> None:
        async with hf.connect(sys.argv[1], agents=[agent]) as app:
            await (await app.start(agent(), id="r")).result()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
    loop = asyncio.new_event_loop()  # without asyncio.run, which would take the first signal for itself
    loop.run_until_complete(main())
"""


def test_a_real_ctrl_c_is_no_failure_of_the_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(CTRL_C))
    url = str(tmp_path / "s.db")
    process = subprocess.Popen(
        [sys.executable, str(script), url], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 1, 130)
    assert "KeyboardInterrupt" in errors
    row, _ = load(url, "r")
    assert row.status is hf.Status.running


def test_a_run_does_not_end_while_an_effect_of_it_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a defect of the engine makes of an effect's end: the run stops there, and the effect is settled."""

    @hf.agent
    async def agent() -> str:
        with suppress(AssertionError):
            await act_well("x")
        return "went on"

    async def start() -> None:
        async with hf.connect(url, agents=[agent]) as app:
            await (await app.start(agent(), id="r")).result(timeout=60)

    url = str(tmp_path / "s.db")
    with monkeypatch.context() as broken:
        broken.setattr(performing, "stored", lambda *_: (_ for _ in ()).throw(AssertionError("broken")))
        with pytest.raises(hf.RunBlocked, match="not known what became of act_well#1"):
            asyncio.run(start())
    with pytest.raises(hf.NeedsHuman, match="in doubt"):
        hf.run(agent(), id="r", url=url)
    assert ACTS == ["x"]


@hf.agent
async def ends_beside_a_doubt() -> str:
    task = asyncio.create_task(act("weird"))
    await hf.sleep(0.2)
    return "went on" if not task.done() else "?"


def test_a_run_whose_agent_has_ended_asks_about_an_effect_that_is_in_doubt(tmp_path: Path) -> None:
    """A branch that nobody awaits is waited for at the end, and so is a person."""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[ends_beside_a_doubt]) as app:
            run = await app.start(ends_beside_a_doubt(), id="r")
            with pytest.raises(hf.NeedsHuman):
                await run._result_or_needs(timeout=60)
            assert await run.status() is hf.Status.in_doubt
            [doubt] = await run.in_doubt()
            await doubt.resolve(hf.landed("it was"))
            assert await run.result(timeout=60) == "went on"

    asyncio.run(main())
    assert ACTS == ["weird"]


@hf.effect(settle=0)
async def act_until_cancelled() -> str:
    ACTS.append("late")
    await eventually(lambda: bool(TASKS[-1].cancelling()))
    raise Weird


TASKS: list[asyncio.Task[Any]] = []


def test_a_run_asks_about_an_effect_that_outlasts_its_timeout(tmp_path: Path) -> None:
    @hf.agent
    async def agent() -> str:
        task = asyncio.current_task()
        assert task is not None
        TASKS.append(task)
        try:
            async with hf.timeout(0.1):
                return await act_until_cancelled()
        except TimeoutError:
            return "too late"

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            run = await app.start(agent(), id="r")
            with pytest.raises(hf.NeedsHuman):
                await run._result_or_needs(timeout=60)
            [doubt] = await run.in_doubt()
            await doubt.resolve(hf.landed("it was"))
            assert await run.result(timeout=60) == "too late"

    asyncio.run(main())
    assert ACTS == ["late"]


def test_a_run_whose_agent_has_ended_reads_what_comes_while_it_leaves_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[ends_beside_a_doubt]) as app:
            parks, acted = Journal.park, asyncio.Event()

            async def parks_too_late(journal: Journal, *args: Any, **options: Any) -> Applied:
                if acted.is_set():
                    return await parks(journal, *args, **options)
                await run.cancel(timeout=0)
                applied = await parks(journal, *args, **options)
                assert applied is Applied.unread
                acted.set()
                return applied

            monkeypatch.setattr(Journal, "park", parks_too_late)
            run = await app.start(ends_beside_a_doubt(), id="r")
            assert await until(run, "cancelled") is hf.Status.cancelled
            assert acted.is_set()

    asyncio.run(main())


@hf.effect(settle=0)
async def act_well(what: str) -> str:
    ACTS.append(what)
    return what


def test_a_worker_outlives_what_its_agents_raise(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[raising, insists, bystander]) as app:
            runs = [await app.start(raising(what, "agent"), id=f"agent-{what}") for what in KINDS]
            steps = [await app.start(insists("look", what), id=f"step-{what}") for what in KINDS]
            other = await app.start(bystander(), id="other")

            async def all_ended() -> bool:
                return all([(await run.status()).is_final for run in (*runs, *steps)])

            await eventually(all_ended)
            assert await other.result(timeout=60) == "fine"

    asyncio.run(main())
