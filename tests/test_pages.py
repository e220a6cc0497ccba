"""A long run is read in pages: what is told of it is the same, and what that takes does not grow with it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.control.acting import was_done
from holdfast.handle import forks
from holdfast.history import artifacts, checkpoints, pages
from holdfast.history.artifacts import outputs_of
from holdfast.history.plans import plan_of
from holdfast.history.receipts import receipts_of
from holdfast.history.streams import Following
from holdfast.history.timeline import timeline_of
from holdfast.journal import pages as journal_pages
from holdfast.journal import verification
from holdfast.journal.tombstones import is_empty
from holdfast.model import Kind, Record, RunFilter, RunId, RunRow, Whole
from holdfast.server.reads import Reads
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.samples import ALICE, append, extend, new_run
from tests.golden.write import SQLITE
from tests.turns.many import RUN, make


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_pages, "_PAGE", 3)
    monkeypatch.setattr(verification, "_PAGE", 3)


def on(path: Path, work: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        store = open_store(str(path), settings=Settings())
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(go())


@pytest.mark.corrupts
def test_pages_tell_what_the_whole_journal_tells(tmp_path: Path) -> None:
    path = tmp_path / "golden.db"
    path.write_bytes(gzip.decompress(SQLITE.read_bytes()))

    async def go(store: Store) -> None:
        looked_at = 0
        for listed in await store.runs(RunFilter(limit=500)):
            loaded = await store.load(listed.id)
            assert loaded is not None
            row, records = loaded
            if is_empty(row):
                continue
            whole = timeline_of(row, records, is_lost=row.owner is not None)
            paged = [item async for page in pages.timeline_pages(store, row) for item in page]
            assert paged == whole, row.id
            assert await pages.receipts(store, row) == receipts_of(row, records), row.id
            assert await pages.history(store, row.id, after=0, limit=None) == whole
            some = await pages.history(store, row.id, after=2, limit=2)
            assert some == [item for item in whole if item.seq > 2][:2]
            checked = await verification.verify(store, row.id)
            assert (checked.is_ok, checked.records) == (True, len(records)), row.id
            looked_at += 1
        assert looked_at > 20

    on(path, go)


@pytest.mark.corrupts
def test_damage_on_any_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def make(store: Store) -> None:
        row = await store.create(new_run("long"), owner=ALICE)
        await append(store, extend(row, *[Kind.done] * 9))

    on(path, make)
    seen = []
    for change in (
        "UPDATE records SET payload = '1' WHERE seq = {seq}",
        "DELETE FROM records WHERE seq = {seq}",
        "UPDATE records SET seq = 40 WHERE seq = {seq}",
    ):
        for seq in range(2, 11):
            before = path.read_bytes()
            connection = apsw.Connection(str(path))
            connection.execute(change.format(seq=seq))
            connection.close()

            async def look(store: Store) -> None:
                found = await verification.verify(store, "long")
                seen.append((found.is_ok, found.seq))

            on(path, look)
            path.write_bytes(before)
            assert seen[-1] in ((False, seq), (False, 40)), (change, seq)


def test_what_is_appended_while_it_is_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(store: Store) -> None:
        first = new_run("long")
        row = await store.create(first, owner=ALICE)
        more = extend(row, *[Kind.done] * 3)
        await append(store, more)
        read = store.run
        appended: list[Any] = []

        async def and_go_on(run_id: RunId) -> Any:
            found = await read(run_id)
            if not appended:
                appended.append(await append(store, extend(more.row, *[Kind.done] * 3)))
            return found

        monkeypatch.setattr(store, "run", and_go_on)
        monkeypatch.setattr(verification, "check_row", lambda row: None)  # a made-up row has no digest
        found = await verification.verify(store, "long")
        assert (found.is_ok, found.records, len(await store.records(row.id))) == (True, 4, 7), found.problem

    on(tmp_path / "made-up.sqlite", go)


def in_pages_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the store refuse to give a run as a whole; how many records it gives at a time."""
    given: list[int] = []
    records, whole = store.records, store.whole

    async def some(run_id: RunId, *, after: int = 0, limit: int | None = None) -> list[Record]:
        assert limit is not None, "all records of a run"
        found = await records(run_id, after=after, limit=limit)
        given.append(len(found))
        return found

    async def bare(run_id: RunId, *, bare: bool = False) -> Whole | None:
        assert bare, "all of a run"
        return await whole(run_id, bare=bare)

    async def refused(run_id: RunId) -> None:
        raise AssertionError("all records of a run")

    monkeypatch.setattr(store, "records", some)
    monkeypatch.setattr(store, "whole", bare)
    monkeypatch.setattr(store, "load", refused)
    return given


#: What is read of one run, each by itself.
READS: dict[str, Callable[[Store, RunRow], Coroutine[Any, Any, object]]] = {
    "plan of a fork": lambda store, row: forks.plan(store, row.id, forks.Wanted()),
    "plan of a fork at a turn": lambda store, row: forks.plan(store, row.id, forks.Wanted(turn=4)),
    "plan of a fork at a record": lambda store, row: forks.plan(store, row.id, forks.Wanted(at=9)),
    "a fork": lambda store, row: forks.fork(store, row.id, forks.Wanted(turn=9), by=None, note=""),
    "receipts": lambda store, row: pages.receipts_of_run(store, row.id),
    "history": lambda store, row: pages.history(store, row.id, after=0, limit=None),
    "outputs": lambda store, row: outputs_of(store, row.id),
    "plan": lambda store, row: plan_of(store, row.id),
    "stream": lambda store, row: Following(store, row.id, "output", offset=None).more(),
    "states": lambda store, row: checkpoints.difference_of(store, row.id, turns=(3, 4)),
    "source": journal_pages.source_of,
    "acts": lambda store, row: was_done(store, row.id, "nobody"),
    "verify": lambda store, row: verification.verify(store, row.id),
}


def test_what_is_read_of_a_long_run_is_never_all_of_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    asyncio.run(make(str(path), 12))
    monkeypatch.setattr(artifacts, "_PAGE", 3)

    async def go(store: Store) -> None:
        row = await store.run(RunId(RUN))
        assert row is not None
        given = in_pages_only(store, monkeypatch)
        for name, read in READS.items():
            given.clear()
            await read(store, row)
            assert row.head_seq > 40
            assert max(given, default=0) <= 3, name

    on(path, go)


def test_the_pages_of_a_server_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "runs.db")
    asyncio.run(make(path, 12))

    async def go() -> None:
        async with hf.connect(path) as app:
            reads, row = Reads(app), await app._store.run(RunId(RUN))
            assert row is not None
            given = in_pages_only(app._store, monkeypatch)
            _, told = await reads.detail(RUN)
            assert (told["input"]["json"], told["receipts"]) == ("{}", [])
            assert (await reads.call(RUN, "before#1"))[1]["status"] == "done"
            assert (await reads.story(RUN))[1]
            _, items, following = await reads.records(RUN, after=4, limit=2)
            assert ([each["seq"] for each in items], following) == ([5, 6], 6)
            assert await reads.outputs.receipts(row) == []
            assert max(given) <= 3

    asyncio.run(go())
