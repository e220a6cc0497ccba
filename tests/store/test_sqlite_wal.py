"""The write-ahead log is looked at before SQLite is allowed to forget parts of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreCorrupt
from holdfast.model import Append, RunId
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.wal import scan_wal
from holdfast.testing.samples import ALICE, new_run, new_worker, opened
from tests.scripts import python

_FRAME = 24 + 4096
_LEFT = """
import asyncio, os, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, append, extend, new_run

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    row = await store.create(new_run("r_1"), owner=ALICE)
    for _ in range(int(sys.argv[2])):
        step = extend(row, "done")
        await append(store, step)
        row = step.row
    print(row.head_seq)
    sys.stdout.flush()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def leave(path: Path, steps: int = 12) -> int:
    """A store that a killed process left; how many records were acknowledged."""
    done = python("-c", _LEFT, str(path), str(steps))
    assert done.returncode == -9, done.stderr
    return int(done.stdout)


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x41
    path.write_bytes(content)


def commit_frames(wal: Path) -> list[int]:
    content = wal.read_bytes()
    count = (len(content) - 32) // _FRAME
    return [
        n for n in range(1, count + 1) if content[32 + (n - 1) * _FRAME + 4 : 32 + (n - 1) * _FRAME + 8] != bytes(4)
    ]


def head(path: Path) -> int:
    async def main() -> int:
        async with opened(lambda: SqliteStore(path)) as store:
            loaded = await store.load(RunId("r_1"))
            assert loaded is not None
            assert loaded[0].head_seq == len(loaded[1])
            return loaded[0].head_seq

    return asyncio.run(main())


def test_a_log_left_by_a_killed_process_is_sound(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    assert wal.stat().st_size > 0
    assert scan_wal(str(wal)) is None
    assert head(path) == acknowledged


def test_any_flipped_byte_before_the_last_commit_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    leave(path)
    original = wal.read_bytes()
    *_, before_last, _last = commit_frames(wal)
    chance = random.Random(7)
    offsets = [chance.randrange(32 + before_last * _FRAME) for _ in range(60)]
    offsets += [0, 3, 9, 13, 17, 21, 25, 31]  # every field of the header
    offsets += [32 + (before_last - 1) * _FRAME + field for field in (1, 5, 9, 13, 17, 21, 23, 24, 4119)]
    for offset in offsets:
        wal.write_bytes(original)
        flip(wal, offset)
        damage = scan_wal(str(wal))
        assert damage is not None, offset
    wal.write_bytes(original)
    flip(wal, 32 + 2 * _FRAME + 100)
    before = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in tmp_path.iterdir() if file.is_file()}
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=r"runs\.db-wal is damaged: frame 3 at byte 8272") as caught:
            asyncio.run(SqliteStore(path).open(read_only=read_only))
        assert "truncate -s 8272" in str(caught.value)
    assert before == {
        file.name: hashlib.sha256(file.read_bytes()).digest() for file in tmp_path.iterdir() if file.is_file()
    }


def test_sqlite_itself_would_have_dropped_the_commits(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    frames = commit_frames(wal)
    flip(wal, 32 + (frames[-4] - 1) * _FRAME + 1000)
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT head_seq FROM runs").get < acknowledged
    connection.close()


def test_a_torn_tail_is_normal(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    content, database = wal.read_bytes(), path.read_bytes()
    with wal.open("ab") as file:  # a transaction that was being written: half a frame, or garbage where frames go
        file.write(content[32 : 32 + 2000])
    assert head(path) == acknowledged
    for tail in (os.urandom(3 * _FRAME), bytes(2 * _FRAME), content[32 : 32 + 3 * _FRAME]):
        path.write_bytes(database)
        wal.write_bytes(content + tail)
        assert scan_wal(str(wal)) is None
        assert head(path) == acknowledged
    for cut in (1, 100, _FRAME - 1, _FRAME, 2 * _FRAME):  # of the last transaction, so its own record may be gone
        path.write_bytes(database)
        wal.write_bytes(content[:-cut])
        (tmp_path / "runs.db-shm").unlink(missing_ok=True)
        assert head(path) >= acknowledged - 1


def test_what_an_earlier_round_left_behind_the_end_is_ignored(tmp_path: Path) -> None:
    async def main() -> Path:
        store = SqliteStore(tmp_path / "runs.db", checkpoint_pages=10)
        await store.open()
        for _ in range(30):
            await store.create(new_run_with_noise(), owner=None)
        copied = tmp_path / "copy-wal"
        copied.write_bytes((tmp_path / "runs.db-wal").read_bytes())
        await store.close()
        return copied

    copied = asyncio.run(main())
    content = copied.read_bytes()
    salts = {content[32 + n * _FRAME + 8 : 32 + n * _FRAME + 16] for n in range((len(content) - 32) // _FRAME)}
    assert len(salts) > 1, "the log was not reused, so this shows nothing"
    assert scan_wal(str(copied)) is None


def new_run_with_noise() -> Append:
    return new_run(summary={"noise": os.urandom(200).hex()})


def test_the_scan_is_skipped_while_a_worker_lives(tmp_path: Path) -> None:
    """It is for files left by the dead; a living process writes while we read."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            await store.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
            for _ in range(5):
                await store.create(new_run_with_noise(), owner=ALICE)
            wal, spot = tmp_path / "runs.db-wal", 32 + 2 * _FRAME + 100
            flip(wal, spot)
            async with opened(lambda: SqliteStore(tmp_path / "runs.db"), read_only=True):
                pass
            await store.remove_worker(ALICE)
            with pytest.raises(StoreCorrupt, match="damaged"):
                await SqliteStore(tmp_path / "runs.db").open(read_only=True)
            flip(wal, spot)

    asyncio.run(main())
