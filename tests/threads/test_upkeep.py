"""Threads and streams are copied, moved and pruned with the runs that need them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.control.upkeep.copying import Copies
from holdfast.control.upkeep.moving import Mover
from holdfast.control.upkeep.transfers import Outcome
from holdfast.history.lookup import row_of
from holdfast.model import RunId
from holdfast.store import open_store
from holdfast.store.contract import Store
from tests.streams.agents import teller, text_of
from tests.threads.agents import Message, chat
from tests.threads.test_threads import reader
from tests.workers import until


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fleet.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, settings=Settings())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def test_runs_go_elsewhere_with_what_they_read_and_wrote(tmp_path: Path, fleet: str) -> None:
    laptop = f"sqlite:///{tmp_path / 'laptop.db'}"

    async def begin() -> None:
        async with hf.connect(laptop, agents=[chat, reader, teller]) as app:
            await (await app.start(chat("one"), id="one", thread_id="chat")).result()
            await (await app.start(chat("two"), id="two", thread_id="chat")).result()
            await (await app.start(teller(20), id="told")).result()
            await app.thread("t", str).append(*"abcd")
            await until(await app.start(reader("t"), id="waits", thread_id="t"), "waiting")

    async def take() -> None:
        async with opened(laptop) as source, opened(fleet) as target:
            rows = [await row_of(source, RunId(run_id)) for run_id in ("one", "told")]
            copies = Copies(source, target)
            assert [each.outcome for each in await copies.copy(rows)] == [Outcome.copied] * 2
            (moved,) = await Mover(source, target).move(await row_of(source, RunId("waits")))
            assert moved.outcome is Outcome.moved

    async def go_on() -> None:
        async with hf.connect(fleet, agents=[chat, reader, teller]) as app:
            memory = app.thread("chat", Message)
            assert [message.text for message in await memory.recent()][::2] == ["one", "two"]
            assert text_of([event async for event in app.get("told").stream(offset=0)]).split()[-1] == "19"
            for run_id in ("one", "told", "waits"):
                assert (await app.get(run_id).verify_journal()).is_ok
            waits = app.get("waits")
            await app.thread("t", str).append("e")
            for _ in range(2):
                await waits.send("go", 1)
            assert await waits.result() == ["b", "c", "d", "d", "e"]
            answer = await (await app.start(chat("three"), thread_id="chat")).result()
            assert answer == "three? I know 5."

    async def conflict() -> None:
        async with hf.connect(laptop) as app:
            await app.thread("chat", Message).append(Message("user", "said here"))
        async with opened(laptop) as source, opened(fleet) as target:
            (refused,) = await Copies(source, target).copy([await row_of(source, RunId("two"))])
            assert refused.outcome is Outcome.conflict
            assert "something else was said in thread chat" in refused.detail
            assert await target.run(RunId("two")) is None

    for work in (begin, take, go_on, conflict):
        asyncio.run(work())


def test_a_thread_is_pruned_with_the_last_of_its_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[chat, teller]) as app:
            await (await app.start(chat("one"), id="one", thread_id="chat")).result()
            await (await app.start(teller(5), id="told", thread_id="chat")).result()
            await app.thread("stray", str).append("x")
            memory = app.thread("chat", Message)
            found = await app.prune(older_than=timedelta(0), agent="teller")
            assert (found.runs, found.threads) == (1, 0)
            with pytest.raises(hf.RunPruned):
                _ = [event async for event in app.get("told").stream()]
            assert len(await memory.recent()) == 2
            assert (await app.prune(older_than=timedelta(0), dry_run=True)).threads == 1  # the one of no run
            found = await app.prune(older_than=timedelta(0), agent="chat")
            assert (found.runs, found.threads) == (1, 1)
            assert await memory.recent() == []
            assert await app.thread("stray", str).recent() == ["x"]
            assert (await app.prune(older_than=timedelta(0))).threads == 1
            assert await app.thread("stray", str).recent() == []
            assert await memory.append(Message("user", "anew")) == 1

    asyncio.run(main())
