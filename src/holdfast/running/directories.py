"""A directory of this machine that is made to hold a tree, and looked at for what it holds.

Whatever is done goes from one open directory to the next, by names of one part and without following links: a link that
somebody puts in the way leads nowhere. Files whose size, times and inode are as they were when they were read or
written are taken as known. A change within the same tick of the file system's clock would not show; so only those
count that are older than a file that was made before they were read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterator
from fnmatch import translate
from operator import attrgetter
from typing import BinaryIO, NamedTuple

from holdfast.base.ids import new_uuid
from holdfast.errors import DamagedFile, UsageError
from holdfast.journal.files import CHUNK, Chunks, chunks_of, read_chunks, sound_chunks
from holdfast.journal.trees import EMPTY, Directory, File, Link, chunks_of_tree
from holdfast.model import RunId
from holdfast.model.files import FileRef
from holdfast.store.files import FileStore

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SORT = 0o170000  # of what is there, among the bits of its mode
_NAME = attrgetter("name")
_AT_ONCE = 64  # small files that are read from the store together


class Stamp(NamedTuple):
    """What changes when a file does."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Seen(NamedTuple):
    """A file as it lies in the directory."""

    mode: int  #: with the bits that are not stored
    stamp: Stamp


class Ignored:
    """What is neither stored nor taken back: patterns for names, or, with a `/` in them, for paths from the top."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self._names = _any_of([each.rstrip("/") for each in patterns if "/" not in each.rstrip("/")])
        self._paths = _any_of([each.strip("/") for each in patterns if "/" in each.rstrip("/")])

    def has(self, path: str, name: str) -> bool:
        return bool(
            (self._names is not None and self._names.match(name))
            or (self._paths is not None and self._paths.match(path))
        )


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, patterns))) if patterns else None


class WorkingDirectory:
    """The directory `files` in a folder of our own, with what is known of it."""

    def __init__(self, folder: str, ignored: Ignored) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "files")
        self._ignored = ignored
        self.found = EMPTY  #: what it held when that was stored last
        self._known: dict[str, tuple[Stamp, FileRef]] = {}
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    # what it holds

    def look(self) -> dict[str, Seen | Link | int]:
        """What it holds, by path, directories (their modes) before what is in them."""
        found: dict[str, Seen | Link | int] = {}
        top = os.open(self.path, _DIRECTORY)
        try:
            self._look(top, "", found)
        finally:
            os.close(top)
        return found

    def _look(self, directory: int, prefix: str, found: dict[str, Seen | Link | int]) -> None:
        has_patterns = bool(self._ignored.patterns)
        with os.scandir(directory) as entries:
            found_here = sorted(entries, key=_NAME)
        for entry in found_here:
            name = entry.name
            path = f"{prefix}{name}"
            if has_patterns and self._ignored.has(path, name):
                continue
            at = entry.stat(follow_symlinks=False)
            sort = at.st_mode & _SORT
            if sort == stat.S_IFREG:
                stamp = Stamp(at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
                found[path] = Seen(at.st_mode & 0o7777, stamp)
            elif sort == stat.S_IFLNK:
                found[path] = Link(os.readlink(name, dir_fd=directory))
            elif sort == stat.S_IFDIR:
                found[path] = at.st_mode & 0o777
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    self._look(below, f"{path}/", found)
                finally:
                    os.close(below)
            else:
                raise UsageError(
                    f"{path} in a workspace is neither a file nor a directory nor a link, and cannot be stored. Remove "
                    "it before the body returns, or give hf.workspace() a pattern for it in ignore=."
                )

    def _refuse_outward(self, path: str, target: str) -> None:
        """A link that leads out of the directory means something else on another machine, or harm."""
        top = os.path.realpath(self.path)
        leads = os.path.realpath(os.path.join(top, os.path.dirname(path), target))
        if os.path.isabs(target) or (leads != top and not leads.startswith(f"{top}/")):
            raise UsageError(
                f"{path} in a workspace is a link to {target}, which leads out of it. Links are kept if they are "
                "relative and stay inside; remove it, or give hf.workspace() a pattern for it in ignore=."
            )

    # storing what it holds

    def chunks(self, done: Callable[[FileRef, int, int], None], fresh: dict[str, tuple[Stamp, FileRef]]) -> Chunks:
        """The chunks of what has changed, then of the lists; `done` hears of the tree, its files and their bytes.

        `fresh` gets what is known of its files then: `learn` it once all of this is stored.
        """
        before_ns = self._tick()
        seen = self.look()
        entries: dict[str, dict[str, File | Link | Directory]] = {"": {}}
        modes: dict[str, int] = {}
        size = 0
        for path, each in seen.items():
            parent, _, name = path.rpartition("/")
            if isinstance(each, Seen):
                known = self._known.get(path)
                if known is not None and known[0] == each.stamp:
                    content = known[1]
                else:
                    content = yield from self._read(path)
                if each.stamp.changed_ns < before_ns:
                    fresh[path] = each.stamp, content
                size += content.size
                entries[parent][name] = File(each.mode & 0o777, content)
            elif isinstance(each, Link):
                self._refuse_outward(path, each.target)
                entries[parent][name] = each
            else:
                entries[path], modes[path] = {}, each
        for path in sorted(modes, key=lambda path: -path.count("/")):
            parent, _, name = path.rpartition("/")
            entries[parent][name] = Directory(modes[path], entries[path])
        files = sum(isinstance(each, Seen) for each in seen.values())
        self.found = Directory(0o755, entries[""])
        yield from chunks_of_tree(self.found, lambda tree: done(tree, files, size))

    def _read(self, path: str) -> Generator[tuple[str, bytes], None, FileRef]:
        found: list[FileRef] = []
        with self._open(path) as stream:
            yield from chunks_of(stream, found.append)
        return found[0]

    def _open(self, path: str) -> BinaryIO:
        with self._parent(path) as (directory, name):
            return open(os.open(name, _READ, dir_fd=directory), "rb")

    def learn(self, fresh: dict[str, tuple[Stamp, FileRef]]) -> None:
        """All of it is in the store."""
        self._known = fresh

    def _tick(self) -> int:
        """The time of the file system, by which its files are stamped."""
        probe = os.path.join(self.folder, "now")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(probe)
        descriptor = os.open(probe, _CREATE, 0o600)
        try:
            return os.fstat(descriptor).st_ctime_ns
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory that a path is in, open, and its name there."""
        *parts, name = path.split("/")
        directory = os.open(self.path, _DIRECTORY)
        try:
            for part in parts:
                below = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
            yield directory, name
        finally:
            os.close(directory)

    # making it hold something

    async def hold(self, files: FileStore, run_id: RunId, tree: Directory) -> bool:
        """Make it hold just this, apart from what is ignored; whether anything had to be changed."""
        wanted = dict(tree.walk())
        missing, was_changed = await asyncio.to_thread(self._clear, wanted)
        for group in _groups(missing):
            await self._fetch(files, run_id, group)
        await asyncio.to_thread(self._settle, wanted, bool(missing))
        return was_changed or bool(missing)

    def _clear(self, wanted: dict[str, File | Link | Directory]) -> tuple[list[tuple[str, File]], bool]:
        """Take away what is not wanted, make directories and links; the files that are missing."""
        was_changed = False
        fresh: dict[str, tuple[Stamp, FileRef]] = {}
        before_ns = self._tick()
        seen = self._look_at_all()
        missing: list[tuple[str, File]] = []
        kept: set[str] = set()
        for path, each in seen.items():
            want = wanted.get(path)
            fits = (
                isinstance(want, File)
                if isinstance(each, Seen)
                else want == each
                if isinstance(each, Link)
                else isinstance(want, Directory)
            )
            if isinstance(each, Seen) and isinstance(want, File):
                content = self._content(path, each)
                fits = content == want.content
                if fits and each.stamp.changed_ns < before_ns:
                    fresh[path] = each.stamp, want.content
                if fits and each.mode == want.mode:
                    kept.add(path)
            elif fits:
                kept.add(path)
            if not fits:
                self._remove(path)
                was_changed = True
        self._known = fresh
        for path, want in wanted.items():
            if path in kept:
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (directory, name):
                at = None
                with contextlib.suppress(FileNotFoundError):
                    at = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if isinstance(want, Directory) and at is None:
                    os.mkdir(name, 0o700, dir_fd=directory)
                    was_changed = True
                elif isinstance(want, Link) and at is None:
                    _refuse_tampered(path, want.target)
                    os.symlink(want.target, name, dir_fd=directory)
                    was_changed = True
                elif isinstance(want, File):
                    if at is None:
                        missing.append((path, want))
                    elif stat.S_IMODE(at.st_mode) != want.mode:
                        os.chmod(name, want.mode, dir_fd=directory)
                        self._known.pop(path, None)
                        was_changed = True
        return missing, was_changed

    def _look_at_all(self) -> dict[str, Seen | Link | int]:
        """As `look`, and whatever cannot be stored is removed first; directories are made ours to write in."""
        while True:
            for directory, _, _ in os.walk(self.path, followlinks=False):
                if stat.S_IMODE(os.lstat(directory).st_mode) & 0o700 != 0o700:
                    os.chmod(directory, 0o700)
            try:
                return self.look()
            except UsageError:
                self._remove_odd()

    def _remove_odd(self) -> None:
        for directory, _, names in os.walk(self.path, followlinks=False):
            for name in names:
                path = os.path.join(directory, name)
                mode = os.lstat(path).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                    os.unlink(path)

    def _content(self, path: str, seen: Seen) -> FileRef:
        known = self._known.get(path)
        if known is not None and known[0] == seen.stamp:
            return known[1]
        found: list[FileRef] = []
        with contextlib.suppress(PermissionError), self._open(path) as stream:
            for _ in chunks_of(stream, found.append):
                pass
        return found[0] if found else FileRef("", 0)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (directory, name):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)

    async def _fetch(self, files: FileStore, run_id: RunId, group: list[tuple[str, File]]) -> None:
        small = [each for each in group if not each[1].content.listed]
        digests = sorted({each.content.sha256 for _, each in small if each.content.size})
        found = await sound_chunks(files, run_id, digests) if digests else {}
        await asyncio.to_thread(
            self._write_all, [(path, each, found.get(each.content.sha256, b"")) for path, each in small]
        )
        for path, each in group:
            if each.content.listed:
                with self._create(path) as stream:
                    async for data in read_chunks(files, run_id, each.content):
                        await asyncio.to_thread(stream.write, data)
                    self._written(path, each, stream)

    def _write_all(self, files: list[tuple[str, File, bytes]]) -> None:
        for path, each, data in files:
            with self._create(path) as stream:
                stream.write(data)
                self._written(path, each, stream)

    def _create(self, path: str) -> BinaryIO:
        with self._parent(path) as (directory, name):
            return open(os.open(name, _CREATE, 0o600, dir_fd=directory), "wb")

    def _written(self, path: str, each: File, stream: BinaryIO) -> None:
        stream.flush()
        os.fchmod(stream.fileno(), each.mode)
        self._known[path] = Stamp.of(os.fstat(stream.fileno())), each.content

    def _settle(self, wanted: dict[str, File | Link | Directory], was_written: bool) -> None:
        """The modes of directories, from the leaves up; and what was written is to be older than what comes."""
        for path in sorted((p for p, each in wanted.items() if isinstance(each, Directory)), reverse=True):
            want = wanted[path]
            assert isinstance(want, Directory)
            with self._parent(path) as (directory, name):
                os.chmod(name, want.mode, dir_fd=directory)
        for path, each in wanted.items():
            if isinstance(each, Link):
                self._refuse_outward(path, each.target)
        last_ns = max((stamp.changed_ns for stamp, _ in self._known.values()), default=0) if was_written else 0
        while last_ns and self._tick() <= last_ns:
            time.sleep(0.001)


def _refuse_tampered(path: str, target: str) -> None:
    if os.path.isabs(target) or os.path.normpath(os.path.join(os.path.dirname(path), target)).startswith(".."):
        raise DamagedFile(f"{path} in a workspace is stored as a link to {target}, which leads out of it.")


def _groups(missing: list[tuple[str, File]]) -> Iterator[list[tuple[str, File]]]:
    group: list[tuple[str, File]] = []
    size = 0
    for path, each in missing:
        if group and (size + each.content.size > 4 * CHUNK or len(group) >= _AT_ONCE):
            yield group
            group, size = [], 0
        group.append((path, each))
        size += each.content.size
    if group:
        yield group


async def save_tree(files: FileStore, run_id: RunId, tree: Directory, *, path: str) -> None:
    """Write a tree to a directory of the user's, which is empty."""
    folder = f"{path.rstrip('/')}.{new_uuid().hex}"
    os.mkdir(folder, 0o700)
    try:
        place = WorkingDirectory(folder, Ignored(()))
        await place.hold(files, run_id, tree)
        os.chmod(place.path, 0o755)  # noqa: S103 - as mkdir does
        os.rename(place.path, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
