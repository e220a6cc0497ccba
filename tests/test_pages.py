"""A long run is read in pages: what is told of it is the same, and what that takes does not grow with it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.base.config import Settings
from holdfast.history import pages
from holdfast.history.receipts import receipts_of
from holdfast.history.timeline import timeline_of
from holdfast.journal import pages as journal_pages
from holdfast.journal import verification
from holdfast.journal.tombstones import is_empty
from holdfast.model import Kind, RunFilter, RunId
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.samples import ALICE, append, extend, new_run
from tests.golden.write import SQLITE


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
