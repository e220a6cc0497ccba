"""Whether a path still names the file that it named: asked after each commit, so it may cost next to nothing.

And with the same question, whether another file may have another length: a database that is written through its log
changes only when that is checkpointed, so it need not be measured as long as nobody has changed it.

On file systems of this machine Linux tells it by itself, at the moment when it happens (inotify). Elsewhere, where
others may delete a file without a word, the name is looked up each time. That never uses `stat`, which asks for the
time of the last change too: it makes Linux note the exact time of the next write, and so sync the inode with each
commit. `statx` asks for what is needed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from holdfast.base import system
from holdfast.store.sqlite.inotify import Inotify

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = 0x4 | 0x400 | 0x800  # its links have changed, it was deleted, it was moved
_INODE = 0x100
_CHANGED = 0x2  # written to, or cut short
_OVERLAY = 0x794C7630  # of which a file lies in another file system, where it may be cut short, too
#: ext4, xfs, btrfs, tmpfs, f2fs, zfs, overlay
_OWN = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, _OVERLAY})


class FileWatch:
    """The file that a path names now, and the length of another one (`measured`)."""

    def __init__(self, path: str, measured: str | None = None) -> None:
        self._libc = ctypes.PyDLL(None)
        self._folder = -1
        # Elsewhere than on file systems of this machine it is not told of everybody who deletes it.
        kind = system.kind_of_file_system(path)
        self._told = Inotify(path, _GONE) if kind in _OWN else None
        self.is_told = self._told is not None and self._told.descriptor >= 0  #: does the kernel say so by itself?
        #: Is there news, too, whenever the length of the other file may have changed?
        self.is_told_of_size = False
        if self._told is not None and self.is_told and measured is not None and kind != _OVERLAY:
            self.is_told_of_size = self._told.add(measured, _CHANGED)
        if self._told is not None and self.is_told:
            self.has_news: Callable[[], bool] = self._told.has_news  #: may the path name another file, or none?
        else:
            self._folder = os.open(os.path.dirname(path) or ".", _FOLDER)
            inode = self._inode_of(path)
            known = inode()
            self.has_news = lambda: inode() != known

    def close(self) -> None:
        self.has_news = lambda: True
        if self._told is not None:
            self._told.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _inode_of(self, path: str) -> Callable[[], object]:
        statx = getattr(self._libc, "statx", None)
        if statx is None:
            return lambda: _inode(path)
        name, found = ctypes.c_char_p(os.fsencode(os.path.basename(path))), ctypes.create_string_buffer(256)
        ask = (ctypes.c_int(self._folder), name, ctypes.c_int(0), ctypes.c_uint(_INODE), found)
        return lambda: found[32:40] if statx(*ask) == 0 else b""


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return -1
