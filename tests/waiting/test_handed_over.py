"""Runs whose process closes in the middle of something are left so that they go on as they should."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.worker import execution
from tests.eventually import eventually
from tests.workers import noted, until

CALLS: list[int] = []
MAY_END = threading.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    MAY_END.clear()


@hf.step
async def slow(n: int) -> int:
    CALLS.append(n)
    if len(CALLS) == 1:
        await asyncio.sleep(60)
    return n


@hf.step
async def short(n: int) -> int:
    CALLS.append(n)
    await eventually(MAY_END.is_set)
    return n


@hf.agent
async def works() -> int:
    return await slow(1) + await slow(2)


async def paused_and_handed_over(url: str, *, resumed: bool) -> hf.Status:
    """Pause a run in the middle of a step, and close its process; `resumed`: at once before it closes."""
    async with hf.connect(url) as client:
        async with hf.connect(url, agents=[works], settings=hf.Settings(drain_s=0.05)) as app:
            run = await app.start(works(), id="r")
            await eventually(lambda: CALLS)
            assert await client.get("r").pause() is hf.Status.paused
            await noted(run, "paused")
            assert await run.status() is hf.Status.running  # the step is under way
            if resumed:
                await client.get("r").resume()
        return await client.get("r").status()


def test_a_run_of_which_a_part_could_go_on_is_not_left_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One branch waits for a person; another one is kept from its next call, because the process is closing."""
    url = str(tmp_path / "runs.db")
    monkeypatch.setattr(execution, "_BODY_POLL_S", 0.3)  # whoever closes looks away meanwhile
    CALLS.clear()

    @hf.agent
    async def two_branches() -> int:
        async def goes_on() -> int:
            return await short(1) + await short(2)

        asked = asyncio.create_task(hf.ask("Never answered"))
        result = await goes_on()
        asked.cancel()
        return result

    async def main() -> None:
        async with hf.connect(url, agents=[two_branches]) as app:
            await app.start(two_branches(), id="r")
            await eventually(lambda: CALLS)
            app._parts.drain_s = 60  # as a worker does when it is told to stop
            asyncio.get_running_loop().call_later(0.05, MAY_END.set)  # when it is closing
        async with hf.connect(url) as client:
            assert await client.get("r").status() is hf.Status.queued
        async with hf.connect(url, agents=[two_branches]) as app:
            assert await app.get("r").result(timeout=60) == 3

    asyncio.run(main())
    assert CALLS == [1, 2]


def test_it_is_paused_and_a_resume_has_it_go_on(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        assert await paused_and_handed_over(url, resumed=False) is hf.Status.paused
        async with hf.connect(url) as client:
            await client.get("r").resume()
            assert await client.get("r").status() is hf.Status.queued
        async with hf.connect(url, agents=[works]) as app:
            assert await app.get("r").result(timeout=60) == 3

    asyncio.run(main())


def test_a_resume_that_was_not_read_yet_counts(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        assert await paused_and_handed_over(url, resumed=True) is hf.Status.queued
        async with hf.connect(url, agents=[works]) as app:
            assert await app.get("r").result(timeout=60) == 3

    asyncio.run(main())


def test_a_pause_that_nobody_has_read_can_be_taken_back(tmp_path: Path) -> None:
    """Its worker died, or closed, before it heard of the pause; then the run is resumed, and only then taken up."""
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with hf.connect(url) as client:
            async with hf.connect(url, agents=[works]) as app:
                run = await app.start(works(), id="r")
                await eventually(lambda: CALLS)
                app._here.local(run.id).mail_came = lambda: None  # type: ignore[union-attr, method-assign]
                assert await client.get("r").pause() is hf.Status.paused
            assert await client.get("r").status() is hf.Status.queued
            assert [mail.kind for mail in await client._store.mail(run.id, after=0)] == ["pause"]
            await client.get("r").resume()
        async with hf.connect(url, agents=[works]) as app:
            assert await app.get("r").result(timeout=60) == 3

    asyncio.run(main())


def test_a_child_that_is_stored_while_its_process_closes_is_handed_over_too(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    @hf.agent
    async def child() -> bool:
        return await hf.ask("Well?")

    @hf.agent
    async def parent() -> bool:
        return await child()

    async def main() -> None:
        async with hf.connect(url) as client:
            async with hf.connect(url, agents=[parent, child]) as app:
                store, begun = app._store, asyncio.Event()
                create = store.create

                async def slowly(append: Any, **options: Any) -> Any:
                    stored = await create(append, **options)
                    if append.row.agent == "child":
                        begun.set()
                        await asyncio.sleep(0.2)
                    return stored

                store.create = slowly  # type: ignore[method-assign]
                await app.start(parent(), id="r")
                await begun.wait()
            (made,) = await client.runs(agent="child")
            assert made.status is hf.Status.queued
            assert await client.get("r").status() is hf.Status.queued
            async with hf.connect(url, agents=[parent, child]) as app:
                asked = await eventually(app.questions)
                await asked[0].answer(True)
                assert await app.get("r").result(timeout=60)

    asyncio.run(main())


def test_a_store_that_is_away_for_a_while_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a run needs of it: it is no failure of the agent's, and no reason to be blocked."""
    url = str(tmp_path / "runs.db")

    @hf.agent
    async def child() -> int:
        return 1

    @hf.agent
    async def asks() -> int:
        return await child() if await hf.ask("Well?") else 0

    async def main() -> None:
        async with hf.connect(url) as client, hf.connect(url, agents=[asks, child]) as app:
            for name in ("mail", "open_question", "create"):
                failing(app._store, name, times=2)
            run = await client.start(asks(), id="r")
            asked = await eventually(client.questions)
            await asked[0].answer(True)
            assert await run.result(timeout=60) == 1

    asyncio.run(main())
    assert "run.waits_for_the_store" in caplog.text


def failing(store: Any, name: str, *, times: int) -> None:
    """Have a method of a store fail the first times."""
    method = getattr(store, name)
    left = iter(range(times))

    async def fails(*args: Any, **options: Any) -> Any:
        if next(left, None) is not None:
            raise hf.StoreError("the server is away")
        return await method(*args, **options)

    setattr(store, name, fails)


def test_all_that_were_told_to_pause_go_on_when_all_are_resumed(tmp_path: Path) -> None:
    """Also one that is in the middle of a step, and has not come to its pause yet."""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[two_short]) as app:
            run = await app.start(two_short())
            await eventually(lambda: CALLS)
            assert await app.pause_all() == [run.id]
            assert await run.status() is hf.Status.running
            await app.resume_all()
            MAY_END.set()
            assert await run.result(timeout=60) == 3

    asyncio.run(main())


@hf.agent
async def two_short() -> int:
    return await short(1) + await short(2)


UNDONE: list[str] = []


@hf.effect(settle=0)
async def book(what: str) -> str:
    return what


@book.undo
async def unbook(booked: str | None, what: str) -> None:
    UNDONE.append(what)


@hf.agent
async def trip() -> None:
    async with hf.saga():
        await book("flight")
        await slow(1)


def test_a_paused_run_with_something_to_undo_is_known_as_such_by_who_never_began_it(tmp_path: Path) -> None:
    """The pause is read by the next process, which leaves the run as it is; then it is cancelled."""
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        CALLS.clear()
        UNDONE.clear()
        async with hf.connect(url) as client:
            async with hf.connect(url, agents=[trip]) as app:
                run = await app.start(trip(), id="r")
                await eventually(lambda: CALLS)
                app._here.local(run.id).mail_came = lambda: None  # type: ignore[union-attr, method-assign]
                assert await client.get("r").pause() is hf.Status.paused
            async with hf.connect(url, agents=[trip]):
                await until(client.get("r"), "paused")
            async with hf.connect(url, agents=[trip]):
                assert await client.get("r").cancel(timeout=60) is hf.Status.cancelled
        assert UNDONE == ["flight"]

    asyncio.run(main())


def test_a_paused_run_with_something_to_undo_never_goes_on_uncancelled(tmp_path: Path) -> None:
    """That it goes on and that it is cancelled is one commit: whoever takes it up knows both."""
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        UNDONE.clear()
        async with hf.connect(url) as client:
            async with hf.connect(url, agents=[trip]) as app:
                run = await app.start(trip(), id="r")
                await eventually(lambda: CALLS)
                assert await client.get("r").pause() is hf.Status.paused
                await noted(run, "paused")
            before = await client._store.records(run.id)
            assert await client.get("r").cancel(timeout=0) is hf.Status.cancelled
            assert await client.get("r").status() is hf.Status.queued
            assert [r.name for r in await client._store.records(run.id, after=before[-1].seq)] == ["cancel"]
            assert await client.get("r").pause() is hf.Status.cancelled, "it can only end"
            async with hf.connect(url, agents=[trip]):
                await until(client.get("r"), "cancelled")
        assert (UNDONE, CALLS) == (["flight"], [1])

    asyncio.run(main())


@hf.effect(settle=0)
async def order(what: str) -> str:
    CALLS.append(1)
    await eventually(MAY_END.is_set)
    return what


@order.verify
async def ordered(what: str) -> hf.Verdict[str]:
    return hf.landed(what)


@order.undo
async def unorder(ordered: str | None, what: str) -> None:
    UNDONE.append(what)


@hf.agent
async def purchase() -> None:
    async with hf.saga():
        await order("chair")
        await hf.sleep(3600)


def test_an_effect_that_was_cut_off_may_have_to_be_undone(tmp_path: Path) -> None:
    """Its process closed in the middle of it, and the run is cancelled while nobody has it."""
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        UNDONE.clear()
        async with hf.connect(url) as client:
            async with hf.connect(url, agents=[purchase], settings=hf.Settings(drain_s=0)) as app:
                await app.start(purchase(), id="r")
                await eventually(lambda: CALLS)
            await client.get("r").cancel(timeout=0)
            assert await client.get("r").status() is hf.Status.queued
            async with hf.connect(url, agents=[purchase]):
                await until(client.get("r"), "cancelled")
        assert UNDONE == ["chair"]

    asyncio.run(main())
