"""What the log had, kept outside of it: a mark for each process, so that a log that was lost is noticed.

SQLite opens a database without its log, or with half of it, and says nothing: all that was only there never happened.
So each process notes in a file of its own, after each commit, how far the log had come (which round of it, how many
frames), and a number that is counted up in the database once in each round of the log. Both are true for ever: a log of
that round has at least these frames, and the database, with or without a log, at least that number. Where it is not so,
commits are gone, and the store is not opened.

A mark is written after the commit was synced and is not synced itself. Killed processes leave it; power loss may leave
an older one, which says less and nothing wrong. A process that closes the store in good order removes its own.

There are two slots, written in turn: one that was cut off leaves the other. A slot is written once in each round, and
then each commit sets one word of it, which the processor does at once or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import zlib
from typing import NamedTuple

import apsw

from holdfast.base import clock
from holdfast.base.ids import new_worker_id
from holdfast.errors import StoreError
from holdfast.model import Definition
from holdfast.store import forks
from holdfast.store.queries import load_queries
from holdfast.store.rows import definition_parameters
from holdfast.store.sqlite import reads
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.identity import LogState
from holdfast.store.sqlite.owners import Owners, open_unlinked

_KIND, _NAME = "log", "rounds"
_AHEAD = 1 << 32  # a copy is ahead of all marks of what it is a copy of
_MARK = struct.Struct("<4s8sIQ")
_SUM = struct.Struct("<I")
_USED = _MARK.size + _SUM.size
_MAGIC = b"Hfmk"
_SLOT = 64
_WORD = struct.Struct("=Q")  # of a slot: how many frames there are by now, twice, so that what is damaged is known
_WORD_AT = 32
_TWICE = (1 << 32) + 1
SUFFIX = ".mark"


class Found(NamedTuple):
    """What a mark says."""

    file: str
    salts: bytes
    frames: int
    number: int


class Mark:
    """The mark of one store in one process. `verified`: files of others that hold; those of dead ones are removed."""

    def __init__(self, directory: str, verified: list[str], owners: Owners) -> None:
        self._file = os.path.join(directory, f"{new_worker_id()}{SUFFIX}")
        self._directory = directory
        self._verified = verified
        self._owners = owners
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        self._words: memoryview | None = None  # of the map, once the slot of this round is written
        self._slot = self._word = 0
        self._count = 0
        self._salts = b""
        self._first = 0
        forks.register(self)

    def forked(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # or a dead parent would look alive
            self._descriptor = self._map = self._words = None

    def is_outdated(self, log: LogState) -> bool:
        """Whether what was counted last would survive the loss of the log."""
        return log.salts != self._salts or log.backfilled >= self._first

    def count(self, transaction: Transaction) -> int:
        """Count up, in a transaction that is under way."""
        if self._count and self._counts(transaction, self._count + 1):  # nobody else has since: no need to look
            return self._count + 1
        known = stored_count(transaction.connection)
        if not known:
            return _count_from(transaction.connection, clock.now_us())  # ahead of marks of a store that was here before
        self._counts(transaction, known + 1)
        return known + 1

    def _counts(self, transaction: Transaction, number: int) -> bool:
        """False: another number comes next."""
        return transaction.define(Definition(_KIND, _NAME, "{}", number, None), again=False)

    def counted(self, number: int, before: LogState, after: LogState) -> None:
        """The transaction that counted was committed."""
        self._count, self._salts, self._words = number, after.salts, None
        self._first = before.frames + 1 if before.salts == after.salts else 1

    def write(self, salts: bytes, frames: int) -> None:
        """Note how far the log is now."""
        if salts == self._salts:
            if self._words is not None:
                self._words[self._word] = frames * _TWICE
            elif self._map is not None or self._create():
                self._write_slot(frames)

    def _write_slot(self, frames: int) -> None:
        assert self._map is not None
        values = _MARK.pack(_MAGIC, self._salts, frames, self._count)
        slot = self._slot = self._slot ^ _SLOT
        self._map[slot : slot + _SLOT] = bytes(_SLOT)  # the word of a former round goes first
        self._map[slot : slot + _USED] = values + _SUM.pack(zlib.crc32(values))
        self._words, self._word = memoryview(self._map).cast("Q"), (slot + _WORD_AT) // _WORD.size
        while self._verified:
            _remove_dead(self._verified.pop())

    def drop(self, *, others: bool) -> None:
        """All that was committed is safe; `others`: the log is empty, so whatever dead processes noted is, too."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._file)
            os.close(self._descriptor)
            self._descriptor = self._map = self._words = None
        if others:
            for found in marks(self._directory):
                _remove_dead(found.file)

    def _create(self) -> bool:
        """Without a mark less is noticed, and nothing fails."""
        with contextlib.suppress(OSError, StoreError):
            self._descriptor = self._owners.open(self._file, os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._descriptor, bytes(2 * _SLOT), 0)  # a page without space behind it would kill who writes
            self._map = mmap.mmap(self._descriptor, 2 * _SLOT)
        return self._map is not None


def marks(directory: str) -> list[Found]:
    """All marks there are; of one that cannot be read nothing is known."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [
        found for name in names if name.endswith(SUFFIX) and (found := _read(os.path.join(directory, name))) is not None
    ]


def _read(path: str) -> Found | None:
    with contextlib.suppress(OSError), open(path, "rb", opener=open_unlinked) as file:
        content = file.read(2 * _SLOT).ljust(2 * _SLOT, b"\0")
        slots = []
        for start in (0, _SLOT):
            values = content[start : start + _MARK.size]
            if values.startswith(_MAGIC) and _SUM.unpack_from(content, start + _MARK.size)[0] == zlib.crc32(values):
                _, salts, frames, number = _MARK.unpack(values)
                again, since = divmod(_WORD.unpack_from(content, start + _WORD_AT)[0], 1 << 32)
                slots.append(Found(path, salts, max(frames, since) if again == since else frames, number))
        # Frames grow within a round, and the number from one round to the next.
        return max(slots, key=lambda slot: (slot.number, slot.frames), default=None)
    return None


def _remove_dead(path: str) -> None:
    """Remove a mark whose process is gone: nobody has it locked."""
    with contextlib.suppress(OSError):
        descriptor = open_unlinked(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(descriptor)


def stored_count(connection: apsw.Connection) -> int:
    """The number in the database."""
    try:
        found = reads.definitions(connection, _KIND, names=[_NAME], due=None, limit=1)
    except apsw.SQLError:  # not even the tables are there
        return 0
    return found[0].revision if found else 0


def go_ahead(connection: apsw.Connection) -> None:
    """Make a copy one that no mark of the original is ahead of: whoever puts it in place knows what is lost."""
    number = stored_count(connection) + _AHEAD
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(load_queries("sqlite")["forget"], (_KIND, f'["{_NAME}"]', None))
    _count_from(connection, number)
    connection.execute("COMMIT")


def _count_from(connection: apsw.Connection, number: int) -> int:
    first = definition_parameters(Definition(_KIND, _NAME, "{}", number, None))
    connection.execute(load_queries("sqlite")["define_first"], first)
    return number
