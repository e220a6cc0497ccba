"""Folders whose files start runs: what is put there, and what was told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.automation.triggers import FileChange
from tests.eventually import eventually
from tests.worker.outside import World


@hf.agent
async def reads(event: hf.FileEvent) -> str:
    return event.path


def fast(pattern: Path | str, **more: Any) -> FileChange:
    return FileChange(str(pattern), **{"settle": 0.05} | more)


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)


def inbox_of(folder: Path) -> Path:
    inbox = folder / "inbox"
    inbox.mkdir()
    return inbox


async def reported(here: World) -> list[tuple[str, str, int]]:
    """(name, change, size) of what started runs, in that order."""
    found: list[Any] = await here.inputs()
    return [(Path(each["path"]).name, each["change"], each["size"]) for each in found]


async def has(here: World, *expected: tuple[str, str, int]) -> None:
    """Wait until exactly this was reported, in whatever order."""

    async def is_there() -> bool:
        return len(await here.runs()) >= len(expected)

    await eventually(is_there)
    assert sorted(await reported(here)) == sorted(expected)


async def has_noted(here: World, what: str) -> bool:
    return any(note.what == what for info in await here.triggers.list() for note in info.recent)
