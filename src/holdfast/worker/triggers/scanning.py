"""Looking at files: which there are, whether they changed, what is in them. Blocks; called in a thread."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import PurePath
from typing import Final, NamedTuple

from holdfast.store.sqlite_guard import own_files

_MAGIC: Final = re.compile(r"[*?\[]")
_ANY_DEPTH: Final = "**"
_CHUNK: Final = 1 << 20


class Stat(NamedTuple):
    """What tells without reading that a file may have changed."""

    inode: int
    mtime_ns: int
    size: int


class Scan(NamedTuple):
    """All files that fit a pattern; `unread` are the folders that could not be looked into, so who knows."""

    found: dict[str, Stat]
    unread: tuple[str, ...]


class Pattern:
    """A glob: the folder it starts from, and what comes below."""

    def __init__(self, pattern: str) -> None:
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

    def scan(self) -> Scan:
        """Look at the files that are there now."""
        found: dict[str, Stat] = {}
        unread: list[str] = []
        folders: list[tuple[str, frozenset[int]]] = [(self.base, self._closed({0}))]
        while folders:
            folder, states = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
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
                # Links to folders are not followed here, they may go round in circles.
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    deeper.add(state)
            elif self._fits[state](entry.name):
                if state == self._last:
                    is_fit = True
                else:
                    deeper.add(state + 1)
        if is_fit:
            try:
                status = entry.stat()
            except OSError:  # vanished, or a link to nothing
                return frozenset()
            if stat.S_ISREG(status.st_mode):
                found[entry.path] = stat_of(status)
                return frozenset()
        return self._closed(deeper) if deeper and _is_folder(entry) else frozenset()

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


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def stat_of(status: os.stat_result) -> Stat:
    return Stat(status.st_ino, status.st_mtime_ns, status.st_size)


def look(paths: Iterable[str]) -> dict[str, Stat | None]:
    """These files as they are now; None for one that is gone. One that cannot be looked at is left out."""
    found: dict[str, Stat | None] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            found[path] = None
        except OSError:
            continue
        else:
            found[path] = stat_of(status) if stat.S_ISREG(status.st_mode) else None
    return found


def differing(scan: Scan, known: Mapping[str, Stat]) -> dict[str, Stat | None]:
    """Files that are not as they are known to be; None for those that are gone."""
    changed: dict[str, Stat | None] = {path: now for path, now in scan.found.items() if known.get(path) != now}
    hidden = tuple(os.path.join(folder, "") for folder in scan.unread)
    for path in known.keys() - scan.found.keys():
        if not hidden or not path.startswith(hidden):
            changed[path] = None
    return changed


def digests(files: Iterable[tuple[str, Stat]]) -> dict[str, str | OSError | None]:
    """What stands for the content of each file; None if it is not as it was when it was looked at."""
    return {path: _digest(path, expected) for path, expected in files}


def _digest(path: str, expected: Stat) -> str | OSError | None:
    content = blake2b(digest_size=16)
    if expected.inode in own_files():
        return None
    try:
        with open(path, "rb", buffering=0, opener=_opened) as file:
            if stat_of(os.fstat(file.fileno())) != expected:
                return None
            while chunk := file.read(_CHUNK):
                content.update(chunk)
            return content.hexdigest() if stat_of(os.fstat(file.fileno())) == expected else None
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _opened(path: str, flags: int) -> int:
    """What was a file a moment ago may be a pipe by now; opening it must not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
