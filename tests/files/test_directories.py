"""What is known of a directory that was looked at before spares work, and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.journal.files import Filing
from holdfast.journal.trees import EMPTY, load_tree
from holdfast.model import RunId
from holdfast.model.files import FileRef
from holdfast.running.directories import Ignored, Known, WorkingDirectory

NAMES = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "e/d/a"]


@hf.agent
async def nothing() -> None: ...


def act(path: Path, chance: random.Random) -> None:
    what = chance.choice(["write", "write", "rewrite", "mode", "mode", "remove", "link", "folder"])
    if what == "mode":
        path.chmod(chance.choice([0o500, 0o700, 0o755]))
    elif what == "rewrite":  # of the same size and time
        before = path.stat()
        path.write_text("x" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "write":
            path.write_text(chance.choice("abc") * chance.randrange(3))
        elif what == "link":
            path.symlink_to("a")
        elif what == "folder":
            path.mkdir()


async def saved(place: WorkingDirectory, app: hf.Holdfast) -> tuple[FileRef, int]:
    """What it holds, stored; and how many chunks had to be looked for in the store."""
    found: list[FileRef] = []
    fresh: dict[str, Known] = {}
    chunks = list(place.chunks(lambda tree, *_: found.append(tree), fresh))
    filing = Filing(app._store, RunId("r"), fence=lambda: None, patiently=lambda ask: ask())
    await filing.put(iter(chunks))
    place.learn(fresh)
    return found[0], len(chunks)


def test_a_directory_that_is_known_stores_and_holds_what_a_new_one_would(tmp_path: Path) -> None:
    chance = random.Random(7)

    async def story() -> None:
        async with hf.connect(tmp_path / "store.db", agents=[nothing]) as app:
            await (await app.start(nothing(), id="r")).result()
            place = WorkingDirectory(str(tmp_path / "place"), Ignored(()))

            async def found_anew() -> FileRef:
                return (await saved(WorkingDirectory(place.folder, Ignored(())), app))[0]

            versions = [(EMPTY, await found_anew())]
            for _ in range(80):
                await asyncio.sleep(chance.choice([0, 0.011]))  # less than a tick of the file system, or more
                for _ in range(chance.randrange(3)):
                    with contextlib.suppress(OSError):
                        act(Path(place.path, chance.choice(NAMES)), chance)
                if chance.random() < 0.6:
                    said, _ = await saved(place, app)
                    assert said == await found_anew()
                    stored = await load_tree(app._store, RunId("r"), said)
                    versions.append((chance.choice([place.found, stored]), said))
                else:
                    tree, said = chance.choice(versions[-4:])
                    await place.hold(app._store, RunId("r"), tree)
                    assert said == await found_anew()

    asyncio.run(story())


def test_only_what_has_changed_is_read_and_listed_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "store.db", agents=[nothing]) as app:
            await (await app.start(nothing(), id="r")).result()
            place = WorkingDirectory(str(tmp_path / "place"), Ignored(()))
            for number in range(60):
                path = Path(place.path, f"d{number % 6}", "below", str(number))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"file {number}")
            first, _ = await saved(place, app)
            await place.hold(app._store, RunId("r"), await load_tree(app._store, RunId("r"), first))
            while (again := await saved(place, app))[1]:  # until its files are older than a tick
                assert again[0] == first
            Path(place.path, "d1", "below", "1").write_text("changed")
            second, count = await saved(place, app)
            assert (second != first, count) == (True, 4), "the file, and the lists of three directories"
            Path(place.path, "d2").chmod(0o700)
            assert (await saved(place, app))[0] != second
            await place.hold(app._store, RunId("r"), await load_tree(app._store, RunId("r"), second))
            assert (await saved(place, app))[0] == second

    asyncio.run(story())


def test_a_file_that_was_younger_than_a_tick_when_it_was_found_right_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "store.db", agents=[nothing]) as app:
            await (await app.start(nothing(), id="r")).result()
            place = WorkingDirectory(str(tmp_path / "place"), Ignored(()))
            file = Path(place.path, "file")
            file.write_text("right")
            await saved(place, app)
            tree = place.found
            place._known.clear()
            monkeypatch.setattr(place, "_tick", lambda: 0)  # before all that was written
            await place.hold(app._store, RunId("r"), tree)
            assert place._known[""].files == {}

    asyncio.run(story())
