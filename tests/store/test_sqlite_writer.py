"""The writer when things go wrong: unknown outcomes, full disks, forks, other processes, other threads."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreError, StoreFull
from holdfast.model import Applied, Kind, RunFilter, RunRow, Sent
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import (
    ALICE,
    alone,
    append,
    extend,
    mail_for,
    new_run,
    new_worker,
    opened,
    taken_over,
    woken,
)
from tests.eventually import eventually
from tests.scripts import python
from tests.store.statements import statements


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVfs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self._vfs.before_sync()
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.before_write()
        super().xWrite(data, offset)


class FaultyVfs(apsw.VFS):
    """A disk whose syncs and writes fail when told to."""

    def __init__(self) -> None:
        self.name = f"faulty-{id(self)}"
        self.failing_syncs = 0
        self.full = False
        super().__init__(self.name, "")

    def before_sync(self) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            raise OSError(5, "Input/output error")

    def before_write(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self, name, flags)


@pytest.fixture
def disk() -> Iterator[FaultyVfs]:
    vfs = FaultyVfs()
    yield vfs
    vfs.unregister()


def run_script(
    script: str, *arguments: object, fault: str = "", prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"HOLDFAST_FAULT": fault}
    if not prefix:
        return python("-c", script, *map(str, arguments), env=env)
    return subprocess.run(
        [*prefix, sys.executable, "-c", script, *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# unknown outcomes


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_after_a_failed_sync_every_write_is_decided_once(tmp_path: Path, disk: FaultyVfs, failures: int) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(4)]
            used = store._database.writer.connection  # type: ignore[attr-defined]
            steps = [extend(row, Kind.done, Kind.done) for row in rows[:3]]
            claimed = taken_over(rows[3])
            disk.failing_syncs = failures
            results, claim, number, created = await asyncio.gather(
                append(store, *steps),
                store.claim(claimed, owner=ALICE, expected_epoch=1, expected_owner=ALICE),
                store.send(mail_for(rows[0].id), wake=woken),
                store.create(new_run("r_new"), owner=ALICE),
            )
            assert disk.failing_syncs == 0
            assert results == [Applied.committed] * 3
            assert claim
            assert number == Sent(1, is_new=True)
            assert store._database.writer.connection is not used, "a failed sync must not be repeated"  # type: ignore[attr-defined]
            for step in steps:
                assert len(await store.records(step.row.id)) == 3
            assert len(await store.mail(rows[0].id, after=0)) == 1
            assert len(await store.records(created.id)) == 1
            assert store.trouble is None
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            assert [(await store.run(step.row.id)) for step in steps][1:] == [step.row for step in steps[1:]]

    asyncio.run(main())


def test_a_disk_that_keeps_failing_is_reported(tmp_path: Path, disk: FaultyVfs) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            row = await store.create(new_run(), owner=ALICE)
            disk.failing_syncs = 10_000
            (failed,) = await append(store, extend(row, Kind.done))
            assert isinstance(failed, StoreError)
            assert "runs.db" in str(failed)
            assert store.trouble is not None
            disk.failing_syncs = 0
            assert await append(store, extend(row, Kind.done)) == [Applied.committed]
            assert len(await store.records(row.id)) == 2
            assert store.trouble is None

    asyncio.run(main())


def test_a_failed_inline_commit_is_declined_and_decided_by_the_writer(tmp_path: Path, disk: FaultyVfs) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            row = await store.create(new_run(), owner=ALICE)
            step = extend(row, Kind.done)
            disk.failing_syncs = 1
            assert await alone(store, step) is None
            assert await alone(store, step) is None, "the connection is suspect"
            assert await append(store, step) == [Applied.committed]
            assert await store.run(row.id) == step.row
            assert len(await store.records(row.id)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("point", ["append.before_commit", "append.after_commit"])
def test_an_error_around_a_commit_is_no_reason_to_lose_or_repeat(tmp_path: Path, point: str) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, opened

async def main():
    async with opened(lambda: SqliteStore(sys.argv[1])) as store:
        row = await store.create(new_run(), owner=ALICE)
        for _ in range(5):
            step = extend(row, "done", "done")
            applied = await alone(store, step) or (await append(store, step))[0]
            assert applied == "committed", applied
            row = step.row
        assert await store.run(row.id) == row
        assert len(await store.records(row.id)) == 11

asyncio.run(main())
"""
    for count in (1, 3, 5):
        done = run_script(script, tmp_path / f"{count}.db", fault=f"{point}:raise@{count}")
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_real_sync_error_is_survived(tmp_path: Path) -> None:
    script = """
import asyncio, json, sys
from holdfast.errors import StoreError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, opened

async def main():
    acknowledged = {}
    try:
        async with opened(lambda: SqliteStore(sys.argv[1])) as store:
            row = await store.create(new_run(), owner=ALICE)
            for _ in range(6):
                step = extend(row, "done")
                acknowledged[row.id] = row.head_seq
                assert (await append(store, step))[0] == "committed"
                row = step.row
            acknowledged[row.id] = row.head_seq
    except StoreError as error:
        print(error, file=sys.stderr)
    print(json.dumps(acknowledged))

asyncio.run(main())
"""
    syncs = "fdatasync,fsync"
    for when in (1, 4, 8, 9, 10, 12, 14):
        path = tmp_path / f"{when}.db"
        trace = (
            "strace",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            f"trace={syncs}",
            "-e",
            f"inject={syncs}:error=EIO:when={when}",
        )
        done = run_script(script, path, prefix=trace)
        if done.returncode and "ptrace" in done.stderr:
            pytest.skip(f"strace does not work here: {done.stderr}")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        stored = asyncio.run(heads(path))
        for run_id, seq in json.loads(done.stdout).items():
            assert stored[run_id] >= seq, when


async def heads(path: Path) -> dict[str, int]:
    async with opened(lambda: SqliteStore(path)) as store:
        found = {}
        for row in await store.runs(RunFilter(limit=1000)):
            loaded = await store.load(row.id)
            assert loaded is not None
            assert [record.seq for record in loaded[1]] == list(range(1, row.head_seq + 1))
            found[str(row.id)] = row.head_seq
        return found


# a full disk


def test_appends_wait_for_space_and_reads_go_on(tmp_path: Path, disk: FaultyVfs) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            row = await store.create(new_run(), owner=ALICE)
            disk.full = True
            step = extend(row, Kind.done)
            assert await alone(store, step) is None
            waiting = asyncio.ensure_future(append(store, step))
            with pytest.raises(StoreFull, match="No space"):
                await store.create(new_run(), owner=ALICE)
            assert "No space" in str(store.trouble)
            assert await store.run(row.id) == row
            assert not waiting.done()
            disk.full = False
            assert await waiting == [Applied.committed]
            assert store.trouble is None
            assert await store.run(row.id) == step.row

    asyncio.run(main())


def test_what_comes_while_appends_wait_for_space_does_not_wait_behind_them(tmp_path: Path, disk: FaultyVfs) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", vfs=disk.name)) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(2)]
            disk.full = True
            first, second = (extend(row, Kind.done) for row in rows)
            waiting = [asyncio.ensure_future(append(store, first))]
            await eventually(lambda: store.trouble is not None)
            waiting.append(asyncio.ensure_future(append(store, second)))
            for _ in range(2):
                with pytest.raises(StoreFull, match="No space"):
                    await asyncio.wait_for(store.create(new_run(), owner=ALICE), 60)
            assert not any(each.done() for each in waiting)
            disk.full = False
            assert await asyncio.gather(*waiting) == [[Applied.committed]] * 2
            await store.create(new_run(), owner=ALICE)

    asyncio.run(main())


def test_closing_with_a_full_disk_does_not_hang(tmp_path: Path, disk: FaultyVfs) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "runs.db", vfs=disk.name)
        await store.open()
        row = await store.create(new_run(), owner=ALICE)
        disk.full = True
        waiting = asyncio.ensure_future(append(store, extend(row, Kind.done)))
        await asyncio.sleep(0)
        await store.close()
        assert isinstance((await waiting)[0], StoreFull)

    asyncio.run(main())


def test_a_disk_that_is_really_full_keeps_everything_acknowledged(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        asyncio.run(_fill(tmp_path))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


async def _fill(directory: Path) -> None:
    filler = directory / "filler"
    async with opened(lambda: SqliteStore(directory / "runs.db")) as store:
        filler.write_bytes(bytes(350_000))
        row = await store.create(new_run(), owner=ALICE)
        waiting: asyncio.Future[list[Applied | BaseException]] | None = None
        for _ in range(200):
            step = extend(row, Kind.done, payload=os.urandom(3000).hex())
            waiting = asyncio.ensure_future(append(store, step))
            while store.trouble is None and not (await asyncio.wait({waiting}, timeout=0.001))[0]:
                pass
            if not waiting.done():
                break
            assert await waiting == [Applied.committed]
            row = step.row
        else:
            raise AssertionError("the disk never got full")
        assert store.trouble is not None
        assert "No space" in store.trouble
        assert await store.run(row.id) == row
        filler.unlink()
        assert await waiting == [Applied.committed]
        assert len(await store.records(row.id)) == step.row.head_seq
        assert await store.check() == []


# processes and threads


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from holdfast.errors import ForkedConnection
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, new_worker, opened

def in_child(store, row):
    for use in (store.run(row.id), store.create(new_run(), owner=None), SqliteStore(sys.argv[1]).open()):
        try:
            asyncio.run(use)
        except ForkedConnection as error:
            print("refused:", error)
    try:
        store.commit_alone(extend(row, "done"), print)
    except ForkedConnection:
        print("refused inline")
    asyncio.run(store.close())
    sys.exit(0)  # a full interpreter shutdown, destructors and exit handlers included

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await store.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
    row = await store.create(new_run(), owner=ALICE)
    return store, row

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
store, row = loop.run_until_complete(main())
child = os.fork()
if child == 0:
    asyncio.set_event_loop(None)
    in_child(store, row)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
step = extend(row, "done")
assert loop.run_until_complete(append(store, step)) == ["committed"]
assert os.path.exists(sys.argv[1] + "-wal")
loop.run_until_complete(store.close())
print("parent fine")
"""
    done = run_script(script, tmp_path / "runs.db")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused:") == 3
    assert "refused inline" in done.stdout
    assert "parent fine" in done.stdout


@pytest.mark.parametrize("way", ["read", "write"])
def test_a_fork_waits_for_the_calls_under_way(tmp_path: Path, way: str) -> None:
    """Whoever is inside of SQLite holds mutexes, which nobody in the child would ever unlock."""
    script = """
import asyncio, os, sys, threading, time
from holdfast.store.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    begun, inside = threading.Event(), []
    def ask(*_):
        inside.append(1)
        begun.set()
        time.sleep(0.3)
        inside.clear()
    asked = asyncio.create_task(getattr(store._database, sys.argv[2])(ask))
    while not begun.is_set():
        await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        sys.exit(len(inside))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    await asked
    await store.close()

asyncio.new_event_loop().run_until_complete(main())
"""
    done = run_script(script, tmp_path / "runs.db", way)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"


def test_a_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    script = """
import asyncio, os, signal, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, new_worker

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await store.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
    child = os.fork()
    if child == 0:
        os.close(1), os.close(2)
        signal.pause()
    print(child, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    done = run_script(script, tmp_path / "runs.db")
    child = int(done.stdout)
    try:

        async def look() -> None:
            async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
                assert await store.dead_workers() == {ALICE: "lock"}

        asyncio.run(look())
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_killed_worker_is_noticed_at_once(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, new_worker

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await store.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "runs.db")], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"

    async def look() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            assert await store.dead_workers() == {}
            worker.send_signal(signal.SIGSTOP)
            assert await store.dead_workers() == {}
            worker.kill()
            worker.wait()
            assert await store.dead_workers() == {ALICE: "lock"}

    try:
        asyncio.run(look())
    finally:
        worker.kill()
        worker.stdout.close()
        worker.wait()


def test_a_missing_lock_file_proves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            now = one.lease_clock_ms()
            await one.add_worker(new_worker(ALICE, lease_until_ms=now + 60_000))
            (tmp_path / "runs.db-workers" / f"{ALICE}.lock").unlink()
            assert await two.dead_workers() == {}
            await one.renew_worker(ALICE, now - 1)
            assert await two.dead_workers() == {ALICE: "lease"}

    asyncio.run(main())


def test_a_worker_of_another_boot_is_dead(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            await one.add_worker(new_worker(ALICE, lease_until_ms=one.lease_clock_ms() + 60_000, boot_id="before"))
            assert await two.dead_workers() == {ALICE: "boot"}

    asyncio.run(main())


def test_eight_processes_write_without_lock_errors(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run, opened

async def main():
    async with opened(lambda: SqliteStore(sys.argv[1])) as store:
        row = await store.create(new_run(), owner=ALICE)
        for _ in range(50):
            step = extend(row, "started", "done")
            applied = await alone(store, step) or (await append(store, step))[0]
            assert applied == "committed", applied
            row = step.row
        assert await store.run(row.id) == row

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "runs.db")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    ended = [(child.communicate(timeout=60)[1], child.returncode) for child in children]
    assert [code for _, code in ended] == [0] * len(children), ended
    assert sorted(asyncio.run(heads(tmp_path / "runs.db")).values()) == [101] * 8


def test_a_lock_held_elsewhere_delays_writes_and_not_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            row = await store.create(new_run(), owner=ALICE)
            other = apsw.Connection(str(tmp_path / "runs.db"))
            other.execute("BEGIN IMMEDIATE")
            step = extend(row, Kind.done)
            with statements(store) as done:
                assert await alone(store, step) is None
            assert done.count("BEGIN IMMEDIATE") <= 1, "on the loop's thread nobody tries again"
            assert isinstance(store, SqliteStore)
            assert store._database.writer is not None
            assert store._database.writer.connection.pragma("busy_timeout") == 0, "nor waits"
            waiting = asyncio.ensure_future(append(store, step))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert await store.run(row.id) == row, "reading needs no lock"
            other.execute("ROLLBACK")
            other.close()
            assert await waiting == [Applied.committed]

    asyncio.run(main())


def test_a_lock_that_is_not_given_back_is_told_of_and_costs_nothing(tmp_path: Path) -> None:
    """A process that is stopped in the middle of a write has it. No worker claims anything meanwhile, or is silent."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            row = await store.create(new_run(), owner=ALICE)
            other = apsw.Connection(str(tmp_path / "runs.db"))
            other.execute("BEGIN IMMEDIATE")
            await store.reach()
            step = extend(row, Kind.done)
            waiting = asyncio.ensure_future(append(store, step))
            await eventually(lambda: store.trouble is not None)
            with pytest.raises(StoreError, match=r"locked by another process .*fuser"):
                await store.reach()
            assert not waiting.done()
            other.execute("ROLLBACK")
            other.close()
            assert await waiting == [Applied.committed]
            await store.reach()

    asyncio.run(main())


def test_a_busy_loop_does_not_starve_the_writer(tmp_path: Path) -> None:
    """The interpreter lock is asked for a few times per batch, not once per row."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(200)]
            stop = threading.Event()
            spinner = threading.Thread(target=spin, args=(stop,))
            spinner.start()
            try:
                steps = [extend(row, Kind.started, Kind.done) for row in rows]
                with statements(store) as done:
                    assert await append(store, *steps) == [Applied.committed] * 200
                assert 0 < len(done) < 100, "600 rows"
                loaded = await store.load(rows[0].id)
                assert loaded is not None
            finally:
                stop.set()
                spinner.join()

    asyncio.run(main())


def spin(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def test_writes_from_another_loop_and_thread_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            await store.add_worker(new_worker(ALICE, lease_until_ms=0))
            renewed = await asyncio.to_thread(lambda: asyncio.run(store.renew_worker(ALICE, 5)))
            assert renewed
            assert (await store.workers())[0].lease_until_ms == 5

    asyncio.run(main())


def test_what_is_queued_is_committed_by_close(tmp_path: Path) -> None:
    async def main() -> RunRow:
        store = SqliteStore(tmp_path / "runs.db")
        await store.open()
        row = await store.create(new_run(), owner=ALICE)
        results: list[object] = []
        for _ in range(30):
            step = extend(row, Kind.done)
            store.submit(step, results.append, urgent=False)
            row = step.row
        await store.close()
        await asyncio.sleep(0)
        assert results == [Applied.committed] * 30
        return row

    row = asyncio.run(main())
    assert asyncio.run(heads(tmp_path / "runs.db")) == {row.id: 31}


def test_a_process_that_just_ends_keeps_what_it_submitted(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, extend, new_run

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    row = await store.create(new_run("r_1"), owner=ALICE)
    store.submit(extend(row, "done"), lambda result: None, urgent=False)

asyncio.run(main())
"""
    done = run_script(script, tmp_path / "runs.db")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert asyncio.run(heads(tmp_path / "runs.db")) == {"r_1": 2}


@pytest.mark.parametrize(
    "point", ["start.before_commit", "start.after_commit", "append.before_commit", "append.after_commit"]
)
def test_a_kill_around_a_commit_keeps_everything_or_nothing(tmp_path: Path, point: str) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, alone, append, extend, new_run

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    row = await store.create(new_run("r_1"), owner=ALICE)
    print(1, flush=True)
    step = extend(row, "started", "done")
    if sys.argv[2] == "submit":
        await append(store, step)
    while await alone(store, step) is None:
        await asyncio.sleep(0.01)  # declined for a while after a slow commit
    print(3, flush=True)

asyncio.run(main())
"""
    for way in ("inline", "submit"):
        path = tmp_path / f"{way}.db"
        done = run_script(script, path, way, fault=f"{point}:kill")
        assert done.returncode == -9
        acknowledged = [int(line) for line in done.stdout.split()]
        stored = asyncio.run(heads(path)).get("r_1", 0)
        expected = {
            "start.before_commit": 0,
            "start.after_commit": 1,
            "append.before_commit": 1,
            "append.after_commit": 3,
        }
        assert stored == expected[point]
        assert max(acknowledged, default=0) <= stored


def test_the_log_is_moved_into_the_file_as_it_grows(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db", checkpoint_pages=50)) as store:
            row = await store.create(new_run(), owner=ALICE)
            for number in range(300):
                step = extend(row, Kind.done, payload='"' + "x" * 2000 + '"')
                if number % 2 or await alone(store, step) is None:
                    assert await append(store, step) == [Applied.committed]
                row = step.row
            assert (tmp_path / "runs.db-wal").stat().st_size < 150 * 4120
            assert (tmp_path / "runs.db").stat().st_size > 300 * 2000

    asyncio.run(main())


def test_reading_holds_no_transaction_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            row = await store.create(new_run(), owner=ALICE)
            for use in (
                store.run(row.id),
                store.load(row.id),
                store.runs(RunFilter(limit=1000)),
                store.statistics(),
                store.check(),
            ):
                await use
                assert not store._database.reader.in_transaction  # type: ignore[attr-defined]

    asyncio.run(main())
