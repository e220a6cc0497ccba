"""Whatever many processes move, who asks for it again and again has seen the last state of every run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.base.config import Settings
from holdfast.model import RunFilter, Status
from holdfast.store import open_store
from holdfast.testing.samples import new_run


async def watch(url: str, processes: int, count: int) -> None:
    store = open_store(url, settings=Settings())
    await store.open()
    await store.create(new_run("first"), owner=None)
    cursor = (await store.surveys.moves(None)).cursor
    seen: dict[str, tuple[Status, int]] = {}
    looks = 0

    async def look() -> None:
        nonlocal cursor, store, looks
        found = await store.surveys.moves(cursor)
        assert found.is_known
        seen.update({row.id: (row.status, row.head_seq) for row in found.rows})
        cursor = found.cursor
        looks += 1
        if looks % 5 == 0:  # another process goes on from the cursor
            await store.close()
            store = open_store(url, settings=Settings())
            await store.open()

    command = [sys.executable, "-m", "tests.store.moving", url]
    movers = [subprocess.Popen([*command, f"p{number}", str(count)]) for number in range(processes)]
    while any(mover.poll() is None for mover in movers):
        await look()
        await asyncio.sleep(0.02)
    ended = time.monotonic()
    wanted = processes * count
    while len(seen) < wanted and time.monotonic() - ended < 2:
        await look()
    await look()
    assert [mover.returncode for mover in movers] == [0] * processes
    stored: dict[str, tuple[Status, int]] = {}
    last = None
    while page := await store.runs(RunFilter(limit=1000, before_id=last)):
        stored |= {row.id: (row.status, row.head_seq) for row in page if row.id != "first"}
        last = page[-1].id
    assert len(stored) == wanted
    assert {run_id: state for run_id, state in stored.items() if seen.get(run_id) != state} == {}
    await store.close()


def test_nothing_that_moved_is_missed(tmp_path: Path) -> None:
    asyncio.run(watch(str(tmp_path / "runs.db"), 2, 60))


def test_nothing_that_moved_is_missed_in_postgres(postgres_url: str) -> None:
    asyncio.run(watch(postgres_url, 2, 60))


@pytest.mark.prove
def test_nothing_of_ten_thousand_is_missed(tmp_path: Path) -> None:
    asyncio.run(watch(str(tmp_path / "runs.db"), 8, 1250))


@pytest.mark.prove
def test_nothing_of_ten_thousand_is_missed_in_postgres(postgres_url: str) -> None:
    asyncio.run(watch(postgres_url, 8, 1250))
