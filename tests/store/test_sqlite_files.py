"""The files of a SQLite store: who may read them, whose they are, and what happens when they are taken away."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.base import system
from holdfast.errors import SchemaTooNew, StoreCorrupt, StoreError, StoreReplaced, UsageError
from holdfast.model import Applied, Kind
from holdfast.store import migrate
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import files as sqlite_files
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import conformance
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, new_worker, opened


@pytest.fixture
def wide_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in sorted(directory.rglob("*"))
    }


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def open_once(path: Path, *, read_only: bool = False) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(path), read_only=read_only):
            pass

    asyncio.run(main())


@pytest.mark.usefixtures("wide_umask")
def test_nobody_else_can_read_the_files_even_with_umask_zero(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "a" / "b" / "runs.db")) as store:
            await store.create(new_run(), owner=ALICE)
            await store.add_worker(new_worker(ALICE, lease_until_ms=1))
            found = modes(tmp_path)
            (mark,) = (name for name in found if name.endswith(".mark"))
            assert set(found) == {
                mark,
                "a",
                "a/b",
                *(f"a/b/runs.db{suffix}" for suffix in ("", "-wal", "-shm", "-workers")),
                *(f"a/b/runs.db-workers/{name}" for name in ("open.lock", f"{ALICE}.lock", "bell")),
            }
            for name, mode in found.items():
                assert mode == (0o700 if (tmp_path / name).is_dir() else 0o600), name

    asyncio.run(main())


def test_a_file_that_others_could_read_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    path.chmod(0o644)
    open_once(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_clean_close_leaves_no_log(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    assert {file.name for file in tmp_path.iterdir()} == {"runs.db", "runs.db-workers"}


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO migrations VALUES (99, 'future', 0, '')")
    connection.close()
    before = fingerprint(path)
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match="newer version"):
            open_once(path, read_only=read_only)
    assert fingerprint(path) == before


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", journal)
    connection.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
    connection.close()
    before = fingerprint(path)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="another program"):
            open_once(path, read_only=read_only)
    assert fingerprint(path) == before


@pytest.mark.parametrize("content", [b"x", b"hello", b"not a database " * 1000, b"\x00" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"notes\.txt is not a database"):
            open_once(path, read_only=read_only)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    open_once(path)
    open_once(path, read_only=True)


def test_a_path_that_cannot_be_a_store_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory"):
        open_once(tmp_path)
    with pytest.raises(UsageError, match="does not survive"):
        SqliteStore(":memory:")
    with pytest.raises(StoreError, match="There is no store"):
        open_once(tmp_path / "missing.db", read_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/runs\.db"):
        open_once(tmp_path / "file" / "runs.db")


def test_twelve_processes_can_create_the_same_store_at_once(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import new_run, opened

async def main():
    sys.stdin.read(2)
    async with opened(lambda: SqliteStore(sys.argv[1])) as store:
        await store.create(new_run(), owner=None)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "new" / "runs.db")]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(12)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go")
        child.stdin.flush()
    ended = [(child.communicate(timeout=60)[1], child.returncode) for child in children]
    assert [code for _, code in ended] == [0] * len(children), ended

    async def count() -> object:
        async with opened(lambda: SqliteStore(tmp_path / "new" / "runs.db")) as store:
            assert await store.check() == []
            return (await store.statistics())["runs"]

    assert asyncio.run(count()) == 12


def test_a_deleted_or_replaced_file_is_noticed(tmp_path: Path) -> None:
    async def main(name: str, *, replace: bool) -> None:
        path = tmp_path / name / "runs.db"
        store = SqliteStore(path)
        await store.open()
        row = await store.create(new_run(), owner=ALICE)
        await asyncio.sleep(0.11)  # the file is looked at every 100 ms
        if replace:
            shutil.copy(path, tmp_path / name / "copy.db")
            (tmp_path / name / "copy.db").rename(path)
        else:
            path.unlink()
        left = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file() and file.suffix == ".db"}
        (refused,) = await append(store, extend(row, Kind.done))
        assert isinstance(refused, StoreReplaced)
        assert str(path) in str(refused)
        assert await alone(store, extend(row, Kind.done)) is None
        with pytest.raises(StoreReplaced):
            await store.create(new_run(), owner=ALICE)
        with pytest.raises(StoreReplaced):
            await store.run(row.id)
        assert store.trouble is not None
        await store.close()
        assert left == {file: file.read_bytes() for file in left}

    asyncio.run(main("deleted", replace=False))
    asyncio.run(main("replaced", replace=True))


def test_a_deleted_log_is_noticed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            row = await store.create(new_run(), owner=ALICE)
            await asyncio.sleep(0.11)
            (tmp_path / "runs.db-wal").unlink()
            (refused,) = await append(store, extend(row, Kind.done))
            assert isinstance(refused, StoreReplaced)

    asyncio.run(main())


def test_reading_works_on_what_a_killed_process_left(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    script = """
import asyncio, os, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import new_run

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print(await store.create(new_run("r_left"), owner=None))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr

    async def main() -> None:
        for read_only in (True, False, True):
            async with opened(lambda: SqliteStore(path), read_only=read_only) as store:
                assert await store.run(new_run("r_left").row.id) is not None

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_directory_that_cannot_be_written_can_be_read_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    path.chmod(0o644)
    (tmp_path / "runs.db-workers").chmod(0o755)
    script = """
import asyncio, concurrent.futures.thread, os, sys, urllib.parse
from holdfast.errors import StoreError
from holdfast.model import RunFilter
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import opened

async def main():
    async with opened(lambda: SqliteStore(sys.argv[2])):
        pass  # everything is imported now: nobody may not read our libraries
    os.setgid(65534); os.setuid(65534)
    async with opened(lambda: SqliteStore(sys.argv[1]), read_only=True) as store:
        print(len(await store.runs(RunFilter())))
    try:
        async with opened(lambda: SqliteStore(sys.argv[1])):
            pass
    except StoreError as error:
        print(error)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(path), str(tmp_path / "warm" / "up.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed, message = done.stdout.splitlines()
    assert listed == "0"
    assert "runs.db" in message
    assert "mode" in message


def test_our_code_never_opens_the_database_behind_sqlites_back(tmp_path: Path) -> None:
    """Closing any descriptor of the file drops all locks that the process holds on it."""
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, new_worker, opened

watching, seen = False, []
def hook(event, arguments):
    if watching and event in ("open", "os.open") and str(arguments[0]).startswith(sys.argv[1]):
        if not str(arguments[0]).startswith(sys.argv[1] + "-workers"):
            seen.append(arguments)
sys.addaudithook(hook)

async def main():
    global watching
    make = lambda: SqliteStore(sys.argv[1])
    async with opened(make) as store:
        watching = True
        row = await store.create(new_run(), owner=ALICE)
        await append(store, extend(row, "done"))
        await store.add_worker(new_worker(ALICE, lease_until_ms=1))
        await store.dead_workers()
        await store.check()
        await store.statistics()
        async with opened(make), opened(make, read_only=True) as other:
            await other.load(row.id)
    print(seen)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "runs.db")], capture_output=True, text=True, check=True
    )
    # What is allowed is trying to create the file (it exists, so nothing is opened); the log has no locks.
    allowed = done.stdout.replace(" ", "")
    for line in allowed.strip("[]\n").split("),("):
        assert not line or "-wal" in line or str(os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC) in line, allowed


def test_a_damaged_page_is_reported_and_the_others_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def fill() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            for number in range(3):
                row = await store.create(new_run(f"r_{number}"), owner=ALICE)
                assert await append(store, extend(row, *[Kind.done] * 400)) == [Applied.committed]

    asyncio.run(fill())
    connection = apsw.Connection(str(path))
    pages = [
        int(page)
        for (page,) in connection.execute("SELECT pageno FROM dbstat WHERE name = 'records' AND pagetype = 'leaf'")
    ]
    connection.close()
    content = bytearray(path.read_bytes())
    middle = (pages[len(pages) // 2] - 1) * 4096
    content[middle : middle + 200] = os.urandom(200)
    path.write_bytes(content)

    async def look() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.check() != []
            outcomes: list[object] = []
            for number in range(3):
                try:
                    loaded = await store.load(new_run(f"r_{number}").row.id)
                    outcomes.append(loaded is not None and len(loaded[1]) == 401)
                except Exception as error:
                    outcomes.append(type(error).__name__)
            assert sorted(map(str, outcomes)) in (["CorruptJournal", "True", "True"], ["False", "True", "True"])

    asyncio.run(look())


def test_a_damaged_first_page_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_once(path)
    content = bytearray(path.read_bytes())
    content[100:300] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"runs\.db"):
        open_once(path)


def test_network_file_systems_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "1 1 0:1 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:2 / {tmp_path} rw,relatime shared:1 - nfs4 server:/x rw\n"
        f"3 2 0:3 / {tmp_path}/local\\040disk rw - ext4 /dev/sdb rw\n"
    )
    monkeypatch.setattr(system, "_text", lambda _: mounts)
    assert sqlite_files.network_file_system(str(tmp_path / "runs.db")) == "nfs4"
    assert sqlite_files.network_file_system(str(tmp_path / "local disk" / "runs.db")) is None
    assert sqlite_files.network_file_system("/elsewhere/runs.db") is None


def test_schema_sql_is_what_the_migrations_add_up_to() -> None:
    stored = Path(migrate.__file__).parent / "sql" / "sqlite" / "schema.sql"
    assert stored.read_text("utf-8") == migrate.schema(), "run: python -m holdfast.store.migrate > …/schema.sql"


def test_a_killed_migration_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
asyncio.run(SqliteStore(sys.argv[1]).open())
"""
    killed = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=os.environ | {"HOLDFAST_FAULT": "migrate.before_commit:kill"},
        check=False,
    )
    assert killed.returncode == -9
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    connection.close()
    asyncio.run(conformance.a_created_run_is_stored_with_its_records(lambda: SqliteStore(path)))


def test_a_small_record_takes_less_than_300_bytes(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(20)]
            for _ in range(50):  # interleaved, as live runs are
                steps = [extend(row, Kind.started, Kind.done) for row in rows]
                assert set(await append(store, *steps)) == {Applied.committed}
                rows = [step.row for step in steps]

    asyncio.run(main())
    per_record = path.stat().st_size / (20 * 101)
    print(f"{per_record:.0f} bytes per record")
    assert per_record < 300


def test_listings_use_an_index() -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrate.migrations("sqlite"):
        connection.execute(migration.sql)
    queries = load_queries("sqlite")
    for name in queries:
        if name.startswith(("runs_", "questions_", "definitions_", "owned_", "ready_", "line_", "keys_")) or name in (
            "run",
            "existing",
            "records",
            "records_of_runs",
            "mail",
            "mail_of_runs",
            "mail_counts",
            "due_in_line",
            "next_wake",
            "ownerless",
            "ended",
            "ended_agents",
            "tombstones",
        ):
            bindings = 9 if ":" not in queries[name] else None
            sql = "EXPLAIN QUERY PLAN " + queries[name]
            if bindings is None:
                plan = [str(row[3]) for row in connection.execute(sql, apsw_bindings(queries[name]))]
            else:
                plan = [str(row[3]) for row in connection.execute(sql, (None,) * queries[name].count("?"))]
            tables = (" runs", " records", " mailbox", " questions", " definitions")
            touching = [step for step in plan if any(table in step for table in tables)]
            assert touching, (name, plan)
            assert all("USING" in step for step in touching), (name, plan)


def test_writes_find_their_runs_by_id() -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrate.migrations("sqlite"):
        connection.execute(migration.sql)
    queries = load_queries("sqlite")
    found = 0
    for name in queries:
        for count in (1, 64):
            sql = queries.rows(name, count)
            if "UPDATE runs" not in sql and name not in ("appendable", "claimable", "claimed", "free_runs", "entombed"):
                continue
            most = max(map(int, re.findall(r"\?(\d+)", sql)), default=sql.count("?"))
            bindings = apsw_bindings(sql) if ":" in sql else (None,) * most
            plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + sql, bindings)]
            assert "SEARCH runs USING PRIMARY KEY (id=?)" in plan, (name, count, plan)
            assert not any("SCAN runs" in step for step in plan), (name, count, plan)
            found += 1
    assert found > 10


def test_what_is_removed_is_found_by_its_run() -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrate.migrations("sqlite"):
        connection.execute(migration.sql)
    queries = load_queries("sqlite")
    for name, table in (
        ("empty_records", "records"),
        ("empty_blobs", "blobs"),
        ("empty_questions", "questions"),
        ("empty_mail", "mailbox"),
        ("blank_mail", "mailbox"),
        ("not_empty", "records"),
        ("forget_mail", "mailbox"),
        ("forget_runs", "runs"),
    ):
        sql = queries[name]
        plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + sql, apsw_bindings(sql))]
        assert any(step.startswith(f"SEARCH {table} USING") for step in plan), (name, plan)
        assert not any(step.startswith(f"SCAN {table}") for step in plan), (name, plan)


def apsw_bindings(sql: str) -> dict[str, None]:
    words = sql.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return {word[1:]: None for word in words if word.startswith(":")}
