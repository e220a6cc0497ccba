"""A lock file that another one was put in the place of: it is free, and proves nothing of the worker that lives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.ownership import agents
from tests.ownership.scene import Scene

Live = Callable[[Callable[[Scene], Awaitable[None]]], None]

pytestmark = pytest.mark.sqlite_alone("a server has sessions, not files")


def swap(lock: Path) -> None:
    """As an editor does, or a `cp -r` of the folder that is moved in place."""
    other = lock.with_suffix(".new")
    other.touch(mode=0o600)
    os.replace(other, lock)


def link(lock: Path) -> None:
    other = lock.with_suffix(".elsewhere")
    other.touch(mode=0o600)
    lock.unlink()
    lock.symlink_to(other)


def copy(lock: Path) -> None:
    """The whole folder, as for a move to another disk."""
    folder = lock.parent
    shutil.copytree(folder, folder.with_suffix(".copy"))
    folder.rename(folder.with_suffix(".old"))
    folder.with_suffix(".copy").rename(folder)


@pytest.mark.parametrize("change", [swap, link, copy])
def test_a_worker_whose_lock_file_was_replaced_keeps_its_run_in_the_middle_of_an_effect(
    change: Callable[[Path], None], live: Live
) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.app.start(agents.in_an_effect("gate"))
        old = scene.worker()
        await scene.wait_reached("gate", old)
        row = await scene.row(run)
        change(Path(f"{scene.url}-workers", f"{row.owner}.lock"))
        new = scene.worker()
        await scene.at_work(new, old)
        await scene.renewed(new, for_s=2)  # many sweeps
        assert await scene.owners(run) == [old.pid]
        scene.open("gate")
        assert await run.result(timeout=60) == [10, "gate", 20]
        assert scene.begun("held_effect#1") == [old.pid]

    live(story)
