"""Looking at files: which there are, and whether they changed. Blocks; called in a thread.

Unless links are asked for, none is followed below the folder that a pattern starts from: whoever may write there could
otherwise have any file of the machine reported. What is a folder now may be a link a moment later, so files are reached
step by step, each step a folder and no link.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final, NamedTuple

from holdfast.store.sqlite.guard import own_files

_MAGIC: Final = re.compile(r"[*?\[]")
_ANY_DEPTH: Final = "**"
#: What a file that is not there any more gives; a link in its place, or on the way to it, is none.
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
#: How a folder on the way to a file is opened.
_STEP: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Stat(NamedTuple):
    """What tells without reading that a file may have changed."""

    inode: int
    mtime_ns: int
    size: int


class Scan(NamedTuple):
    """All files that fit a pattern; `unread` are the folders that could not be looked into, so who knows."""

    found: dict[str, Stat]
    unread: tuple[str, ...]


class Folder:
    """The folder that a pattern starts from, and the way to the files below it."""

    def __init__(self, base: str, *, links: bool) -> None:
        self.base = base
        self.links = links

    def look(self, paths: Iterable[str]) -> dict[str, Stat | None]:
        """These files as they are now; None for one that is gone. One that cannot be looked at is left out."""
        found: dict[str, Stat | None] = {}
        for path in paths:
            try:
                with self._way(path) as (name, here):
                    status = os.stat(name, dir_fd=here, follow_symlinks=self.links)
            except OSError as error:
                if error.errno in _GONE:
                    found[path] = None
            else:
                found[path] = stat_of(status) if stat.S_ISREG(status.st_mode) else None
        return found

    def opened(self, path: str) -> int:
        """A descriptor to read a file with."""
        # What was a file a moment ago may be a pipe by now; opening it must not wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if self.links else os.O_NOFOLLOW)
        with self._way(path) as (name, here):
            return os.open(name, flags, dir_fd=here)

    @contextmanager
    def _way(self, path: str) -> Iterator[tuple[str, int | None]]:
        """The name of a file, and a descriptor of the folder that it is in; None: the name is the path."""
        if self.links:
            yield path, None
            return
        *folders, name = PurePath(path).relative_to(self.base).parts
        here = os.open(self.base, _STEP)
        try:
            for folder in folders:
                below = os.open(folder, _STEP | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
            yield name, here
        finally:
            os.close(here)


class Pattern:
    """A glob: the folder it starts from, and what comes below."""

    def __init__(self, pattern: str, *, links: bool = False) -> None:
        self._links = links
        path = PurePath(pattern)
        parts = list(path.parts)
        fixed = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        self.base = str(PurePath(*parts[:fixed]))
        below = parts[fixed:]
        if below[-1] == _ANY_DEPTH:
            below.append("*")
        self._last = len(below) - 1
        self._any_depth = [part == _ANY_DEPTH for part in below]
        self._fits = [_matcher(part) for part in below]

    @property
    def is_deep(self) -> bool:
        """Does it go into folders below the one it starts from?"""
        return self._last > 0

    @property
    def folder(self) -> Folder:
        return Folder(self.base, links=self._links)

    def scan(self, is_stopped: Callable[[], bool] = lambda: False) -> Scan:
        """Look at the files that are there now; nothing of use if it is stopped."""
        found: dict[str, Stat] = {}
        unread: list[str] = []
        folders: list[tuple[str, frozenset[int]]] = [(self.base, self._closed({0}))]
        while folders and not is_stopped():
            folder, states = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if is_stopped():
                            break
                        below = self._look(entry, states, found)
                        if below:
                            folders.append((entry.path, below))
            except OSError as error:
                # A folder below that vanished has no files any more. Without the first one nothing is known: it may be
                # a disk that is not mounted.
                if folder == self.base or not isinstance(error, FileNotFoundError | NotADirectoryError):
                    unread.append(folder)
        own = own_files()  # reading them would drop the store's locks, and they change with every run
        return Scan({path: stat for path, stat in found.items() if stat.inode not in own}, tuple(unread))

    def _look(self, entry: os.DirEntry[str], states: frozenset[int], found: dict[str, Stat]) -> frozenset[int]:
        """Note a file that fits; of a folder, what may fit below it."""
        deeper: set[int] = set()
        is_fit = False
        for state in states:
            if self._any_depth[state]:
                # Links to folders are never followed here, they may go round in circles.
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    deeper.add(state)
            elif self._fits[state](entry.name):
                if state == self._last:
                    is_fit = True
                else:
                    deeper.add(state + 1)
        if is_fit:
            try:
                status = entry.stat(follow_symlinks=self._links)
            except OSError:  # vanished, or a link to nothing
                return frozenset()
            if stat.S_ISREG(status.st_mode):
                found[entry.path] = stat_of(status)
                return frozenset()
        return self._closed(deeper) if deeper and self._is_folder(entry) else frozenset()

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=self._links)
        except OSError:
            return False

    def _closed(self, states: Iterable[int]) -> frozenset[int]:
        """`**` stands for no folder as well."""
        closed = set(states)
        for state in sorted(closed):
            while state < self._last and self._any_depth[state]:
                state += 1
                closed.add(state)
        return frozenset(closed)


def _matcher(part: str) -> Callable[[str], bool]:
    if not _MAGIC.search(part):
        return part.__eq__
    expression = re.compile(fnmatch.translate(part)).match
    if part.startswith("."):
        return lambda name: expression(name) is not None
    return lambda name: not name.startswith(".") and expression(name) is not None


def stat_of(status: os.stat_result) -> Stat:
    return Stat(status.st_ino, status.st_mtime_ns, status.st_size)


def differing(scan: Scan, known: Mapping[str, Stat]) -> dict[str, Stat | None]:
    """Files that are not as they are known to be; None for those that are gone."""
    changed: dict[str, Stat | None] = {path: now for path, now in scan.found.items() if known.get(path) != now}
    hidden = tuple(os.path.join(folder, "") for folder in scan.unread)
    for path in known.keys() - scan.found.keys():
        if not hidden or not path.startswith(hidden):
            changed[path] = None
    return changed
