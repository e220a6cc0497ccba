"""Whether a path still names the file that it named: asked after each commit, so it may cost next to nothing.

On file systems of this machine Linux tells it by itself, at the moment when it happens (inotify). Elsewhere, where
others may delete a file without a word, the name is looked up each time. That never uses `stat`, which asks for the
time of the last change too: it makes Linux note the exact time of the next write, and so sync the inode with each
commit. `statx` asks for what is needed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = 0x4 | 0x400 | 0x800  # its links have changed, it was deleted, it was moved
_INODE = 0x100
#: ext4, xfs, btrfs, tmpfs, f2fs, zfs, overlay
_OWN = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0x794C7630})


class Watch:
    """The file that a path names now."""

    def __init__(self, path: str) -> None:
        self._libc = ctypes.PyDLL(None)  # which keeps the interpreter: all of this is done in less than a switch takes
        self._descriptor = self._watched(path)
        self.is_told = self._descriptor >= 0  #: does the kernel say so by itself?
        if not self.is_told:
            self._descriptor = os.open(os.path.dirname(path) or ".", _FOLDER)
            inode = self._inode_of(path)
            known = inode()
            self.has_news: Callable[[], bool] = lambda: inode() != known  #: may the path name another file, or none?
        else:
            read = self._libc.read
            ask = (ctypes.c_int(self._descriptor), ctypes.create_string_buffer(4096), ctypes.c_size_t(4096))
            self.has_news = lambda: read(*ask) != -1

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.has_news = lambda: True

    def _watched(self, path: str) -> int:
        """What the kernel tells of the file; -1 if it cannot, or not of everybody who deletes it."""
        begin, add = getattr(self._libc, "inotify_init1", None), getattr(self._libc, "inotify_add_watch", None)
        if begin is None or add is None or self._kind_of(path) not in _OWN:
            return -1
        descriptor = begin(os.O_NONBLOCK | os.O_CLOEXEC)  # there is a limit to how many a user has
        if descriptor >= 0 and add(descriptor, os.fsencode(path), _GONE) < 0:
            os.close(descriptor)
            return -1
        return int(descriptor)

    def _kind_of(self, path: str) -> int:
        found = ctypes.create_string_buffer(256)
        if self._libc.statfs(os.fsencode(path), found) != 0:
            return 0
        return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF

    def _inode_of(self, path: str) -> Callable[[], object]:
        statx = getattr(self._libc, "statx", None)
        if statx is None:
            return lambda: _inode(path)
        name, found = ctypes.c_char_p(os.fsencode(os.path.basename(path))), ctypes.create_string_buffer(256)
        ask = (ctypes.c_int(self._descriptor), name, ctypes.c_int(0), ctypes.c_uint(_INODE), found)
        return lambda: found[32:40] if statx(*ask) == 0 else b""


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return -1
