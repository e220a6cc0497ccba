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
from collections.abc import Callable, Generator, Iterator, Mapping
from fnmatch import translate
from operator import attrgetter
from typing import BinaryIO, NamedTuple

from holdfast.base.ids import new_uuid
from holdfast.errors import DamagedFile, UsageError
from holdfast.journal.files import CHUNK, Chunks, chunks_of, read_chunks, sound_chunks
from holdfast.journal.trees import EMPTY, Directory, File, Link, chunks_of_list
from holdfast.model import RunId
from holdfast.model.files import FileRef
from holdfast.store.files import FileStore

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SORT = 0o170000  # of what is there, among the bits of its mode
_NAME = attrgetter("name")
_AT_ONCE = 64  # small files that are read from the store together


#: What changes when a file does: its mode, inode, size and times; the last one is that of any change.
Stamp = tuple[int, int, int, int, int]
_STAMP: Callable[[os.stat_result], Stamp] = attrgetter("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")


class Holding(NamedTuple):
    """What a directory holds, as it lies there."""

    mode: int
    files: dict[str, Stamp]
    links: dict[str, Link]
    below: list[str]


class Known(NamedTuple):
    """A directory that was looked at before: what it held, and which of its files have not changed if they are so."""

    files: dict[str, Stamp]
    held: Directory

    def is_still(self, folder: Holding) -> bool:
        """Whether that is what lies there, apart from what its own directories hold."""
        held = self.held.entries
        return (
            self.files == folder.files
            and len(held) == len(folder.files) + len(folder.links) + len(folder.below)
            and all(held.get(name) == link for name, link in folder.links.items())
            and all(type(held.get(name)) is Directory for name in folder.below)
        )


_NOTHING = Known({}, EMPTY)
_NO_HOLDING = Holding(0, {}, {}, [])


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
        self._known: dict[str, Known] = {}  # by path, which ends with a slash
        self._written_ns = 0  # when one of its files was written last
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    @property
    def found(self) -> Directory:
        """What it held when that was learned last."""
        return self._known.get("", _NOTHING).held

    # what it holds

    def look(self, *, is_ours: bool = False) -> dict[str, Holding]:
        """What it holds, by directory, each before those in it.

        `is_ours`: what cannot be stored is removed, and directories are made ours to write in.
        """
        found: dict[str, Holding] = {}
        top = os.open(self.path, _DIRECTORY)
        try:
            self._look(top, "", found, mode=EMPTY.mode, is_ours=is_ours)
        finally:
            os.close(top)
        return found

    def _look(self, directory: int, prefix: str, found: dict[str, Holding], *, mode: int, is_ours: bool) -> None:
        has_patterns = bool(self._ignored.patterns)
        with os.scandir(directory) as entries:
            found_here = sorted(entries, key=_NAME)
        folder = found[prefix] = Holding(mode, {}, {}, [])
        files = folder.files
        for entry in found_here:
            name = entry.name
            if has_patterns and self._ignored.has(f"{prefix}{name}", name):
                continue
            stamp = _STAMP(entry.stat(follow_symlinks=False))
            sort = stamp[0] & _SORT
            if sort == stat.S_IFREG:
                files[name] = stamp
            elif sort == stat.S_IFLNK:
                folder.links[name] = Link(os.readlink(name, dir_fd=directory))
            elif sort == stat.S_IFDIR:
                folder.below.append(name)
                its_mode = stamp[0] & 0o777
                if is_ours and its_mode & 0o700 != 0o700:
                    its_mode = 0o700
                    os.chmod(name, its_mode, dir_fd=directory)
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    self._look(below, f"{prefix}{name}/", found, mode=its_mode, is_ours=is_ours)
                finally:
                    os.close(below)
            elif is_ours:
                os.unlink(name, dir_fd=directory)
            else:
                raise UsageError(
                    f"{prefix}{name} in a workspace is neither a file nor a directory nor a link, and cannot be "
                    "stored. Remove it before the body returns, or give hf.workspace() a pattern for it in ignore=."
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

    def chunks(self, done: Callable[[FileRef, int, int], None], fresh: dict[str, Known]) -> Chunks:
        """The chunks of what has changed, and of the lists; `done` hears of the tree, its files and their bytes.

        `fresh` gets what is known of it then: `learn` it once all of this is stored.
        """
        before_ns = self._tick()
        seen = self.look()
        for path, folder in seen.items():
            for name, link in folder.links.items():
                self._refuse_outward(f"{path}{name}", link.target)
        for path, folder in reversed(seen.items()):
            known = self._known.get(path, _NOTHING)
            held = known.held
            below = {name: fresh[f"{path}{name}/"].held for name in folder.below}
            is_same = held.listed is not None and held.mode == folder.mode and known.is_still(folder)
            if is_same and all(held.entries[name] is each for name, each in below.items()):
                fresh[path] = known
                continue
            entries: dict[str, File | Link | Directory] = {**folder.links, **below}
            for name, stamp in folder.files.items():
                if known.files.get(name) == stamp:
                    entries[name] = held.entries[name]
                else:
                    entries[name] = File(stamp[0] & 0o777, (yield from self._read(f"{path}{name}")))
            files = {name: stamp for name, stamp in folder.files.items() if stamp[-1] < before_ns}
            fresh[path] = Known(files, Directory(folder.mode, entries, (yield from _listed(entries))))
        sizes = [entry.content.size for _, entry in fresh[""].held.walk() if type(entry) is File]
        tree = fresh[""].held.listed
        assert tree is not None
        done(tree, len(sizes), sum(sizes))

    def _read(self, path: str) -> Generator[tuple[str, bytes], None, FileRef]:
        found: list[FileRef] = []
        with self._open(path) as stream:
            yield from chunks_of(stream, found.append)
        return found[0]

    def _open(self, path: str) -> BinaryIO:
        with self._parent(path) as (directory, name):
            return open(os.open(name, _READ, dir_fd=directory), "rb")

    def learn(self, fresh: dict[str, Known]) -> None:
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

    async def hold(self, files: FileStore, run_id: RunId, tree: Directory) -> None:
        """Make it hold just this, apart from what is ignored."""
        missing, modes = await asyncio.to_thread(self._fit, tree)
        for group in _groups(missing):
            await self._fetch(files, run_id, group)
        await asyncio.to_thread(self._settle, tree, modes)

    def _fit(self, tree: Directory) -> tuple[list[tuple[str, File]], dict[str, int]]:
        """Take away what is not wanted, make directories and links; the missing files, and modes of directories."""
        before_ns = self._tick()
        seen = self.look(is_ours=True)
        known_before, self._known, self._written_ns = self._known, {}, 0
        missing: list[tuple[str, File]] = []
        modes: dict[str, int] = {}
        for path, wanted in _directories("", tree):
            folder = seen.get(path, _NO_HOLDING)
            if folder.mode != wanted.mode and path:
                modes[path] = wanted.mode
            known = known_before.get(path, _NOTHING)
            if known.held is wanted and known.is_still(folder):
                self._known[path] = known
                continue
            kept = self._cleared(path, folder, known=known, wanted=wanted)
            for name, entry in wanted.entries.items():
                if name not in kept and self._made(f"{path}{name}", entry) and isinstance(entry, File):
                    missing.append((f"{path}{name}", entry))
            self._known[path] = Known({name: at for name, at in kept.items() if at[-1] < before_ns}, wanted)
        return missing, modes

    def _cleared(self, path: str, folder: Holding, *, known: Known, wanted: Directory) -> dict[str, Stamp]:
        """Take away what is not wanted in a directory; the files that are as they should be."""
        entries = wanted.entries
        kept: dict[str, Stamp] = {}
        for name, stamp in folder.files.items():
            entry = entries.get(name)
            found = known.held.entries[name] if known.files.get(name) == stamp else None
            if not isinstance(entry, File) or entry.content != self._content(f"{path}{name}", found):
                self._remove(f"{path}{name}")
            elif entry.mode == stat.S_IMODE(stamp[0]):
                kept[name] = stamp
        for name, link in folder.links.items():
            if entries.get(name) != link:
                self._remove(f"{path}{name}")
        for name in folder.below:
            if not isinstance(entries.get(name), Directory):
                self._remove(f"{path}{name}")
        return kept

    def _content(self, path: str, known: File | Link | Directory | None) -> FileRef:
        if isinstance(known, File):
            return known.content
        found: list[FileRef] = []
        with contextlib.suppress(PermissionError), self._open(path) as stream:
            for _ in chunks_of(stream, found.append):
                pass
        return found[0] if found else FileRef("", 0)

    def _made(self, path: str, wanted: File | Link | Directory) -> bool:
        """Whether there was nothing: then a directory or a link is there now. A file that is there gets its mode."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (directory, name):
            try:
                mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            except FileNotFoundError:
                if isinstance(wanted, Directory):
                    os.mkdir(name, 0o700, dir_fd=directory)
                elif isinstance(wanted, Link):
                    _refuse_tampered(path, wanted.target)
                    os.symlink(wanted.target, name, dir_fd=directory)
                return True
            if isinstance(wanted, File) and stat.S_IMODE(mode) != wanted.mode:
                os.chmod(name, wanted.mode, dir_fd=directory)
        return False

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
        stamp = _STAMP(os.fstat(stream.fileno()))
        parent, slash, name = path.rpartition("/")
        self._known[f"{parent}{slash}"].files[name] = stamp
        self._written_ns = max(self._written_ns, stamp[-1])

    def _settle(self, tree: Directory, modes: dict[str, int]) -> None:
        """The modes of directories, from the leaves up; and what was written is to be older than what comes."""
        for path, mode in reversed(modes.items()):
            with self._parent(path.rstrip("/")) as (directory, name):
                os.chmod(name, mode, dir_fd=directory)
        for path, each in _directories("", tree):
            for name, entry in each.entries.items():
                if type(entry) is Link:
                    self._refuse_outward(f"{path}{name}", entry.target)
        while self._written_ns and self._tick() <= self._written_ns:
            time.sleep(0.001)


def _listed(entries: Mapping[str, File | Link | Directory]) -> Generator[tuple[str, bytes], None, FileRef]:
    found: list[FileRef] = []
    yield from chunks_of_list(entries, found.append)
    return found[0]


def _directories(path: str, tree: Directory) -> Iterator[tuple[str, Directory]]:
    """A tree and the directories in it, each before those in it."""
    yield path, tree
    for name, entry in tree.entries.items():
        if type(entry) is Directory:
            yield from _directories(f"{path}{name}/", entry)


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
