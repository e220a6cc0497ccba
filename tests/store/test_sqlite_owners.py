"""Files of other users: not used without a word, never through a link, and shared by a group if that is said."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import apsw
import pytest

from holdfast.base.config import Settings
from holdfast.errors import StoreError, UsageError
from holdfast.model import Proof, RunFilter, WorkerId
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, BOB, new_run, new_worker, opened

#: Users and a group that nobody has.
EVE, MALLORY, FRIENDS = 47_111, 47_112, 47_200

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user comes to; pytest's own are for one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    rmtree(folder)


def open_once(path: Path, *, group: str = "", read_only: bool = False, worker: WorkerId | None = None) -> list[str]:
    settings = Settings(shared_group=group) if group else Settings()

    async def main() -> list[str]:
        async with opened(lambda: SqliteStore(path, settings=settings), read_only=read_only) as store:
            if worker is not None:
                await store.add_worker(new_worker(worker, lease_until_ms=1))
            elif not read_only:
                await store.create(new_run(f"run-{os.geteuid()}"), owner=None)
            return [row.id for row in await store.runs(RunFilter())]

    return asyncio.run(main())


def state(folder: Path) -> dict[str, tuple[int, int, str]]:
    found = {}
    for each in sorted(folder.rglob("*")):
        status = each.lstat()
        text = hashlib.sha256(each.read_bytes()).hexdigest() if each.is_file() and not each.is_symlink() else ""
        found[str(each.relative_to(folder))] = (status.st_uid, stat.S_IMODE(status.st_mode), text)
    return found


def run_as(uid: int, groups: list[int], work: Callable[[], Any]) -> Any:
    """What a process of another user returns, or the message of what it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                said = work()
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writer, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


# somebody else's


@as_root
@pytest.mark.parametrize("whose", ["", "-wal", "-shm", "-journal", "-workers", "-workers/open.lock"])
def test_a_store_with_a_file_of_another_user_is_not_opened_to_write(tmp_path: Path, whose: str) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    theirs = Path(f"{path}{whose}")
    theirs.touch(mode=0o600)
    os.chown(theirs, EVE, EVE)
    before = state(tmp_path)
    with pytest.raises(StoreError, match=rf"{theirs.name} belongs to uid {EVE}, and this process runs as"):
        open_once(path)
    assert state(tmp_path) == before


@as_root
def test_what_another_user_laid_out_before_the_store_was_made_is_not_used(shared: Path) -> None:
    path = shared / "runs.db"
    assert run_as(EVE, [], lambda: Path(f"{path}-wal").touch()) is None
    said = run_as(MALLORY, [], lambda: open_once(path))
    assert said.startswith(f"StoreError: {path}-wal belongs to uid {EVE}, and this process runs as uid {MALLORY}.")
    assert not path.exists()
    os.unlink(f"{path}-wal")
    rmtree(f"{path}-workers")
    assert run_as(MALLORY, [], lambda: open_once(path)) == [f"run-{MALLORY}"]


@as_root
def test_the_lock_file_of_another_user_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    lock = Path(f"{path}-workers", f"{ALICE}.lock")
    lock.touch(mode=0o600)
    os.chown(lock, EVE, EVE)
    with pytest.raises(StoreError, match=f"belongs to uid {EVE}"):
        open_once(path, worker=ALICE)


@as_root
def test_a_store_of_another_user_is_read_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    os.chown(path, EVE, EVE)
    with caplog.at_level(logging.WARNING):
        assert open_once(path, read_only=True) == ["run-0"]
    assert f"belongs to uid {EVE}" in caplog.text


@as_root
def test_a_store_of_root_is_used_by_others_who_may(shared: Path) -> None:
    """Root can do everything anyhow; and what it made for a user is often still its own."""
    path = shared / "runs.db"
    open_once(path)
    for each in (path, Path(f"{path}-workers"), *Path(f"{path}-workers").iterdir()):
        os.chown(each, 0, EVE)
        each.chmod(0o770 if each.is_dir() else 0o660)
    assert sorted(run_as(EVE, [], lambda: open_once(path))) == ["run-0", f"run-{EVE}"]


# links and modes


@pytest.mark.parametrize("name", ["-wal", "-workers", "-workers/open.lock", f"-workers/{ALICE}.lock"])
def test_no_file_of_a_store_is_followed_to_elsewhere(tmp_path: Path, name: str) -> None:
    path, elsewhere = tmp_path / "a" / "runs.db", tmp_path / "elsewhere"
    open_once(path)
    there = Path(f"{path}{name}")
    if there.is_dir():
        there.rename(elsewhere)
    else:
        there.unlink(missing_ok=True)
        elsewhere.write_bytes(b"")
    there.symlink_to(elsewhere)
    before = state(tmp_path)
    with pytest.raises(StoreError, match="is a symbolic link"):
        open_once(path, worker=ALICE)
    if ALICE not in name:
        assert state(tmp_path) == before


def test_the_directory_of_locks_is_shut_for_others(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    locks = Path(f"{path}-workers")
    locks.chmod(0o777)
    open_once(path)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o700


# a group


@as_root
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_users_of_a_group_share_a_store(shared: Path, umask: int) -> None:
    path = shared / "folder" / "runs.db"
    group = str(FRIENDS)

    def work() -> list[str]:
        os.umask(umask)
        return sorted(open_once(path, group=group))

    def hold_on() -> list[str]:
        """The second user works while the first one's store is open."""

        async def main() -> list[str]:
            os.umask(umask)
            async with opened(lambda: SqliteStore(path, settings=Settings(shared_group=group))) as store:
                await store.add_worker(new_worker(BOB, lease_until_ms=1))
                return [str(await asyncio.to_thread(ask)), *(await store.dead_workers())]

        return asyncio.run(main())

    ready, asked = os.pipe()
    answer, told = os.pipe()

    def ask() -> str:
        os.write(asked, b"?")
        return os.read(answer, 100).decode()

    assert run_as(EVE, [FRIENDS], work) == [f"run-{EVE}"]
    assert run_as(MALLORY, [FRIENDS], work) == [f"run-{EVE}", f"run-{MALLORY}"]
    pid = os.fork()
    if not pid:  # answers while the other has it open
        os.read(ready, 1)
        os.write(
            told, json.dumps(run_as(EVE, [FRIENDS], lambda: open_once(path, group=group, read_only=True))).encode()
        )
        os._exit(0)
    both, *dead = run_as(MALLORY, [FRIENDS], hold_on)
    os.waitpid(pid, 0)
    assert (sorted(json.loads(both)), dead) == ([f"run-{EVE}", f"run-{MALLORY}"], [])
    modes = {name: mode for name, (_, mode, _) in state(shared).items()}
    assert {mode for name, mode in modes.items() if Path(name).suffix == ".db-workers"} == {0o2770}
    assert all(mode & 0o7 == 0 for mode in modes.values())
    outsider = run_as(47_113, [], lambda: open_once(path, group=group))
    assert "StoreError" in outsider
    alone = run_as(MALLORY, [FRIENDS], lambda: open_once(path))
    assert "StoreError" in alone, "without the setting it is a store of others"


def test_a_group_that_does_not_exist_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no group 'nobody-has-this'"):
        open_once(tmp_path / "runs.db", group="nobody-has-this")


@pytest.mark.parametrize("body", ["{", "[]", "7", '{"inodf": 5}', '{"inode": "x"}', '{"inode": null}'])
def test_a_note_of_a_lock_that_is_damaged_is_as_none_and_hides_no_worker(tmp_path: Path, body: str) -> None:
    path = tmp_path / "runs.db"
    for worker in (ALICE, BOB):
        open_once(path, worker=worker)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE definitions SET body = ? WHERE kind = 'lock' AND name = ?", (body, ALICE))
    assert connection.changes() == 1
    connection.close()

    async def main() -> dict[WorkerId, Proof]:
        async with opened(lambda: SqliteStore(path)) as store:
            return await store.dead_workers()

    assert asyncio.run(main()) == {ALICE: "lease", BOB: "lock"}


# what is in the schema


PLANTED = {
    "view": (
        "ALTER TABLE runs RENAME TO hidden; CREATE VIEW runs AS SELECT * FROM hidden",
        "has runs as view, not as table",
    ),
    "trigger": (
        "CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM records WHERE seq = new.seq; END",
        "records has the trigger evil, which Holdfast did not make",
    ),
    "index": ("CREATE UNIQUE INDEX evil ON runs (agent)", "runs has the index evil, which Holdfast did not make"),
    "column": ("ALTER TABLE workers ADD COLUMN more TEXT", "the table workers is not the one that Holdfast made"),
    "gone": ("DROP INDEX runs_by_parent", "has no index runs_by_parent"),
}


def plant(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("what", PLANTED)
def test_a_schema_that_somebody_changed_is_noticed(tmp_path: Path, what: str) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    sql, said = PLANTED[what]
    plant(path, sql)

    async def main() -> list[str]:
        async with opened(lambda: SqliteStore(path), read_only=True) as store:
            return [each.text for each in await store.check()]

    assert [each for each in asyncio.run(main()) if said in each]


def test_tables_of_the_users_own_are_theirs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    plant(
        path,
        "CREATE TABLE orders (id); CREATE INDEX by_id ON orders (id); CREATE VIEW few AS SELECT * FROM orders LIMIT 5;"
        "CREATE TRIGGER theirs AFTER INSERT ON orders BEGIN DELETE FROM orders; END; ANALYZE",
    )

    async def main() -> list[str]:
        async with opened(lambda: SqliteStore(path), read_only=True) as store:
            return [each.text for each in await store.check()]

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("read_only", [True, False])
def test_a_view_in_the_place_of_a_table_is_not_read(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    plant(path, PLANTED["view"][0])

    async def main() -> None:
        async with opened(lambda: SqliteStore(path), read_only=read_only) as store:
            await store.runs(RunFilter())

    with pytest.raises(StoreError, match="runs"):
        asyncio.run(main())
