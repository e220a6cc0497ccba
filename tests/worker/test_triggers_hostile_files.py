"""Files that come back, are links, or are too large to be read: each change is told of once, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.automation.triggers import FileChange
from holdfast.automation.triggers.contents import Contents
from holdfast.automation.triggers.cursors import Cursors
from holdfast.automation.triggers.scanning import Folder, Pattern, Stat
from holdfast.errors import UsageError
from holdfast.model import Definition
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.worker.inboxes import fast, has, has_noted, inbox_of, put, reads
from tests.worker.logged import logged
from tests.worker.outside import World, counted, going, world
from tests.workers import Scene

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts

HUGE = 200 << 30  # bytes; sparse, so that it needs none


# what comes back


def test_content_that_comes_back_by_rename_is_reported_each_time(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        for name, text in (("one", "A"), ("two", "BB")):
            (tmp_path / name).write_text(text)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            async with going(here):
                expected: list[tuple[str, str, int]] = []
                for name, size in (("one", 1), ("two", 2)) * 3:
                    os.link(tmp_path / name, tmp_path / "new")  # the same inode and time as before
                    (tmp_path / "new").rename(inbox / "a.txt")
                    expected.append(("a.txt", "changed" if expected else "created", size))
                    await has(here, *expected)
                await counted(here, received=6, matched=6, started=6)

    asyncio.run(main())


def test_a_file_that_was_moved_away_and_comes_back_is_created_again(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            put(inbox, a="a")
            async with going(here):
                for times in (1, 2, 3):
                    await has(here, *[("a.txt", "created", 1)] * times)
                    (inbox / "a.txt").rename(tmp_path / "away")
                    await eventually(lambda: is_forgotten(here))
                    (tmp_path / "away").rename(inbox / "a.txt")
                await has(here, *[("a.txt", "created", 1)] * 4)
                await counted(here, received=4, matched=4, started=4)

    asyncio.run(main())


async def is_forgotten(here: World) -> bool:
    return not await here.store.definitions("file:t")


def test_a_cursor_is_not_forgotten_by_a_worker_that_saw_the_file_gone_before_it_came_back(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt", kinds=("created", "deleted")), "read", name="t")
            put(inbox, a="a")
            async with going(here):
                await has(here, ("a.txt", "created", 1))
                slow = await slow_worker(here)
                (inbox / "a.txt").unlink()
                await has(here, ("a.txt", "created", 1), ("a.txt", "deleted", 1))
                await eventually(lambda: is_forgotten(here))
                put(inbox, a="a")
                await has(here, ("a.txt", "created", 1), ("a.txt", "deleted", 1), ("a.txt", "created", 1))
                await slow.forget(slow.known)  # it saw the file gone, and comes to it only now
                assert len(await here.store.definitions("file:t")) == 1

    asyncio.run(main())


async def slow_worker(here: World) -> Cursors:
    """What another worker knows, which is what is stored now."""
    slow = Cursors(here.store, "t")
    slow.known = await slow.stored()
    return slow


def test_a_run_that_exists_is_not_counted_as_started(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            put(inbox, a="a")
            async with going(here):
                await has(here, ("a.txt", "created", 1))
                await counted(here, received=1, matched=1, started=1)
                await make_due_again(here)
                await eventually(lambda: has_noted(here, "known"))
                await counted(here, received=1, matched=1, started=1)

    asyncio.run(main())


async def make_due_again(here: World) -> None:
    """As if whoever started the run had died before it could say so."""
    (cursor,) = await here.store.definitions("file:t")
    assert await here.store.define([Definition("file:t", cursor.name, cursor.body, cursor.revision + 1, 0)]) == [True]


# links


def test_links_are_followed_only_if_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        secret = tmp_path / "secret"
        secret.mkdir()
        put(secret, key="a secret")
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            await here.triggers.declare(fast(inbox / "*" / "*.txt"), "read", name="u")
            (inbox / "link.txt").symlink_to(secret / "key.txt")
            (inbox / "folder").symlink_to(secret)
            put(inbox, a="a")
            async with going(here):
                await has(here, ("a.txt", "created", 1))
                put(inbox, b="b")  # a whole look later
                await has(here, ("a.txt", "created", 1), ("b.txt", "created", 1))
            assert {json.loads(each.body)["path"] for each in await here.store.definitions("file:u")} == set()
            await here.triggers.declare(fast(inbox / "*.txt", links=True, existing=True), "read", name="v")
            async with going(here):
                await eventually(lambda: has_cursor(here, "v", inbox / "link.txt"))

    asyncio.run(main())


async def has_cursor(here: World, trigger: str, path: Path) -> bool:
    found = await here.store.definitions(f"file:{trigger}")
    return str(path) in {json.loads(each.body)["path"] for each in found}


def test_a_folder_that_becomes_a_link_leads_nowhere(tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path)
    secret = tmp_path / "secret"
    for each in (inbox / "one", secret):
        each.mkdir()
        put(each, a="a")
    path = str(inbox / "one" / "a.txt")
    folder = Folder(str(inbox), links=False)
    known = Pattern(str(inbox / "*" / "*.txt")).scan().found
    assert folder.look([path]) == known
    shutil.rmtree(inbox / "one")
    (inbox / "one").symlink_to(secret)
    assert folder.look([path]) == {path: None}
    status = (secret / "a.txt").stat()
    there = Stat(status.st_ino, status.st_mtime_ns, status.st_size)
    found = Contents(folder).read([(path, there)], lambda: False)[path]
    assert isinstance(found, OSError)
    link = inbox / "a.txt"
    link.symlink_to(secret / "a.txt")
    assert isinstance(Contents(folder).read([(str(link), there)], lambda: False)[str(link)], OSError)


# too large


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_a_file_that_is_too_large_is_told_of_once_and_reported_when_it_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            sparse(inbox / "huge.txt", HUGE)
            put(inbox, a="a")
            with logged() as log:
                async with going(here):
                    await has(here, ("a.txt", "created", 1))
                    await eventually(lambda: has_noted(here, "refused"))
                    sparse(inbox / "huge.txt", HUGE + 1)  # no news
                    put(inbox, b="b")
                    await has(here, ("a.txt", "created", 1), ("b.txt", "created", 1))
                    sparse(inbox / "huge.txt", 3)
                    await has(here, ("a.txt", "created", 1), ("b.txt", "created", 1), ("huge.txt", "changed", 3))
                    await counted(here, received=4, matched=3, started=3)
            assert len(log.named("trigger.refused_file")) == 1
            info = (await here.triggers.list())[0]
            assert (info.received, info.matched, info.started, info.refused) == (4, 3, 3, 1)
            (note,) = (note for note in info.recent if note.what == "refused")
            assert "214,748,364,800 bytes, and max_size is 1,073,741,824" in note.detail

    asyncio.run(main())


def test_a_large_file_that_is_there_already_does_not_hold_up_the_declaration(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        sparse(inbox / "huge.txt", HUGE)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            assert await has_cursor(here, "t", inbox / "huge.txt")

    asyncio.run(main())


def test_small_files_are_read_before_large_ones_and_those_go_on_where_they_were(tmp_path: Path) -> None:
    large, small = tmp_path / "large.bin", tmp_path / "small.bin"
    sparse(large, 64 << 20)
    small.write_bytes(b"small")
    stats = {path: Stat(s.st_ino, s.st_mtime_ns, s.st_size) for path in (large, small) for s in (path.stat(),)}
    files: Sequence[tuple[str, Stat]] = [(str(path), stat) for path, stat in stats.items()]
    contents = Contents(Folder(str(tmp_path), links=False))
    asked: list[int] = []

    def is_stopped() -> bool:  # after the small one, and some of the large one
        asked.append(1)
        return len(asked) > 5

    assert set(contents.read(files, is_stopped)) == {str(small)}
    begun = contents._begun[str(large)].place
    assert 0 < begun < 64 << 20
    assert contents.read(files[:1], lambda: True) == {}
    assert contents._begun[str(large)].place == begun
    found: dict[str, Any] = {}
    while not found:
        found = contents.read(files[:1], lambda: False)
    whole: dict[str, Any] = {}
    while not whole:
        other = Contents(Folder(str(tmp_path), links=False))
        while not whole:
            whole = other.read(files[:1], lambda: False)
    assert found == whole


def test_a_huge_file_starves_nobody_and_does_not_keep_the_process_from_ending(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        with Scene(tmp_path / "place", forkserver, agents="tests.worker.inboxes", settings={}) as scene:
            async with scene.client() as app:
                await app.on(FileChange(str(inbox / "*.txt"), settle=0.05, max_size=None), reads, name="t")
                sparse(inbox / "huge.txt", HUGE)
                worker = scene.worker()
                for number in range(3):
                    put(inbox, **{f"small{number}": "a"})
                    await eventually(lambda: is_read(app, number + 1))  # noqa: B023 - it is awaited here
                worker.send(signal.SIGTERM)
                assert await worker.wait_dead() == 0

    asyncio.run(main())


async def is_read(app: hf.Holdfast, count: int) -> bool:
    return len(await app.runs(agent="reads")) == count


@pytest.mark.parametrize("size", [-1, True, 1.5, "1"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(UsageError, match="max_size"):
        FileChange("*.txt", max_size=size)
