"""Clean-up goes on to its end, whoever cancels it meanwhile: sagas that undo, and durable calls in a `finally`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast as hf
from holdfast.control.mail import send_mail
from holdfast.model import MailKind
from holdfast.testing.processes import environment
from tests.eventually import eventually
from tests.runs import cleaning
from tests.runs.journal import load, records_of
from tests.scripts import python

UNDONE = ["-car", "-hotel", "-flight"]


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "LEDGER", tmp_path / "ledger")


def undone() -> list[str]:
    return [line for line in cleaning.lines() if line.startswith("-")]


@pytest.mark.parametrize("cleaner", cleaning.CLEANERS)
@pytest.mark.parametrize("way", cleaning.WAYS)
def test_all_is_undone_in_reverse_order(tmp_path: Path, way: str, cleaner: str) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=cleaning.AGENTS) as app:
            run = await app.start(cleaning.cleans(way, cleaner), id="r")
            if way.startswith("by_person"):
                await cleaning.until(cleaning.FIRST.get(cleaner, "undoing car"))
                assert await run.cancel(timeout=60) is hf.Status.cancelled
            with pytest.raises((hf.RunFailed, hf.RunCancelled)):
                await run.result(timeout=60)

    asyncio.run(main())
    if cleaner.endswith("finally"):
        assert undone() == UNDONE
        return
    booked = [line for line in cleaning.lines() if line[1:] in cleaning.THINGS and line.startswith("+")]
    assert undone() == [f"-{each[1:]}" for each in reversed(booked)]
    assert booked == ["+flight", "+hotel", "+car"] or way in ("by_timeout", "by_plain_timeout", "by_wait_for")


@pytest.mark.parametrize("fault", ["undo.before:kill@1", "undo.before:kill@2", "undo.after:kill@1"])
@pytest.mark.parametrize("cleaner", ["saga", "nested"])
def test_after_a_kill_and_a_cancel_all_is_undone(tmp_path: Path, cleaner: str, fault: str) -> None:
    url = str(tmp_path / "runs.db")

    async def start() -> None:
        async with hf.connect(url) as app:
            await app.start(cleaning.cleans("by_person", cleaner), id="r")

    asyncio.run(start())
    env = environment({"CLEANING_LEDGER": str(cleaning.LEDGER), "HOLDFAST_FAULT": fault})
    assert python(cleaning.__file__, url, env=env).returncode == -9

    async def cancel() -> None:
        async with hf.connect(url) as app:
            cancelling = asyncio.create_task(app.get("r").cancel(timeout=60))
            await eventually(lambda: _is_told(app))
            async with hf.connect(url, agents=cleaning.AGENTS) as worker:
                await worker.get("r").resume()
                assert await cancelling is hf.Status.cancelled

    asyncio.run(cancel())
    assert list(dict.fromkeys(undone())) == UNDONE  # an undo may be repeated, it is declared safe to


async def _is_told(app: hf.Holdfast) -> bool:
    row = await app._store.run("r")  # type: ignore[arg-type]
    return row is not None and row.mail > 0


def test_a_pause_in_the_middle_of_clean_up_does_not_hold_it_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=cleaning.AGENTS) as app:
            run = await app.start(cleaning.cleans("by_person", "saga"), id="r")
            await cleaning.until("undoing car")
            cancelling = asyncio.create_task(run.cancel(timeout=60))
            await eventually(lambda: _is_cancelling(run))
            assert await run.pause(by="eva") is hf.Status.cancelled
            assert await cancelling is hf.Status.cancelled

    asyncio.run(main())
    assert undone() == UNDONE


async def _is_cancelling(run: hf.Run[object]) -> bool:
    row = await run._row()
    return bool(row.summary.get("cancelling")) or row.status.is_final


def test_a_pause_that_was_on_its_way_does_not_hold_up_clean_up(tmp_path: Path) -> None:
    """The mail was sent before anybody could know of the cancellation, and is read after it."""

    async def main() -> list[str]:
        async with hf.connect(str(tmp_path / "runs.db"), agents=cleaning.AGENTS) as app:
            run = await app.start(cleaning.cleans("by_person", "saga"), id="r")
            await cleaning.until("undoing car")
            cancelling = asyncio.create_task(run.cancel(timeout=60))
            await eventually(lambda: _is_cancelling(run))
            await send_mail(app._store, run.id, MailKind.pause, "", {"by": "eva", "note": ""})
            assert await cancelling is hf.Status.cancelled
            return [item.status for item in await run.history()]

    assert "pause came too late" in asyncio.run(main())
    assert undone() == UNDONE


@hf.agent
async def swallows() -> list[str]:
    seen = []
    inner = asyncio.current_task()
    assert inner is not None
    inner.cancel("first")
    try:
        await hf.sleep(1000)
    except asyncio.CancelledError as error:
        seen.append(str(error))
        inner.cancel("second")  # arrives in the middle of the clean-up
        await cleaning.release("car")
    try:
        await cleaning.release("hotel")
    except asyncio.CancelledError as error:
        seen.append(str(error))
    return seen


def test_a_cancellation_that_clean_up_kept_comes_once_the_code_goes_on(tmp_path: Path) -> None:
    assert hf.run(swallows(), id="r", url=str(tmp_path / "runs.db")) == ["first", "second"]
    assert undone() == ["-car"]


@hf.agent
async def starts_others() -> list[str]:
    seen: list[str] = []
    inner = asyncio.current_task()
    assert inner is not None
    inner.cancel()
    try:
        await hf.sleep(1000)
    except asyncio.CancelledError:
        inner.cancel()
        run = await hf.start(kid())
        seen.append(run.id)
        inner.cancel()
        seen.append((await hf.start(kid())).id)
    inner.uncancel()
    return seen


def test_runs_that_clean_up_starts_are_started(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")
    started = hf.run(starts_others(), id="r", url=url)
    assert len(started) == 2
    assert all(load(url, each) for each in started)


@hf.agent
async def cleans_up_in_tasks() -> list[str]:
    async def branch() -> str:
        return await cleaning.release("hotel")

    inner = asyncio.current_task()
    assert inner is not None
    inner.cancel()
    try:
        await hf.sleep(1000)
    except asyncio.CancelledError:
        inner.cancel()  # reaches the tasks before they have begun
        with suppress(asyncio.CancelledError):
            await asyncio.gather(cleaning.release("car"), branch(), forgets("flight"))
    inner.uncancel()
    return sorted(undone())


@hf.agent
async def forgets(what: str) -> str:
    return await cleaning.forget(what)


def test_tasks_that_clean_up_makes_are_begun(tmp_path: Path) -> None:
    ended = hf.run(cleans_up_in_tasks(), id="r", url=str(tmp_path / "runs.db"))
    assert ended == ["-car", "-flight", "-hotel"]


@hf.agent
async def is_cancelled_between_tasks(made: str) -> list[str]:
    inner = asyncio.current_task()
    assert inner is not None
    inner.cancel()
    tasks = []
    try:
        await hf.sleep(1000)
    except asyncio.CancelledError:
        for thing in reversed(cleaning.THINGS):
            task = asyncio.create_task(cleaning.release(thing) if made == "call" else branch_that_releases(thing))
            task.add_done_callback(lambda _: inner.cancel())  # it has ended, and who awaits it is yet to hear of it
            tasks.append(task)
            await task
    assert not any(task.cancel() for task in tasks[:-1])  # all have heard of their end
    return undone()


async def branch_that_releases(thing: str) -> None:
    await cleaning.release(thing)


@pytest.mark.parametrize("made", ["call", "branch"])
def test_what_comes_between_two_tasks_of_clean_up_does_not_cut_it_off(tmp_path: Path, made: str) -> None:
    assert hf.run(is_cancelled_between_tasks(made), id="r", url=str(tmp_path / "runs.db")) == UNDONE


@hf.agent
async def limits_its_clean_up(plain: bool) -> str:
    inner = asyncio.current_task()
    assert inner is not None
    inner.cancel()
    try:
        await hf.sleep(1000)
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(0.1) if plain else hf.timeout(0.1):
                await never_ends()
        except TimeoutError:
            inner.uncancel()
            return "timed out"
    return "?"


@hf.step
async def never_ends() -> None:
    await asyncio.sleep(1000)


@pytest.mark.parametrize("plain", [True, False])
def test_clean_up_may_give_itself_a_time(tmp_path: Path, plain: bool) -> None:
    assert hf.run(limits_its_clean_up(plain), id="r", url=str(tmp_path / "runs.db")) == "timed out"


@hf.agent
async def leaves_many_branches(count: int) -> None:
    async def trip(n: int) -> None:
        async with hf.saga():
            await cleaning.book(f"trip {n}")
            while True:
                await hf.sleep(0.001)

    tasks = [asyncio.create_task(trip(n)) for n in range(count)]
    try:
        await asyncio.wait(tasks)
    finally:  # meanwhile the others hear that the run is cancelled
        await cleaning.wait_for("-trip 0")


def test_many_branches_that_hear_of_a_cancellation_undo_what_they_did(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[leaves_many_branches]) as app:
            run = await app.start(leaves_many_branches(6), id="r")
            await eventually(lambda: sum(line[0] == "+" for line in cleaning.lines()) == 6)
            assert await run.cancel(timeout=60) is hf.Status.cancelled
        assert sorted(line for line in cleaning.lines() if line[0] == "-") == [f"-trip {n}" for n in range(6)]

    asyncio.run(main())


@hf.effect(settle=0)
async def rent(what: str) -> str:
    cleaning.write(f"+{what}")
    return what


@rent.undo
async def keep(rented: str | None, what: str) -> None:
    raise ValueError("it cannot be given back")


@hf.agent
async def catches_what_cannot_be_undone() -> list[str]:
    went_on: list[str] = []

    async def loser() -> None:
        try:
            async with hf.saga():
                await rent("boat")
                await hf.sleep(days=1)
        except Exception as error:
            went_on.append(type(error).__name__)
        await hf.sleep(days=1)

    await hf.race(loser(), cleaning.wait_for("+boat"))
    return went_on


def test_what_cannot_be_undone_does_not_hide_a_cancellation(tmp_path: Path) -> None:
    assert hf.run(catches_what_cannot_be_undone(), id="r", url=str(tmp_path / "runs.db")) == []


@hf.agent
async def leaves_a_branch() -> None:
    async def late() -> None:
        await cleaning.wait_for("+flight")
        await cleaning.book("hotel")
        await cleaning.book("car")
        await hf.sleep(1000)

    async def fails() -> None:
        await cleaning.wait_for("+car")
        raise ValueError

    async with hf.saga():
        await cleaning.book("flight")
        await asyncio.gather(late(), fails())


def test_a_branch_that_still_runs_ends_before_its_saga_is_undone(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")
    with pytest.raises(hf.RunFailed):
        hf.run(leaves_a_branch(), id="r", url=url)
    assert undone() == UNDONE


@hf.agent
async def leaves_a_branch_that_begins_another() -> None:
    begun: list[asyncio.Task[Any]] = []

    async def branch() -> None:
        try:
            await hf.sleep(1000)
        finally:
            begun.append(asyncio.create_task(cleaning.book("hotel")))

    async with hf.saga():
        await cleaning.book("flight")
        begun.append(asyncio.create_task(branch()))
        await slow(0)
        raise ValueError("no seats")


def test_what_a_branch_begins_while_it_ends_is_undone_as_well(tmp_path: Path) -> None:
    with pytest.raises(hf.RunFailed):
        hf.run(leaves_a_branch_that_begins_another(), id="r", url=str(tmp_path / "runs.db"))
    assert undone() == ["-hotel", "-flight"]


# cancellations keep who they are


@hf.effect(settle=0)
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@hf.agent
async def kid() -> str:
    return await slow(0.05)


@hf.agent
async def told(what: str) -> list[object]:
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "effect": lambda: slow(0.2),
        "child": kid,
        "question": lambda: hf.ask("?"),
        "sleep": lambda: hf.sleep(1000),
    }

    async def branch() -> str:
        try:
            await calls[what]()
        except asyncio.CancelledError as error:
            return str(error)
        return "not cancelled"

    task = asyncio.create_task(branch())
    await asyncio.sleep(0.05)
    task.cancel("because")
    heard = await task
    await cleaning.book(heard)
    return [heard]


@pytest.mark.parametrize("what", ["effect", "child", "question", "sleep"])
def test_the_cancellation_that_came_is_the_one_that_is_raised(tmp_path: Path, what: str) -> None:
    url = str(tmp_path / "runs.db")
    assert hf.run(told(what), id="r", url=url) == ["because"]
    assert cleaning.lines() == ["+because"]


@hf.agent
async def scoped(seconds: float) -> list[object]:
    with anyio.move_on_after(0.05) as scope:
        await slow(seconds)
    async with anyio.create_task_group() as group:
        group.start_soon(slow, seconds)
        await cleaning.forget("x")
        group.cancel_scope.cancel()
    return [scope.cancelled_caught, await slow(0)]


class Told:
    """Cancels a task twice: by a plain timeout, then by a scope of anyio's around that."""

    deadline: asyncio.Timeout
    scope: anyio.CancelScope
    task: asyncio.Task[Any] | None

    async def first(self) -> None:
        self.deadline.reschedule(0)
        await self._cancelled(1)

    async def then(self) -> None:
        self.scope.cancel()
        await self._cancelled(2)

    async def _cancelled(self, times: int) -> None:
        await eventually(lambda: self.task is not None and self.task.cancelling() >= times)


TOLD = Told()


@hf.effect(settle=0)
async def is_told_twice() -> None:
    await TOLD.first()
    await TOLD.then()


@hf.step
async def is_told() -> None:
    await TOLD.first()
    await asyncio.sleep(1000)


@hf.effect(settle=0)
async def is_told_again() -> None:
    await TOLD.then()


@hf.agent
async def cleans_up() -> None:
    try:
        await is_told()
    finally:
        await is_told_again()


@hf.agent
async def twice_told(what: str) -> list[object]:
    TOLD.task = asyncio.current_task()
    with anyio.CancelScope() as TOLD.scope:
        async with asyncio.timeout(None) as TOLD.deadline:
            match what:
                case "effect":
                    await is_told_twice()
                case "child":
                    await cleans_up()
                case "clean-up":
                    await cleans_up.fn()
                case _:
                    async with hf.saga():
                        await undone_later()
                        await is_told()
    return [TOLD.scope.cancelled_caught, await slow(0)]


@hf.effect(settle=0)
async def undone_later() -> None:
    pass


@undone_later.undo
async def told_while_undoing(result: None) -> None:
    await TOLD.then()


@pytest.mark.parametrize("what", ["effect", "child", "clean-up", "saga"])
def test_anyio_knows_its_own_among_others(tmp_path: Path, what: str) -> None:
    assert hf.run(twice_told(what), id="r", url=str(tmp_path / "runs.db")) == [True, "done"]


def test_anyio_knows_its_own_cancellations(tmp_path: Path) -> None:
    """And does not have the loop turn as fast as it can while an effect goes on to its end."""
    turns = 0

    async def main() -> list[object]:
        nonlocal turns
        loop = asyncio.get_running_loop()
        select = loop._selector.select  # type: ignore[attr-defined]

        def counted(timeout: float | None = None) -> object:
            nonlocal turns
            turns += 1
            return select(timeout)

        loop._selector.select = counted  # type: ignore[attr-defined]
        async with hf.connect(str(tmp_path / "runs.db"), agents=[scoped]) as app:
            return await (await app.start(scoped(1.0), id="r")).result(timeout=60)

    assert asyncio.run(main()) == [True, "done"]
    assert turns < 5000


def test_an_end_of_a_saga_says_what_it_kept_and_what_it_took_back(tmp_path: Path) -> None:
    @hf.agent
    async def both() -> None:
        async with hf.saga():
            await cleaning.book("flight")
        async with hf.saga():
            await cleaning.book("hotel")
            raise ValueError

    url = str(tmp_path / "runs.db")
    with pytest.raises(hf.RunFailed):
        hf.run(both(), id="r", url=url)
    ends = [record.payload for record in records_of(url, "r") if record.name == "hf.saga" and record.kind == "done"]
    assert ends == ['{"kept": ["book#1"], "outer": ""}', '{"undo": ["book#2"], "failed": 0}']


# people who come late


@hf.agent
async def leaves_it_undoing() -> str:
    async def fails() -> None:
        await cleaning.wait_for("undoing car")
        raise KeyError("x")

    with suppress(KeyError):
        await asyncio.gather(cleaning.saga(), fails())
    return "ended while a branch undoes"


def test_a_cancel_after_the_agent_has_ended_waits_for_what_is_being_undone(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[leaves_it_undoing]) as app:
            run = await app.start(leaves_it_undoing(), id="r")
            await cleaning.until("undoing hotel")
            assert await run.cancel(timeout=60) in (hf.Status.cancelled, hf.Status.done)

    asyncio.run(main())
    assert undone() == UNDONE


def test_a_process_that_closes_while_the_rest_of_a_run_undoes_hands_it_over(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with hf.connect(url, agents=[leaves_it_undoing]) as app:
            await app.start(leaves_it_undoing(), id="r")
            await cleaning.until("undoing hotel")
        async with hf.connect(url, agents=[leaves_it_undoing]) as app:
            await app.get("r").resume()
            assert await app.get("r").result(timeout=60) == "ended while a branch undoes"

    asyncio.run(asyncio.wait_for(main(), 60))
    assert list(dict.fromkeys(undone())) == UNDONE


@hf.effect(settle=0, on_doubt="retry", retries=hf.Retry(5, first=0.01))
async def book_twice(what: str) -> str:
    cleaning.write(f"+{what}")
    if hf.this_step().attempt == 1:
        await cleaning.until("go on")
        raise ConnectionError("who knows")
    return what


@book_twice.undo
async def unbook_twice(booked: str | None, what: str) -> None:
    cleaning.write(f"-{what}")


@hf.agent
async def repeats() -> None:
    async with hf.saga():
        await cleaning.book("flight")
        await book_twice("hotel")
        await hf.sleep(1000)


def test_what_may_have_happened_before_it_was_to_be_repeated_is_undone(tmp_path: Path) -> None:
    """Paused between two attempts, of which the first proves nothing; then cancelled."""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[repeats]) as app:
            run = await app.start(repeats(), id="r")
            await cleaning.until("+hotel")
            assert await run.pause() is hf.Status.paused
            await eventually(lambda: _has_heard(run))
            cleaning.write("go on")
            await eventually(lambda: _is(run, hf.Status.paused))
            assert await run.cancel(timeout=60) is hf.Status.cancelled

    asyncio.run(main())
    assert cleaning.lines().count("+hotel") == 1
    assert undone() == ["-hotel", "-flight"]


async def _has_heard(run: hf.Run[Any]) -> bool:
    return any(item.status == "paused" for item in await run.history())


async def _is(run: hf.Run[Any], status: hf.Status) -> bool:
    return await run.status() is status


@pytest.mark.parametrize("acts", [["pause", "cancel"], ["cancel", "pause"]])
def test_what_people_do_after_a_kill_does_not_keep_it_from_being_undone(tmp_path: Path, acts: list[str]) -> None:
    url = str(tmp_path / "runs.db")

    async def start() -> None:
        async with hf.connect(url) as app:
            await app.start(cleaning.cleans("by_person", "saga"), id="r")

    asyncio.run(start())
    env = environment({"CLEANING_LEDGER": str(cleaning.LEDGER), "HOLDFAST_FAULT": "undo.before:kill@2"})
    assert python(cleaning.__file__, url, env=env).returncode == -9

    async def meddle() -> None:
        async with hf.connect(url) as app:
            for act in acts:
                await (app.get("r").pause() if act == "pause" else app.get("r").cancel(timeout=0))
            async with hf.connect(url, agents=cleaning.AGENTS) as worker:
                await worker.get("r").resume()
                with pytest.raises(hf.RunCancelled):
                    await worker.get("r").result(timeout=60)

    asyncio.run(meddle())
    assert list(dict.fromkeys(undone())) == UNDONE


@hf.agent
async def cancelled_within_after_a_group() -> None:
    async def fails() -> None:
        raise ValueError

    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(asyncio.sleep(1000))
    inner = asyncio.ensure_future(asyncio.sleep(1000))
    inner.cancel()
    await inner


def test_an_agent_that_nobody_cancelled_fails(tmp_path: Path) -> None:
    with pytest.raises(hf.RunFailed, match="CancelledError"):
        hf.run(cancelled_within_after_a_group(), id="r", url=str(tmp_path / "runs.db"))
