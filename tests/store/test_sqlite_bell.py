"""The bell of a SQLite store: who hears it, how, and what a listener does where it cannot be heard."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.store.contract import Store
from holdfast.store.sqlite import bell
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import opened
from tests.eventually import eventually

_HOUR_S = 3600


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is woken up by a knock, or not at all."""
    monkeypatch.setattr(bell, "_POLL_S", float(_HOUR_S))
    monkeypatch.setattr(bell, "_LOOK_US", _HOUR_S * 1_000_000)


@pytest.fixture
def only_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells nothing of files that are read."""
    monkeypatch.setattr("holdfast.store.sqlite.ear._READ_FROM", 0x2)
    monkeypatch.setattr(bell, "_LOOK_US", _HOUR_S * 1_000_000)


def bell_of(store: Store) -> bell.Bell:
    assert isinstance(store, SqliteStore)
    return store._database.bell


def ring_without_a_knock(store: Store) -> None:
    file = bell_of(store)._file
    assert file is not None
    file.bytes[:8] = os.urandom(8)


def descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # that of the list itself
            continue
    return sorted(found)


async def hears_from_afar(store: Store, ring: Callable[[], object]) -> bool:
    """Does it hear what another thread does once it waits?"""
    await store.changed(0)
    waiting = asyncio.ensure_future(store.changed(_HOUR_S))
    await eventually(lambda: bell_of(store)._waiting)
    await asyncio.to_thread(ring)
    return await asyncio.wait_for(waiting, 60)


# who hears it


def test_a_listener_is_woken_up_by_the_bell(tmp_path: Path, never_looks: None) -> None:
    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
            opened(lambda: SqliteStore(tmp_path / "runs.db"), read_only=True) as reader,
        ):
            for listener in (two, one, reader):
                for _ in range(5):
                    assert await hears_from_afar(listener, one.ring)
                assert not await listener.changed(0)
            await two.close()
            assert await hears_from_afar(one, one.ring)

    asyncio.run(main())


def test_a_ring_between_the_look_and_the_sleep_is_heard(tmp_path: Path, never_looks: None) -> None:
    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            wait = bell_of(two)._wait

            async def rung_before(most_s: float, look_s: float) -> None:
                one.ring()
                await wait(most_s, look_s)

            bell_of(two)._wait = rung_before  # type: ignore[method-assign]
            for _ in range(10):
                assert await asyncio.wait_for(two.changed(_HOUR_S), 60)

    asyncio.run(main())


def test_whoever_hears_does_not_look_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    value = bell.Bell._value

    def counted(self: bell.Bell) -> bytes:
        nonlocal looks
        looks += 1
        return value(self)

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            monkeypatch.setattr(bell.Bell, "_value", counted)
            assert not await store.changed(0.5)

    asyncio.run(main())
    assert looks <= 4


def test_two_that_listen_to_one_store_do_not_hold_each_other_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            first, second = (asyncio.ensure_future(store.changed(60)) for _ in range(2))
            await eventually(lambda: len(bell_of(store)._waiting) == 2)
            store.ring()
            done, left = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            assert all(task.result() for task in done)
            store.ring()
            for task in left:
                assert await task
            assert await hears_from_afar(store, store.ring)

    asyncio.run(main())


# where it cannot be heard


def test_where_the_kernel_does_not_tell_the_bytes_are_looked_at(tmp_path: Path, only_looks: None) -> None:
    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            for _ in range(3):
                assert await hears_from_afar(two, one.ring)

    asyncio.run(main())


def test_rings_that_nobody_knocks_for_are_looked_for_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Knocks may not come through from another container, which maps the same file."""
    monkeypatch.setattr(bell, "_LOOK_US", _HOUR_S * 1_000_000)

    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            for _ in range(20):
                one.ring()
                assert await two.changed(60)
            assert bell_of(two)._ear is not None
            for _ in range(10):
                ring_without_a_knock(one)
                assert await two.changed(60)  # by looking at once
            assert await hears_from_afar(two, lambda: ring_without_a_knock(one))
            assert await hears_from_afar(two, one.ring)

    asyncio.run(main())


def test_without_its_file_nobody_looks_for_it_200_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    wait = bell.Bell._wait

    async def counted(self: bell.Bell, *times: float) -> None:
        nonlocal looks
        looks += 1
        await wait(self, *times)

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")):
            pass
        shutil.rmtree(tmp_path / "runs.db-workers")
        async with opened(lambda: SqliteStore(tmp_path / "runs.db"), read_only=True) as reader:
            monkeypatch.setattr(bell.Bell, "_wait", counted)
            assert not await reader.changed(0.5)

    asyncio.run(main())
    assert looks <= 4


# what it takes


def test_whoever_listens_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        async def once() -> None:
            async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
                assert await hears_from_afar(store, store.ring)
                assert "anon_inode:inotify" in descriptors()
                (tmp_path / "runs.db-workers" / "bell").unlink()
                bell_of(store)._look_at = 0
                assert await store.changed(60)  # another file
                assert await hears_from_afar(store, store.ring)

        await once()
        before = descriptors()
        for _ in range(5):
            await once()
        assert descriptors() == before

    asyncio.run(main())


def spin(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def test_the_bell_is_heard_by_another_process(tmp_path: Path, never_looks: None) -> None:
    script = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import left, mail_for, new_run, opened

async def main():
    async with opened(lambda: SqliteStore(sys.argv[1])) as store:
        row = await store.create(new_run(), owner=None)
        print("ready", flush=True)
        sys.stdin.readline()
        await store.send(mail_for(row.id), wake=left)

asyncio.run(main())
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "runs.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            assert not await store.changed(0.02)
            child.stdin.write("\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            assert await asyncio.wait_for(store.changed(_HOUR_S), 60)

    try:
        asyncio.run(main())
    finally:
        child.communicate(timeout=30)
    assert child.returncode == 0


def test_without_its_file_the_bell_is_only_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.bell._LOOK_US", 0)
    workers = tmp_path / "runs.db-workers"

    async def main() -> None:
        async with (
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as one,
            opened(lambda: SqliteStore(tmp_path / "runs.db")) as two,
        ):
            (workers / "bell").unlink()
            one.ring()  # makes it anew
            assert await two.changed(5)
            shutil.rmtree(workers)
            one.ring()
            assert not await two.changed(0.02)
            workers.mkdir()
            one.ring()
            assert await two.changed(5)
            (workers / "bell").unlink()
            (workers / "bell").mkdir()
            one.ring()
            assert not await two.changed(0.02)

    asyncio.run(main())


def test_a_reader_that_finds_no_bell_reads(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")):
            pass
        shutil.rmtree(tmp_path / "runs.db-workers")
        async with opened(lambda: SqliteStore(tmp_path / "runs.db"), read_only=True) as reader:
            assert not await reader.changed(0.01)
            reader.ring()
            assert not (tmp_path / "runs.db-workers").exists()

    asyncio.run(main())


def test_a_forked_child_does_not_touch_the_bell(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from holdfast.errors import ForkedConnection
from holdfast.store.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            store.ring()
        except ForkedConnection:
            refused += 1
        store._database.bell.ring()
        try:
            store.changed(0).send(None)
        except ForkedConnection:
            refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert not await store.changed(0.01)
    store.ring()
    assert await store.changed(0)
    await store.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "runs.db")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_fork_does_not_make_its_parent_deaf(tmp_path: Path) -> None:
    """The child has the event loop of its parent, and what is registered there."""
    script = """
import asyncio, os, sys
from holdfast.store.sqlite import bell
from holdfast.store.sqlite.store import SqliteStore

bell._POLL_S, bell._LOOK_US = 3600.0, 3_600_000_000

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    waiting = asyncio.ensure_future(store.changed(3600))
    while not store._database.bell._waiting:
        await asyncio.sleep(0.01)
    child = os.fork()
    if child == 0:
        waiting.get_coro().close()
        os._exit(0)
    os.waitpid(child, 0)
    await asyncio.to_thread(store.ring)
    assert await asyncio.wait_for(waiting, 60)
    await store.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "runs.db")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_ringing_costs_the_writer_nothing(tmp_path: Path) -> None:
    """It happens after each commit; one that gives up the interpreter lock takes 5 ms if another thread is busy."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            store.ring()
            stop = threading.Event()
            spinner = threading.Thread(target=spin, args=(stop,))
            spinner.start()
            try:
                started = time.perf_counter()
                for _ in range(2000):
                    store.ring()
                assert time.perf_counter() - started < 5  # and not 2000 × 5 ms
            finally:
                stop.set()
                spinner.join()
            assert await store.changed(0)

    asyncio.run(main())
