"""A log that is not what it was is noticed: when the store is opened after a kill, and under a process that lives."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.base import faults
from holdfast.errors import StoreCorrupt, StoreReplaced
from holdfast.model import Applied, Kind, RunId, RunRow, WorkerId
from holdfast.store.contract import Store
from holdfast.store.sqlite.locks import WorkerLocks
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, opened
from tests.scripts import python

_FRAME = 24 + 4096
#: Works on a store and is killed; says up to where it was told that its records are stored.
_LEFT = """
import asyncio, os, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run

async def main():
    store = SqliteStore(sys.argv[1], checkpoint_pages=int(sys.argv[3]))
    await store.open()
    loaded = await store.load("r_1")
    row = loaded[0] if loaded else await store.create(new_run("r_1"), owner=ALICE)
    for number in range(int(sys.argv[2])):
        step = extend(row, "done", payload='"' + "x" * 1000 + '"')
        if number % 2 or not await alone(store, step):
            assert (await append(store, step))[0] == "committed"
        row = step.row
    print(row.head_seq)
    sys.stdout.flush()
    if sys.argv[4:]:
        await store.close()
    else:
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""
#: Another program on the same file. It reads the log, and as the last one to close it moves it into the file.
_OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM runs").fetchall()
for _ in range(int(sys.argv[2])):
    connection.execute("CREATE TABLE IF NOT EXISTS theirs (a)")
    connection.execute("INSERT INTO theirs VALUES (hex(randomblob(3000)))")
    connection.commit()
connection.close()
"""


def leave(path: Path, steps: int = 12, *, pages: int = 1000, closes: bool = False) -> int:
    """A store that a process left; how many records were acknowledged."""
    done = python("-c", _LEFT, str(path), str(steps), str(pages), *(["close"] if closes else []))
    assert done.returncode == (0 if closes else -9), done.stderr
    return int(done.stdout)


def visit(path: Path, writes: int = 0) -> None:
    subprocess.run([sys.executable, "-c", _OUTSIDER, str(path), str(writes)], check=True)


def outside(path: Path, *statements: str) -> None:
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute(sys.argv[2])"
    for statement in statements:
        subprocess.run([sys.executable, "-c", script, str(path), statement], check=True)


def head(path: Path) -> int:
    async def main() -> int:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.check() == []
            loaded = await store.load(RunId("r_1"))
            assert loaded is not None
            assert loaded[0].head_seq == len(loaded[1])
            return loaded[0].head_seq

    return asyncio.run(main())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cut(part: float) -> Callable[[Path], object]:
    return lambda wal: os.truncate(wal, int(wal.stat().st_size * part))


LOSSES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": cut(0),
    "its header alone": lambda wal: os.truncate(wal, 32),
    "half of its header": lambda wal: os.truncate(wal, 16),
    "a tenth": cut(0.1),
    "half": cut(0.5),
    "all but its last frame": lambda wal: os.truncate(wal, wal.stat().st_size - _FRAME),
    "all but its last byte": lambda wal: os.truncate(wal, wal.stat().st_size - 1),
    "nothing but zeros": lambda wal: wal.write_bytes(bytes(wal.stat().st_size)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_lost_commits_is_refused_with_what_to_do(tmp_path: Path, loss: str) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    whole = wal.read_bytes()
    LOSSES[loss](wal)
    before = contents(tmp_path)
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=r"runs\.db-wal is (missing|empty|cut short)") as refused:
            asyncio.run(SqliteStore(path).open(read_only=read_only))
        assert "restore a backup" in str(refused.value)
        assert contents(tmp_path) == before, "something was changed"
    wal.write_bytes(whole)
    assert head(path) == acknowledged, "the log was put back, and the store is whole"


def test_the_loss_can_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    acknowledged = leave(path)
    cut(0.8)(tmp_path / "runs.db-wal")  # the tables are in the first half of it
    with pytest.raises(StoreCorrupt) as refused:
        head(path)
    command = str(refused.value).partition("To go on without what is lost: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert 0 < head(path) < acknowledged


@pytest.mark.parametrize("pages", [9, *(pytest.param(pages, marks=pytest.mark.prove) for pages in (4, 30))])
def test_at_no_moment_of_its_life_can_a_log_vanish_without_a_word(tmp_path: Path, pages: int) -> None:
    """The log is emptied and begun anew all the time; killed at each of many moments, the store knows what it had."""
    refused = 0
    for steps in range(1, 26, 3):
        folder = tmp_path / str(steps)
        path = folder / "runs.db"
        acknowledged = leave(path, steps, pages=pages)
        assert head(copied(folder)) == acknowledged, "left alone, it opens by itself"
        for loss in ("missing", "empty", "half"):
            lost = copied(folder)
            if (wal := Path(f"{lost}-wal")).exists():
                LOSSES[loss](wal)
            try:
                assert head(lost) == acknowledged, (steps, loss)
            except StoreCorrupt:
                refused += 1
    assert refused, "nothing was ever lost, so this shows nothing"


def copied(folder: Path) -> Path:
    copy = folder.with_name(f"{folder.name} copied")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy / "runs.db"


@pytest.mark.parametrize("writes", [0, 1, 20])
def test_another_program_that_moves_the_log_into_the_file_is_no_loss(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "runs.db"
    for _ in range(3):
        acknowledged = leave(path)
        visit(path, writes)
        assert not (tmp_path / "runs.db-wal").exists()
        assert head(copied(tmp_path)) == acknowledged


def test_processes_that_are_killed_and_end_well_in_any_order_leave_a_store_that_opens(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "runs.db", 0
    for number in range(8):
        acknowledged = leave(path, 1 + number % 3, pages=5, closes=bool(number & 2))
        if number & 1:
            visit(path, number % 4)
        assert head(copied(tmp_path)) == acknowledged
    leave(path, 1, closes=True)
    assert not list((tmp_path / "runs.db-workers").glob("*.mark")), "a good end leaves no marks"


def test_a_killed_process_next_to_one_that_goes_on_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path, checkpoint_pages=5)) as store:
            row = await store.create(new_run("r_2"), owner=ALICE)
            for _ in range(3):
                await asyncio.to_thread(leave, path, 2)
                for _ in range(10):
                    step = extend(row, Kind.done)
                    assert await append(store, step) == [Applied.committed]
                    row = step.row

    asyncio.run(main())
    assert head(path) == 7
    assert not (tmp_path / "runs.db-wal").exists()


def test_a_process_that_opens_the_store_leaves_the_marks_of_those_that_live(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    leave(path)

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as one:
            await one.create(new_run(), owner=None)
            async with opened(lambda: SqliteStore(path)) as two:
                await two.create(new_run(), owner=None)
                assert len(list((tmp_path / "runs.db-workers").glob("*.mark"))) == 2, "one for each that lives"

    asyncio.run(main())


def test_a_backup_that_is_put_in_place_opens_by_itself(tmp_path: Path) -> None:
    path, backup = tmp_path / "runs.db", tmp_path / "backup.db"
    kept = leave(path, 3)

    async def copy() -> None:
        async with opened(lambda: SqliteStore(path), read_only=True) as store:
            await store.backup(str(backup))

    asyncio.run(copy())
    assert leave(path, 20, pages=5) > kept
    path.write_bytes(backup.read_bytes())  # into the same file, as cp does
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    assert head(path) == kept
    assert leave(path, 2) == kept + 2
    cut(0.5)(tmp_path / "runs.db-wal")
    with pytest.raises(StoreCorrupt, match="cut short"):
        head(path)


def test_an_older_state_of_all_files_is_refused(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    leave(path, 3)
    older = path.read_bytes(), wal.read_bytes()
    leave(path, 30, pages=5)
    path.write_bytes(older[0])
    wal.write_bytes(older[1])
    (tmp_path / "runs.db-shm").unlink()
    with pytest.raises(StoreCorrupt, match="older than what was committed"):
        head(path)


def test_a_file_in_another_folder_and_a_new_file_in_the_old_one_are_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    acknowledged = leave(path)
    visit(path)
    (tmp_path / "moved").mkdir()
    path.rename(tmp_path / "moved" / "runs.db")
    assert head(tmp_path / "moved" / "runs.db") == acknowledged
    assert leave(path, 2) == 3


@pytest.mark.parametrize("gone", [("", "-wal", "-shm"), ("", "-wal")])
def test_a_new_file_is_not_measured_by_what_was_there_before_it(tmp_path: Path, gone: tuple[str, ...]) -> None:
    path = tmp_path / "runs.db"
    leave(path, 100, pages=4)  # many rounds of the log
    for suffix in gone:
        Path(f"{path}{suffix}").unlink()
    assert leave(path, 2) == 3
    assert leave(path, 2) == 5
    cut(0.5)(tmp_path / "runs.db-wal")
    with pytest.raises(StoreCorrupt, match="cut short"):
        head(path)


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("what", ["empty", "missing"])
def test_a_database_that_is_gone_is_not_made_anew_over_its_log(tmp_path: Path, what: str, *, has_log: bool) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path, 100, pages=30)
    whole, log = path.read_bytes(), wal.read_bytes()
    if what == "empty":
        os.truncate(path, 0)
    else:
        path.unlink()
    if not has_log:
        wal.unlink()
        if what == "missing":
            assert leave(path, 2) == 3, "all was deleted, for a new store"
            return
    before = contents(tmp_path)
    with pytest.raises(StoreCorrupt, match=rf"runs\.db is {what}") as refused:
        head(path)
    assert "restore a backup" in str(refused.value)
    assert contents(tmp_path) == before, "something was changed"
    if what == "empty":
        with pytest.raises(StoreCorrupt, match=r"runs\.db is empty"):
            asyncio.run(SqliteStore(path).open(read_only=True))
    path.write_bytes(whole)
    wal.write_bytes(log)
    assert head(path) == acknowledged


@pytest.mark.parametrize("loss", ["missing", "empty", "half", "all but its last frame"])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_lost_log_is_noticed_although_a_worker_lives_that_has_not_seen_it(
    tmp_path: Path, loss: str, *, has_index: bool
) -> None:
    """A worker that is stopped, or between two looks, does not keep another from doing all again."""
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    stopped = WorkerLocks(f"{path}-workers")
    stopped.take(WorkerId("w_stopped"))
    whole = wal.read_bytes()
    LOSSES[loss](wal)
    if not has_index:
        (tmp_path / "runs.db-shm").unlink()
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=r"runs\.db-wal is (missing|empty|cut short)"):
            asyncio.run(SqliteStore(path).open(read_only=read_only))
    wal.write_bytes(whole)
    assert head(path) == acknowledged
    stopped.drop_all()


@pytest.mark.parametrize("damage", [b"", b"x", bytes(128), os.urandom(128)])
def test_a_mark_that_cannot_be_read_says_nothing(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "runs.db"
    acknowledged = leave(path)
    (mark,) = (tmp_path / "runs.db-workers").glob("*.mark")
    mark.write_bytes(damage)
    assert head(path) == acknowledged


def test_a_mark_whose_last_word_is_damaged_says_what_is_left_of_it(tmp_path: Path) -> None:
    path, wal = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    acknowledged = leave(path)
    (mark,) = (tmp_path / "runs.db-workers").glob("*.mark")
    slots, frames = bytearray(mark.read_bytes()), (wal.stat().st_size - 32) // _FRAME
    word = slots.index(frames.to_bytes(4, sys.byteorder) * 2)
    more = (frames + 1).to_bytes(4, sys.byteorder)
    slots[word : word + 8] = more + more
    mark.write_bytes(slots)
    with pytest.raises(StoreCorrupt, match="is cut short"):
        head(path)
    slots[word : word + 8] = more + bytes(4)
    mark.write_bytes(slots)
    assert head(path) == acknowledged


# under a live process

CUTS: dict[str, Callable[[Path], object]] = {
    "log emptied": lambda path: os.truncate(f"{path}-wal", 0),
    "log cut in half": lambda path: cut(0.5)(Path(f"{path}-wal")),
    "log without its last byte": lambda path: LOSSES["all but its last byte"](Path(f"{path}-wal")),
    "database emptied": lambda path: os.truncate(path, 0),
    "database cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "database overwritten by a smaller one": lambda path: path.write_bytes(path.read_bytes()[:-4096]),
    "log deleted": lambda path: Path(f"{path}-wal").unlink(),
    "log moved": lambda path: Path(f"{path}-wal").rename(f"{path}-gone"),
    "index deleted": lambda path: Path(f"{path}-shm").unlink(),
}


async def grown(store: Store, steps: int, size: int) -> RunRow:
    """A run with so many records of this size."""
    row = await store.create(new_run(), owner=ALICE)
    for _ in range(steps):
        step = extend(row, Kind.done, payload='"' + "x" * size + '"')
        assert await append(store, step) == [Applied.committed]
        row = step.row
    return row


@pytest.mark.parametrize("what", CUTS)
@pytest.mark.parametrize("inline", [False, True])
def test_files_that_are_cut_short_under_a_process_are_noticed_before_anything_is_acknowledged(
    tmp_path: Path, what: str, *, inline: bool
) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            row = await grown(store, 10, 1000)
            if what.startswith("index"):
                await asyncio.sleep(0.11)  # looked at every 100 ms
            if what.startswith("database"):
                outside(path, "PRAGMA wal_checkpoint(TRUNCATE)")
                step = extend(row, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
            CUTS[what](path)
            if inline:
                assert await alone(store, extend(row, Kind.done)) is None
            (refused,) = await append(store, extend(row, Kind.done))
            assert isinstance(refused, StoreReplaced), refused
            assert str(path) in str(refused)
            assert store.failure is refused
            with pytest.raises(StoreReplaced):
                await store.create(new_run(), owner=ALICE)
            await asyncio.sleep(0.11)
            with pytest.raises(StoreReplaced):
                await store.run(row.id)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["log emptied", "log cut in half", "log without its last frame"])
@pytest.mark.parametrize("inline", [False, True])
def test_a_log_that_is_cut_short_while_a_commit_is_written_is_noticed(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, *, inline: bool
) -> None:
    """Behind the look at its length: what is written then makes it as long as it should be, with a gap in it."""
    path = tmp_path / "runs.db"
    last_frame = LOSSES["all but its last frame"]
    cuts = CUTS | {"log without its last frame": lambda path: last_frame(Path(f"{path}-wal"))}

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            row = await grown(store, 10, 1000)

            def cut_there(name: str) -> None:
                if name in ("append.before_commit", "land.before_commit"):
                    monkeypatch.undo()
                    cuts[what](path)

            monkeypatch.setattr(faults, "point", cut_there)
            step = extend(row, Kind.done)
            refused = await alone(store, step) if inline else (await append(store, step))[0]
            while inline and faults.point is cut_there:
                await asyncio.sleep(0.01)  # declined for a while after a slow commit
                refused = await alone(store, step)
            assert Path(f"{path}-wal").stat().st_size > 10 * _FRAME, "it was not written behind the cut"
            assert refused is None if inline else isinstance(refused, StoreReplaced)
            assert isinstance(store.failure, StoreReplaced)
            with pytest.raises(StoreReplaced, match=r"runs\.db-wal was cut short"):
                await store.create(new_run(), owner=ALICE)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["log emptied", "log cut in half", "database emptied", "database cut in half"])
def test_reading_what_was_cut_short_is_no_damage(tmp_path: Path, what: str) -> None:
    """A damaged run would be quarantined, for good; here it is the files that have to be put back."""
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            row = await grown(store, 30, 3000)
            if what.startswith("database"):
                outside(path, "PRAGMA wal_checkpoint(TRUNCATE)")
            await store.run(RunId("nobody"))  # the files are looked at now, and again in 100 ms
            CUTS[what](path)
            with pytest.raises(StoreReplaced):
                await store.load(row.id)

    asyncio.run(main())


def test_a_database_that_others_vacuum_under_a_process_is_not_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            row = await store.create(new_run(), owner=ALICE)
            for _ in range(3):
                visit(path, 60)
                step = extend(row, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
                outside(path, "PRAGMA wal_checkpoint(TRUNCATE)")
                big = path.stat().st_size
                step = extend(row, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
                outside(path, "DROP TABLE theirs", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
                assert path.stat().st_size < big, "nothing became smaller, so this shows nothing"
                step = extend(row, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
                assert (await store.load(row.id)) is not None

    asyncio.run(main())
