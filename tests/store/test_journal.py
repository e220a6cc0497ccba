"""The write side of a run's journal: who waits for the disk, and for what."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.journal.journal import Journal
from holdfast.model import Kind, RunId, Status
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.samples import ALICE, new_run

P = ParamSpec("P")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Store, Journal]]:
    store = open_store(str(path / "store.db"), settings=Settings())
    await store.open()
    try:
        row = await store.create(new_run("r"), owner=ALICE)
        yield store, Journal(store, row, Settings(), on_lost=lambda _: None)
    finally:
        await store.close()


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Submitted:
    """Counts the appends that a store is handed."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, *args: Any, **options: Any) -> None:
        self.count += 1
        self._store.submit(*args, **options)


async def act(journal: Journal, store: Store, n: int, *, after: int = 0) -> None:
    """What an effect does: its intent, and everything before it, are stored when the wait for them ends."""
    for _ in range(after):
        await asyncio.sleep(0)
    journal.add(Kind.intent, f"act#{n}", "act")
    await journal.barrier()
    assert f"act#{n}" in {record.key for record in await store.records(journal.row.id)}


@in_a_loop
async def test_whoever_waits_from_the_same_turn_on_shares_an_append(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, journal):
        journal.store = counted = Submitted(store)
        await act(journal, store, 0)  # one alone, so that the next is not expected to have company
        await asyncio.gather(*(act(journal, store, n) for n in range(1, 101)))
        assert counted.count <= 3
        await asyncio.gather(*(act(journal, store, n) for n in range(101, 201)))
        assert counted.count <= 4


@pytest.mark.parametrize("turns", [1, 2, 3])
@in_a_loop
async def test_nobody_goes_on_before_his_own_record_is_stored(tmp_path: Path, turns: int) -> None:
    async with opened(tmp_path) as (store, journal):
        await asyncio.gather(*(act(journal, store, n, after=n % (turns + 1)) for n in range(200)))


@in_a_loop
async def test_who_gives_up_waiting_takes_nobody_with_him(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, journal):
        tasks = [asyncio.create_task(act(journal, store, n)) for n in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in done if each is not None] == [asyncio.CancelledError]


@pytest.mark.parametrize("inline", [False, True])
@in_a_loop
async def test_of_a_run_that_was_lost_nothing_is_waited_for_with_success(tmp_path: Path, inline: bool) -> None:
    """A body must not run because there was nothing left to write."""
    async with opened(tmp_path) as (_, journal):
        journal.abandon()
        journal.add(Kind.intent, "act#1", "act")
        with pytest.raises(asyncio.CancelledError):
            await journal.barrier(inline=inline)


@pytest.mark.parametrize("before", [0, 248, 249, 250])
@in_a_loop
async def test_how_a_run_ended_is_stored_with_its_status_or_not_at_all(
    tmp_path: Path, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many records wait to be written, and for however long."""
    async with opened(tmp_path) as (store, journal):
        journal.store = submitted = Submitted(store)
        for n in range(before):
            journal.add(Kind.done, f"s#{n}", "s", payload="1")
        submitted.count, now = 0, clock.now_us()
        monkeypatch.setattr("holdfast.journal.journal.now_us", lambda: now + 60_000_000)
        journal.add(Kind.finished, "", Status.done, payload="1", soon=False)
        assert submitted.count == 0
        assert await journal.finish(Status.done)
        loaded = await store.load(RunId("r"))
        assert loaded is not None
        row, records = loaded
        assert (row.status, records[-1].kind, len(records)) == (Status.done, Kind.finished, before + 2)
