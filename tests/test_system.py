"""Systems that have less than Linux, or have it differently: each branch by patching, and agents on a bare one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import platform
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.base import clock, system
from holdfast.cli.heartbeat import Beat
from holdfast.errors import StoreError, UsageError
from holdfast.model import Proof, Worker
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import files as sqlite_files
from holdfast.store.sqlite import guard as sqlite_guard
from holdfast.store.sqlite import locks
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.watch import FileWatch
from holdfast.testing.samples import ALICE, new_worker, opened
from tests.eventually import eventually_now

NOWHERE = Path("/nowhere/at/all")
SRC = Path(__file__).parent.parent / "src"


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were macOS, which has no /proc either."""
    monkeypatch.setattr(system, "SYSTEM", "darwin")
    for name in ("_BOOT", "_MOUNTS", "_LOCKS"):
        monkeypatch.setattr(system, name, NOWHERE)


class Library:
    """A C library with these functions and no others."""

    def __init__(self, **functions: Any) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(name) from None


def have(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: Library(**functions))


# clocks


def test_leases_are_of_a_clock_that_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 7_000_000, time.CLOCK_MONOTONIC_RAW: 5_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 3_000_000)
    assert clock.boottime_ms() == 7
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert clock.boottime_ms() == 3, "a system that nothing is known of"
    monkeypatch.setattr(system, "SYSTEM", "darwin")
    assert clock.boottime_ms() == 5


def test_a_boot_has_an_id_or_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(system.boot_id()) == 36
    monkeypatch.setattr(system, "_BOOT", NOWHERE)
    assert system.boot_id() == ""
    asked = []

    def sysctl(name: bytes, text: Any, size: Any, new: None, length: ctypes.c_size_t) -> int:
        asked.append((name, new, length.value))
        text.value = b"1B4B2E56-26E2-4E4C-A1C0-6B0A4C0C5E11"
        return 0

    monkeypatch.setattr(system, "SYSTEM", "darwin")
    have(monkeypatch, sysctlbyname=sysctl)
    assert system.boot_id() == "1B4B2E56-26E2-4E4C-A1C0-6B0A4C0C5E11"
    assert asked == [(b"kern.bootsessionuuid", None, 0)]
    have(monkeypatch, sysctlbyname=lambda *_: -1)
    assert system.boot_id() == ""
    have(monkeypatch)
    assert system.boot_id() == ""


def test_a_boot_that_is_not_known_proves_no_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(noted: str, own: str) -> dict[Any, str]:
        monkeypatch.setattr(clock, "boot_id", lambda: own)
        path = tmp_path / f"{noted}-{own}.db"
        async with opened(lambda: SqliteStore(path)) as one, opened(lambda: SqliteStore(path)) as two:
            worker = new_worker(ALICE, lease_until_ms=one.lease_clock_ms() + 60_000)
            await one.add_worker(dataclasses.replace(worker, boot_id=noted))
            return dict(await two.dead_workers())

    assert asyncio.run(main("before", "now")) == {ALICE: "boot"}
    assert asyncio.run(main("now", "now")) == {}
    assert asyncio.run(main("", "now")) == {}
    assert asyncio.run(main("before", "")) == {}
    assert asyncio.run(main("", "")) == {}


@pytest.mark.parametrize(("boot", "proof"), [("this", "lock"), ("", "session")])
def test_a_process_is_looked_for_only_if_it_is_known_to_be_of_this_machine(
    boot: str, proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With names of hosts alone, two machines that are both called localhost would be one."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    worker = dataclasses.replace(new_worker(ALICE, lease_until_ms=0), pid=gone.pid, host=platform.node(), boot_id=boot)

    async def workers() -> list[Worker]:
        return [worker]

    monkeypatch.setattr(clock, "boot_id", lambda: boot)
    store = PostgresStore.__new__(PostgresStore)
    monkeypatch.setattr(store, "workers", workers)
    dead = {ALICE: Proof.session}
    asyncio.run(store._look_for_processes(dead))
    assert dead == {ALICE: proof}


@pytest.mark.parametrize(("noted", "is_known"), [("this", True), ("another", False), ("", True)])
def test_a_sign_of_life_of_another_boot_has_no_age(noted: str, is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "this")
    assert (Beat(1, noted, clock.monotonic_us()).age_s() is not None) == is_known
    monkeypatch.setattr(clock, "boot_id", lambda: "")
    assert Beat(1, "", clock.monotonic_us()).age_s() is not None
    assert Beat(1, "", clock.monotonic_us() + 60_000_000).age_s() is None, "the clock has begun anew since"


# disks


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How descriptors were synced, on a system with F_FULLFSYNC."""
    calls: list[str] = []
    plain = fcntl.fcntl

    def control(descriptor: int, command: int, *rest: Any) -> Any:
        if command != 51:
            return plain(descriptor, command, *rest)
        calls.append(f"whole {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    return calls


def test_what_is_written_reaches_the_disk_and_not_its_memory(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "new" / "runs.db")) as store:
            await store.backup(str(tmp_path / "copy.db"))

    asyncio.run(main())
    assert synced == [f"whole {tmp_path.name}", "whole new", "whole copy.db.unfinished", f"whole {tmp_path.name}"]
    synced.clear()

    def refused(descriptor: int, command: int) -> None:
        raise OSError(errno.ENOTSUP, "not on this file system")

    monkeypatch.setattr(fcntl, "fcntl", refused)
    system.sync(0)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC")
    system.sync(0)
    assert synced == ["fsync", "fsync"]


class Noting(apsw.VFS):
    """A disk that notes how it is told to sync."""

    def __init__(self) -> None:
        self.flags: set[int] = set()
        self.name = "noting"
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return NotingFile(self, name, flags)


class NotingFile(apsw.VFSFile):
    def __init__(self, vfs: Noting, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self._vfs.flags.add(flags & 0xF)
        super().xSync(flags)


def test_each_commit_and_checkpoint_asks_for_a_full_sync(tmp_path: Path) -> None:
    """SQLite does it with F_FULLFSYNC where there is one."""
    disk = Noting()

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            disk.flags.clear()
            await store.add_worker(new_worker(ALICE, lease_until_ms=0))
            assert disk.flags == {apsw.SQLITE_SYNC_FULL}
            await store.remove_worker(ALICE)

    try:
        asyncio.run(main())
        assert disk.flags == {apsw.SQLITE_SYNC_FULL}, "when it was closed, too"
    finally:
        disk.unregister()


def of_type(name: bytes) -> Any:
    """`statfs` of macOS, for a file system of this name."""

    def statfs(path: bytes, found: Any) -> int:
        if not os.path.exists(path):
            return -1
        ctypes.memset(found, 0xFF, 2168)
        ctypes.memmove(ctypes.addressof(found) + 72, name.ljust(16, b"\0"), 16)
        return 0

    return statfs


@pytest.mark.usefixtures("mac")
def test_macos_names_its_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(tmp_path / "not" / "yet" / "runs.db")
    for symbol in ("statfs", "statfs$INODE64"):
        have(monkeypatch, **{"statfs": of_type(b"wrong"), symbol: of_type(b"apfs")})
        assert system.file_system_of(store) == "apfs"
        assert sqlite_files.network_file_system(store) is None
    for name in ("smbfs", "nfs", "afpfs", "webdav", "macfuse"):
        have(monkeypatch, statfs=of_type(name.encode()))
        assert sqlite_files.network_file_system(store) == name
    have(monkeypatch, statfs=lambda *_: -1)
    assert system.file_system_of(store) is None
    have(monkeypatch)
    assert system.file_system_of(store) is None


def test_where_mounts_are_not_told_no_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_MOUNTS", NOWHERE)
    assert system.file_system_of(str(tmp_path)) is None


def test_without_inotify_a_file_is_looked_at_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And `statfs`, which says other things elsewhere, is not even called."""
    file = tmp_path / "log"
    file.write_bytes(b"one")
    monkeypatch.setattr(system, "SYSTEM", "darwin")
    have(monkeypatch, statfs=lambda *_: pytest.fail("called"))
    watch = FileWatch(str(file))
    try:
        assert not watch.is_told
        assert not watch.has_news()
        file.rename(tmp_path / "other")
        file.write_bytes(b"two")
        assert watch.has_news()
    finally:
        watch.close()


# descriptors and locks


@pytest.mark.parametrize("folders", [("/proc/self/fd",), ("/nowhere", "/dev/fd"), ("/nowhere",)], ids=str)
def test_another_library_that_has_the_file_open_is_found(
    tmp_path: Path, folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        async with opened(lambda: SqliteStore(path)):
            pass

    monkeypatch.setattr(system, "_OPEN", folders)
    asyncio.run(main())
    with path.open("rb") as file, pytest.raises(UsageError) as refused:
        sqlite_guard.check_alone(str(path))
    assert f"has {path} open already, and not with apsw (descriptor " in str(refused.value)
    assert file.closed
    sqlite_guard.check_alone(str(path))


@contextlib.contextmanager
def locking(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int, bytes]]]:
    calls: list[tuple[int, int, bytes]] = []
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", lambda *given: calls.append(given))
        yield calls


def test_a_lock_of_an_open_file_is_laid_out_as_the_system_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> list[tuple[int, int, bytes]]:
        with locking(monkeypatch) as calls:
            system.lock_open_file(7, fcntl.F_RDLCK, 128, 1)
        return calls

    command = fcntl.F_OFD_SETLK
    (linux,) = ask()
    assert linux[:2] == (7, command)
    assert struct.unpack("hhqqi4x", linux[2]) == (fcntl.F_RDLCK, os.SEEK_SET, 128, 1, 0)
    monkeypatch.setattr(system, "SYSTEM", "darwin")
    (mac,) = ask()
    assert struct.unpack("qqihh", mac[2]) == (128, 1, 0, fcntl.F_RDLCK, os.SEEK_SET)
    monkeypatch.setattr(system, "SYSTEM", "sunos5")
    assert ask() == [], "nothing is known of its layout"
    monkeypatch.setattr(system, "SYSTEM", "darwin")
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    assert ask() == []


def test_where_locks_are_not_listed_nobody_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_LOCKS", NOWHERE)
    assert system.locks_of(os.getpid()) == []


def test_a_file_system_without_locks_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", refused)
    of_workers = locks.WorkerLocks(str(tmp_path / "workers"))
    expected = (
        f"Files in {tmp_path}/workers cannot be locked (Operation not supported), so it could not be told which "
        "processes live. Use a path on a disk of this machine."
    )
    with pytest.raises(StoreError) as error:
        of_workers.take(ALICE)
    assert str(error.value) == expected
    with pytest.raises(StoreError) as error, of_workers.opening(1):
        pass
    assert str(error.value) == expected


# a bare system

WIPED = """
import os
from pathlib import Path
from holdfast.worker import hiding
real = hiding._PROC
hiding._PROC = Path("/nowhere")
assert b"secret" in (real / "environ").read_bytes()
assert hiding.hide_url() == "postgresql://secret/"
assert b"secret" not in (real / "environ").read_bytes()
assert "HOLDFAST_URL" not in os.environ
"""


def test_the_url_is_wiped_where_the_kernel_shows_no_file_of_it() -> None:
    environment = os.environ | {"HOLDFAST_URL": "postgresql://secret/", "PYTHONPATH": str(SRC)}
    subprocess.run([sys.executable, "-c", WIPED], env=environment, check=True)


BARE = """
import asyncio
import os
import sys
from pathlib import Path

import holdfast as hf
from holdfast.base import clock, system
from holdfast.store.sqlite.ear import Ear

LOG = Path("log.txt")


def note(word: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{word}\\n")


@hf.step
async def think(n: int) -> int:
    note(f"think {n}")
    return n


@hf.effect(settle=0)
async def act() -> str:
    note("act")
    if "stay" in sys.argv:
        await asyncio.sleep(600)
    return "acted"


@act.verify
async def acted() -> hf.Verdict[str]:
    return hf.landed("acted") if "act" in LOG.read_text().split() else hf.not_landed()


@hf.agent
async def agent() -> str:
    for n in range(3):
        await think(n)
    answer = await act()
    return f"{answer}: {await hf.receive(('word', str))}"


async def work() -> None:
    async with hf.connect("runs.db", agents=[agent]) as app:
        await app.work()


async def main() -> None:
    async with hf.connect("runs.db", agents=[agent]) as app:
        run = await app.start(agent(), id="bare")
        await run.send("word", "well", dedup="1")
        print(await run.result())


if __name__ == "__main__":
    assert clock.boot_id() == "" and not Path("/proc").exists() and not hasattr(system.fcntl, "F_OFD_SETLK")
    asyncio.run(work() if "work" in sys.argv else main())
"""


def workers(folder: Path) -> list[hf.WorkerInfo]:
    async def look() -> list[hf.WorkerInfo]:
        async with hf.connect(str(folder / "runs.db")) as app:
            return list(await app.workers())

    return asyncio.run(look())


def status(folder: Path) -> hf.Status:
    async def look() -> hf.Status:
        async with hf.connect(str(folder / "runs.db")) as app:
            return await app.get("bare").status()

    return asyncio.run(look())


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of processes on a system that has nothing but POSIX."""
    (tmp_path / "agent.py").write_text(BARE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    return kept | {"PYTHONPATH": f"{Path(__file__).parent / 'bare'}:{SRC}", "PYTHONDONTWRITEBYTECODE": "1"}


def test_an_agent_survives_on_a_bare_system(tmp_path: Path, bare: dict[str, str]) -> None:
    command = [sys.executable, "agent.py"]
    log = tmp_path / "log.txt"
    with subprocess.Popen([*command, "stay"], cwd=tmp_path, env=bare) as first:
        try:
            eventually_now(lambda: log.exists() and "act" in log.read_text().split())
        finally:
            first.kill()
    second = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert (second.stdout, second.stderr, second.returncode) == ("acted: well\n", "", 0)
    assert log.read_text().splitlines() == ["think 0", "think 1", "think 2", "act"]


def test_a_worker_that_slept_takes_no_living_one_for_dead(tmp_path: Path, bare: dict[str, str]) -> None:
    """What could be computed from clocks is another boot for whoever starts after a laptop was shut for a while."""
    log, said = tmp_path / "log.txt", tmp_path / "said.txt"
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
            out = stack.enter_context(said.open("ab"))
            command = [sys.executable, "agent.py", *arguments]
            process = subprocess.Popen(command, cwd=tmp_path, env=bare | environment, stdout=out, stderr=out)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        first = start("stay")
        eventually_now(lambda: log.exists() and "act" in log.read_text().split())
        start("work", BARE_ASLEEP_S="1800")
        start("work", BARE_ASLEEP_S="1801")
        eventually_now(lambda: len(workers(tmp_path)) == 3)
        eventually_now(lambda: [each.alive for each in workers(tmp_path)] == [True] * 3)
        first.kill()
        first.wait()
        eventually_now(lambda: status(tmp_path) is hf.Status.done)
    assert log.read_text().splitlines() == ["think 0", "think 1", "think 2", "act"]
    assert said.read_text() == ""
