"""Twenty processes that read beside one that writes: none sees half a commit, and no commit waits for a reader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.base.config import Settings
from holdfast.errors import StoreError
from holdfast.journal.integrity import check_records
from holdfast.model import Applied, Claim, RunFilter, RunId, RunRow
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.sqlite import reads
from holdfast.testing.samples import ALICE, append, extend, new_run, opened, taken_over
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.stores import forkserver

__all__ = ["forkserver"]

READERS, RUNS, ROUNDS = 20, 30, 15
EVERY = RunFilter(limit=200)


def look(url: str, folder: str, name: str) -> None:
    asyncio.run(_look(url, Path(folder), name))


async def _look(url: str, folder: Path, name: str) -> None:
    """Keep a transaction open until told; then read pages until the last commit is in one."""
    async with opened(lambda: open_store(url, settings=Settings()), read_only=True) as store:
        before, after = await _held(store, folder, name)
        assert before == after, "a transaction saw two moments"
        seen: set[int] = set()
        while not seen & _last(folder):
            page = await store.runs(EVERY)
            epochs = {row.epoch for row in page}
            assert (len(page), len(epochs)) == (RUNS, 1), f"half a commit: {epochs}"
            seen |= epochs
            loaded = await store.load(RunId("r0"))
            assert loaded is not None
            check_records(*loaded)
            (folder / f"looked-{name}").touch()
            await asyncio.sleep(0.01)
        with pytest.raises(StoreError):
            await store.quarantine(RunId("r0"), "no")


def _last(folder: Path) -> set[int]:
    """The epoch of the last commit, once it is known."""
    file = folder / "last"
    return {int(file.read_text() or 0)} if file.exists() else set()


async def _held(store: Store, folder: Path, name: str) -> tuple[list[RunRow], list[RunRow]]:
    """What a transaction sees before and after the writer's commits."""
    held, go = folder / f"held-{name}", folder / "go"
    database: Any = vars(store)["_database"]

    def in_sqlite(connection: apsw.Connection) -> tuple[list[RunRow], list[RunRow]]:
        before = reads.runs(connection, EVERY)
        held.touch()
        while not go.exists():
            time.sleep(0.01)
        return before, reads.runs(connection, EVERY)

    async def in_postgres(there: Any) -> tuple[list[RunRow], list[RunRow]]:
        async with there.moment():
            before = await there.runs(EVERY)
            held.touch()
            await eventually(go.exists)
            return before, await there.runs(EVERY)

    found: tuple[list[RunRow], list[RunRow]] = await database.read(
        in_sqlite if store.url.startswith("sqlite") else in_postgres
    )
    return found


async def _write(store: Store, rows: list[RunRow]) -> list[RunRow]:
    """Two commits: all runs change hands at once, and one of them gets a record."""
    claims = [Claim(taken_over(row, wake_at=None), row.epoch, row.owner) for row in rows]
    assert await store.claim_many(claims, owner=ALICE) == [True] * RUNS
    found = [await store.run(row.id) for row in rows]
    rows = [row for row in found if row is not None]
    one = extend(rows[0], "done")
    assert await append(store, one) == [Applied.committed]
    return [one.row, *rows[1:]]


@pytest.mark.postgres
def test_twenty_readers_see_whole_commits_and_no_commit_waits_for_them(tmp_path: Path, forkserver: ForkServer) -> None:
    url, folder, names = forkserver.store_url(tmp_path), str(tmp_path), list(map(str, range(READERS)))

    async def go() -> None:
        async with opened(lambda: open_store(url, settings=Settings())) as store:
            rows = [await store.create(new_run(f"r{n}"), owner=ALICE) for n in range(RUNS)]
            readers = [forkserver.start(look, url=url, folder=folder, name=name, log=tmp_path / name) for name in names]
            try:
                await eventually(lambda: all((tmp_path / f"held-{name}").exists() for name in names))
                for _ in range(ROUNDS):  # each of them has a transaction open, and will have one until this is over
                    rows = await _write(store, rows)
                (tmp_path / "go").touch()
                await eventually(lambda: all((tmp_path / f"looked-{name}").exists() for name in names))
                for _ in range(ROUNDS):
                    rows = await _write(store, rows)
                (tmp_path / "last").write_text(str(rows[0].epoch))
                codes = {name: await reader.wait_dead() for name, reader in zip(names, readers, strict=True)}
                assert set(codes.values()) == {0}, [(tmp_path / name).read_text() for name in names if codes[name]][:1]
            finally:
                for reader in readers:
                    reader.kill()

    asyncio.run(go())
