"""A second SQLite library in the process of a store: refused where it can be seen, harmless where it cannot."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.automation.triggers.contents import Contents
from holdfast.automation.triggers.scanning import Folder, Pattern, stat_of
from holdfast.errors import UsageError
from holdfast.model import RunFilter
from holdfast.store.sqlite import guard as sqlite_guard
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import new_run, opened


def escaped(path: Path) -> str:
    return "".join(f"%{byte:02X}" if chr(byte) == "r" else chr(byte) for byte in os.fsencode(path))


def relative(path: Path) -> str:
    return os.path.relpath(path)


def linked(path: Path) -> Path:
    link = path.with_name("symbolic link")
    link.symlink_to(path)
    return link


def hard_linked(path: Path) -> Path:
    link = path.with_name("hard link")
    link.hardlink_to(path)
    return link


#: Ways to name the file of a store at `path`, and whether it is a URI.
NAMES: dict[str, tuple[Callable[[Path], Any], bool]] = {
    "text": (str, False),
    "bytes": (os.fsencode, False),
    "path": (lambda path: path, False),
    "relative": (relative, False),
    "uri": (lambda path: f"file:{path}", True),
    "uri with authority": (lambda path: f"file://{path}", True),
    "uri with host": (lambda path: f"file://localhost{path}", True),
    "uri with query": (lambda path: f"file:{path}?mode=ro&cache=private#x", True),
    "relative uri": (lambda path: f"file:{relative(path)}", True),
    "escaped uri": (lambda path: f"file:{escaped(path)}?mode=ro", True),
    "symbolic link": (linked, False),
    "hard link": (hard_linked, False),
    "log": (lambda path: f"{path}-wal", False),
    "index": (lambda path: f"{path}-shm", False),
}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("read_only", [False, True])
def test_sqlite3_is_refused_by_whatever_name_before_it_touches_the_file(
    tmp_path: Path, name: str, *, read_only: bool
) -> None:
    make, is_uri = NAMES[name]
    path = tmp_path / "a runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store, opened(lambda: SqliteStore(path), read_only=read_only):
            await store.create(new_run(), owner=None)
            given = make(path)
            before = files(tmp_path)
            with pytest.raises(UsageError, match="another process") as refused:
                sqlite3.connect(given, uri=is_uri)
            assert str(path) in str(refused.value)
            assert "apsw" in str(refused.value)
            assert files(tmp_path) == before
        if name not in ("log", "index"):
            sqlite3.connect(given, uri=is_uri).close()  # nobody has it open any more

    asyncio.run(main())


IMPORTED_LATER = """
import asyncio, sys
from holdfast.errors import UsageError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import opened

async def main():
    async with opened(lambda: SqliteStore(sys.argv[1])):
        assert "_sqlite3" not in sys.modules
        from _sqlite3 import connect
        try:
            connect(sys.argv[1])
        except UsageError:
            print("refused")

asyncio.run(main())
"""


def test_sqlite3_is_refused_if_it_is_imported_after_the_store_was_opened(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORTED_LATER, str(tmp_path / "runs.db")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("refused\n", "")


def test_other_files_can_be_opened_and_other_processes_can_open_the_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await store.create(new_run(), owner=None)
            for other in (":memory:", "", tmp_path / "other.db", str(tmp_path / "file:x.db")):
                sqlite3.connect(other).close()
            look = (
                f"import sqlite3; print(sqlite3.connect({str(path)!r}).execute('SELECT count(*) FROM runs').fetchall())"
            )
            done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
            assert done.stdout == "[(1,)]\n"
            await store.create(new_run(), owner=None)
            await store.check()
            apsw.Connection(str(path)).close()
            await store.create(new_run(), owner=None)

    asyncio.run(main())


def test_a_forked_child_may_open_what_its_parent_has_open(tmp_path: Path) -> None:
    async def main() -> int:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            await store.create(new_run(), owner=None)
            child = os.fork()
            if child == 0:
                try:
                    connection = sqlite3.connect(tmp_path / "runs.db")
                    ((count,),) = connection.execute("SELECT count(*) FROM runs").fetchall()
                    connection.close()
                    os._exit(count)
                except BaseException:
                    os._exit(77)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            await store.create(new_run(), owner=None)
            assert len(await store.runs(RunFilter())) == 2
            return os.waitstatus_to_exitcode(status)

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("way", ["sqlite3", "sqlite3 that has read", "open()"])
def test_a_store_that_something_else_has_open_is_not_opened(tmp_path: Path, way: str, *, read_only: bool) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)):
            pass
        theirs: Any = path.open("rb") if way == "open()" else sqlite3.connect(path)
        if way == "sqlite3 that has read":
            theirs.execute("SELECT count(*) FROM runs").fetchall()
        with pytest.raises(UsageError, match="open already"):
            await SqliteStore(path).open(read_only=read_only)
        theirs.close()
        async with opened(lambda: SqliteStore(path), read_only=read_only):
            pass

    asyncio.run(main())


def test_stores_and_connections_of_apsw_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await store.create(new_run(), owner=None)
        theirs = apsw.Connection(str(path))
        theirs.execute("SELECT count(*) FROM runs").get  # noqa: B018
        for _ in range(3):
            async with opened(lambda: SqliteStore(path)) as one, opened(lambda: SqliteStore(path)) as two:
                await one.create(new_run(), owner=None)
                await two.create(new_run(), owner=None)
            # Closing the store has not dropped their lock: another process leaves the log that they write to.
            subprocess.run([sys.executable, "-c", OUTSIDER, str(path)], check=True)
            assert Path(f"{path}-wal").exists()
        theirs.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
        theirs.close()
        assert apsw.Connection(str(path)).execute("SELECT a FROM theirs").get == 1
        descriptors = os.listdir("/proc/self/fd")
        async with opened(lambda: SqliteStore(path)):
            pass
        assert len(os.listdir("/proc/self/fd")) <= len(descriptors), "what was kept for their sake is closed by now"

    asyncio.run(main())


OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM runs").fetchall()
connection.close()
"""

#: A process that starts runs and says so, while another library comes and goes; it is killed at its end.
_BESIDE = """
import apsw, asyncio, os, sqlite3, sys, threading
from holdfast.base import system
from holdfast.store.sqlite import guard as sqlite_guard
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import new_run, opened

path, way, *rest = sys.argv[1:]
if rest:
    system._LOCK_LAYOUT.clear()

def unseen(do):
    sqlite_guard._process._open.clear()  # the hook sees no store
    do()
    sqlite_guard._process._open[path] += 1

def read():
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM runs").fetchall()
    connection.close()

def write():
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE IF NOT EXISTS theirs (a)")
    connection.execute("INSERT INTO theirs VALUES (1)")
    connection.commit()
    connection.close()

def attach():
    connection = sqlite3.connect(":memory:")
    connection.execute("ATTACH DATABASE ? AS other", (path,))
    connection.execute("SELECT count(*) FROM other.runs").fetchall()
    connection.close()

def plain():
    for suffix in ("", "-wal", "-shm"):
        open(path + suffix, "rb").close()

def in_thread(do):
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()

def in_process():
    import subprocess
    subprocess.run([sys.executable, "-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
        "c.execute('SELECT count(*) FROM runs').fetchall(); c.close()", path], check=True)

async def main():
    if way == "before":
        async with opened(lambda: SqliteStore(path)): pass
        ours, theirs = apsw.Connection(path), sqlite3.connect(path)  # with apsw's there, nobody can tell whose is whose
        for connection in (theirs, ours):
            connection.execute("SELECT count(*) FROM runs").fetchall()
    store = SqliteStore(path)
    await store.open()
    for number in range(12):
        await store.create(new_run(f"r_{number}"), owner=None)
        print(f"r_{number}", flush=True)
        if way == "read": unseen(read)
        elif way == "write": unseen(write)
        elif way == "attach": attach()
        elif way == "plain": plain()
        elif way == "before" and number == 5: theirs.close()
        elif way == "thread": in_thread(lambda: unseen(read))
        elif way == "plain, and another process": plain(); in_process()
        elif way == "read, and another process": unseen(read); in_process()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


WAYS = [
    "read",
    "write",
    "attach",
    "plain",
    "thread",
    "before",
    "plain, and another process",
    "read, and another process",
]


def beside(path: Path, *given: str) -> tuple[int, list[str], str]:
    """How a process ended that another library came and went in, what it acknowledged, what it said."""
    command = [sys.executable, "-c", _BESIDE, str(path), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, sorted(done.stdout.split()), done.stderr


def runs(path: Path) -> list[str]:
    async def main() -> list[str]:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.check() == []
            return sorted(row.id for row in await store.runs(RunFilter(limit=100)))

    return asyncio.run(main())


@pytest.mark.parametrize("way", WAYS)
def test_what_was_acknowledged_is_there_although_another_library_came_and_went(tmp_path: Path, way: str) -> None:
    path = tmp_path / "runs.db"
    code, acknowledged, errors = beside(path, way)
    assert code == -9, errors
    assert len(acknowledged) == 12
    assert runs(path) == acknowledged


@pytest.mark.parametrize("way", ["read", "write", "attach", "thread"])
def test_where_there_are_no_locks_of_that_kind_nothing_is_acknowledged_that_is_lost(tmp_path: Path, way: str) -> None:
    path = tmp_path / "runs.db"
    _, acknowledged, errors = beside(path, way, "without locks")
    assert "StoreReplaced" in errors
    assert set(runs(path)) >= set(acknowledged)


def test_the_log_is_removed_by_the_last_process_that_closes_in_good_order(tmp_path: Path) -> None:
    """Our own lock must not keep SQLite from it."""
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)) as one:
            async with opened(lambda: SqliteStore(path)) as two:
                await two.create(new_run(), owner=None)
            assert Path(f"{path}-wal").exists()
            await one.create(new_run(), owner=None)
        assert {file.name for file in tmp_path.iterdir()} == {"runs.db", "runs.db-workers"}

    asyncio.run(main())


def test_the_hook_can_be_asked_from_any_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")):
            errors: list[BaseException] = []

            def connect() -> None:
                try:
                    sqlite3.connect(tmp_path / "runs.db")
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=connect) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [type(error) for error in errors] == [UsageError] * 4
        assert sqlite_guard.owner_of(str(tmp_path / "runs.db")) is None

    asyncio.run(main())


def test_a_file_trigger_does_not_read_the_files_of_the_store(tmp_path: Path) -> None:
    """Closing them again would drop the store's locks."""
    (tmp_path / "letter.txt").write_text("hello")

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            await store.create(new_run(), owner=None)
            status = (tmp_path / "runs.db").stat()
            assert set(Pattern(str(tmp_path / "*")).scan().found) == {str(tmp_path / "letter.txt")}
            contents = Contents(Folder(str(tmp_path), links=False))
            read = contents.read([(str(tmp_path / "runs.db"), stat_of(status))], lambda: False)
            assert read == {str(tmp_path / "runs.db"): None}

    asyncio.run(main())
