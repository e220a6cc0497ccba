"""Whether a path still names the same file: as the kernel tells it, and by looking each time."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.base import system
from holdfast.store.sqlite import watch as sqlite_watch
from holdfast.store.sqlite.watch import FileWatch

LOSSES: dict[str, Callable[[Path, Path], object]] = {
    "deleted": lambda file, other: file.unlink(),
    "moved away": lambda file, other: file.rename(other),
    "replaced": lambda file, other: (other.write_bytes(b"another"), other.rename(file)),
    "deleted and made anew": lambda file, other: file.unlink() or file.write_bytes(b"another"),  # type: ignore[func-returns-value]
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "watched"
    file.write_bytes(b"one")
    return file


class Lacking:
    """The C library, without one of its functions; of `inotify_init1` there are no more to be had."""

    def __init__(self, function: str) -> None:
        self._all, self._missing = ctypes.PyDLL(None), function

    def __getattr__(self, name: str) -> Any:
        if name == self._missing == "inotify_init1":
            return lambda flags: -1
        if name == self._missing:
            raise AttributeError(name)
        return getattr(self._all, name)


@pytest.fixture(params=["told", "a network", "no watch to be had", "no statx"])
def watch(request: pytest.FixtureRequest, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileWatch]:
    if request.param in ("a network", "no statx"):
        monkeypatch.setattr(sqlite_watch, "_OWN", frozenset())
    library = Lacking({"no watch to be had": "inotify_init1", "no statx": "statx"}.get(request.param, ""))
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: library)
    watch = FileWatch(str(file))
    assert watch.is_told == (request.param == "told")
    yield watch
    watch.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_file_that_is_lost_is_noticed_at_once(watch: FileWatch, file: Path, tmp_path: Path, loss: str) -> None:
    kept = os.open(file, os.O_RDONLY)  # as a store keeps its log: else its number might be used again
    try:
        assert not watch.has_news()
        LOSSES[loss](file, tmp_path / "other")
        assert watch.has_news()
    finally:
        os.close(kept)


def test_a_file_that_is_used_has_no_news(watch: FileWatch, file: Path, tmp_path: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"two and more")
        opened.flush()
        os.fsync(opened.fileno())
        opened.truncate(3)
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").unlink()
    assert file.read_bytes() == b"two"
    assert not watch.has_news()


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut short by name": lambda file: os.truncate(file, 1),
    "made anew in its place": lambda file: file.open("wb").close(),
    "written to": lambda file: file.write_bytes(b"some bytes and more"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_file_that_changes_is_news_or_has_to_be_measured(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    measured = tmp_path / "measured"
    measured.write_bytes(b"some bytes")
    watch = FileWatch(str(file), str(measured))
    try:
        if watch.is_told_of_size:
            assert not watch.has_news()
            CHANGES[change](measured)
            assert watch.has_news()
            assert not watch.has_news()
    finally:
        watch.close()
    monkeypatch.setattr(sqlite_watch, "_OWN", frozenset())
    elsewhere = FileWatch(str(file), str(measured))
    assert not elsewhere.is_told_of_size
    elsewhere.close()


def test_of_a_file_that_lies_in_another_file_system_too_the_length_is_not_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "kind_of_file_system", lambda _: sqlite_watch._OVERLAY)
    (tmp_path / "measured").write_bytes(b"some bytes")
    watch = FileWatch(str(file), str(tmp_path / "measured"))
    assert not watch.is_told_of_size
    watch.close()
