"""Which files a store has open, to notice that they were deleted, replaced or cut short under it.

A commit is acknowledged only if the log that it was written to is still the one that the path names. And a log that is
shorter than its own index says has lost commits: that is looked at before each commit, which would fill the gap with
nothing. What is cut off between that look and the write is a gap then: the frame before the new ones is looked at after
each commit, too. The format of the index is https://sqlite.org/walformat.html#the_wal_index_file_format.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import NamedTuple

from holdfast.errors import StoreReplaced
from holdfast.store import forks
from holdfast.store.sqlite.guard import Held
from holdfast.store.sqlite.owners import open_unlinked
from holdfast.store.sqlite.watch import FileWatch

_COPY = 48  # bytes of the header, which is there twice: while they differ it is being written
_INDEX = struct.Struct("=14x H I I 8x 8s 8x 48x I")
_FRAMES = slice(16, 20)  # where the header says how many there are
_LOG_HEADER, _FRAME_HEADER = 32, 24
_SALTS = 8  # bytes: where a frame has those of its log, and how many these are
_FIRST_SALTS = _LOG_HEADER + _SALTS
_LARGE = 1  # what the index says of pages of 64 KB
# Looked up once: this is on the way of each commit, where whatever is touched has to come from memory first.
_read_index, _new, _seek, _END = _INDEX.unpack_from, tuple.__new__, os.lseek, os.SEEK_END
_pread = os.pread


class LogState(NamedTuple):
    """What the index says of the log: all of it is committed and synced."""

    size: int  #: of a page, as it is stored
    frames: int
    pages: int  #: that the database has
    salts: bytes  #: of this round: they change when the log begins anew
    backfilled: int  #: frames that were checkpointed

    @property
    def page_bytes(self) -> int:
        return 65536 if self.size == _LARGE else self.size

    @property
    def log_bytes(self) -> int:
        """What the log has at least."""
        return _LOG_HEADER + self.frames * (_FRAME_HEADER + self.page_bytes) if self.frames else 0

    @property
    def last_frame(self) -> int:
        """Where in the log it begins, if there is one."""
        return self.log_bytes - _FRAME_HEADER - self.page_bytes

    @property
    def file_bytes(self) -> int:
        """What the database has once all of the log is checkpointed."""
        return self.pages * self.page_bytes


class Identity:
    """The files of one store, as they were when it was opened."""

    def __init__(self, path: str, held: Held | None) -> None:
        self.failure: StoreReplaced | None = None  #: what was found; it stays, whatever is done to the files then
        self._held = held
        self._wal = f"{path}-wal"
        self._paths = (path, self._wal, f"{path}-shm") if held is not None else (path,)
        self._known = tuple(map(_look, self._paths))
        self._log = open_unlinked(self._wal, os.O_RDONLY) if held is not None else -1
        self._watch = FileWatch(self._wal, path) if held is not None else None
        self._most = os.stat(path).st_size

    @property
    def file(self) -> forks.FileId | None:
        return self._known[0]

    def close(self) -> None:
        if self._log >= 0:
            os.close(self._log)  # SQLite has no locks on the log itself
            self._log = -1
        if self._watch is not None:
            self._watch.close()

    def check(self) -> None:
        """Raise StoreReplaced if the paths no longer name the files that are open, or these are cut short."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else it would grow
        for path, known in zip(self._paths, self._known, strict=True):
            now = _look(path)
            if now != known:
                what = "deleted" if now is None else "replaced by another file"
                self._fail(f"{path} was {what} while this process used it.")
        if self._held is not None:
            state = self._state()
            self._check_log(state)
            self._check_size(state, _size(self._held.main))

    def before_commit(self) -> LogState | None:
        """Raise StoreReplaced if the log is cut short; else what it has.

        Right after BEGIN IMMEDIATE: nobody else writes to the index, so it is read without comparing its copies.
        """
        assert self._held is not None
        index = self._held.index
        if index is None:
            return None
        state: LogState = _new(LogState, _read_index(index))
        size, frames, _, _, _ = state
        if _seek(self._log, 0, _END) < frames * (size + _FRAME_HEADER) + _LOG_HEADER or size == _LARGE:
            self._check_log(state)
        return state

    def after_commit(self, before: LogState | None, frames: int) -> LogState | None:
        """Raise StoreReplaced if what was just committed may not be in the store's files.

        `before` is what the log had, `frames` what it has. If it can only have been continued, that is all there is to
        look at; else what the log has is returned.
        """
        watch = self._watch
        assert watch is not None
        if watch.has_news():
            self.check()
        is_continued = False
        if before is not None:
            page, known, _, salts, backfilled = before
            if known and _pread(self._log, _SALTS, (known - 1) * (page + _FRAME_HEADER) + _FIRST_SALTS) != salts:
                self._check_continued(before)
            is_continued = backfilled < known < frames
            if is_continued and watch.is_told_of_size:
                return None
        assert self._held is not None
        size = _size(self._held.main)
        if is_continued and size >= self._most:
            self._most = size
            return None
        state = self._state()
        self._check_size(state, size)
        return state

    def _check_log(self, state: LogState | None) -> None:
        # In this order: a log is made shorter after its index was, never before.
        if state is not None and (size := _size(self._log)) < state.log_bytes and self._state() == state:
            self._fail(f"{self._wal} was cut short under this process, to {size} of {state.log_bytes} bytes.")

    def _check_continued(self, before: LogState) -> None:
        """The last frame that was there before a commit is still there, or the log has begun anew since."""
        if _pread(self._log, _SALTS, before.last_frame + _SALTS) == before.salts:
            return
        # In this order: a log is overwritten or made shorter after its index has other salts, never before.
        if self._held is not None and self._held.index is not None and _read_index(self._held.index)[3] == before.salts:
            self._fail(f"{self._wal} was cut short under this process, while it wrote.")

    def _check_size(self, state: LogState | None, size: int) -> None:
        """A database has all its pages when all of the log was checkpointed. Until then it does not shrink."""
        if state is not None and size < state.file_bytes:
            least = state.file_bytes if state.backfilled >= state.frames else self._most
            if size < least and self._held is not None:
                size = _size(self._held.main)  # again: it may have changed before the index was looked at
                if size < least and self._state() == state:
                    self._fail(f"{self._paths[0]} was cut short under this process, to {size} of {least} bytes.")
        self._most = size

    def commits(self) -> bytes | None:
        """Stands for all that is committed: another one after each commit. None: nothing does, right now.

        As long as the log has frames: then these are in it, with their checksum and a number that each log has anew.
        """
        if self._held is None or self._held.index is None or self.failure is not None:
            return None
        with contextlib.suppress(ValueError):  # it was just closed
            header = self._held.index[: 2 * _COPY]
            if header[:_COPY] == header[_COPY:] and any(header[_FRAMES]):
                return header
        return None

    def _state(self) -> LogState | None:
        """What the log has, unless that is changing right now."""
        if self._held is None or self._held.index is None:
            return None
        index = self._held.index[: _INDEX.size]
        if index[:_COPY] != index[_COPY : 2 * _COPY]:
            return None
        return LogState._make(_INDEX.unpack(index))

    def _fail(self, what: str) -> None:
        self.failure = StoreReplaced(
            f"{what} Nothing more is written. Stop all workers, put the right files back (the database with its -wal) "
            "or restore a backup, start again."
        )
        raise self.failure


def _size(descriptor: int) -> int:
    return os.lseek(descriptor, 0, os.SEEK_END)


def _look(path: str) -> forks.FileId | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
