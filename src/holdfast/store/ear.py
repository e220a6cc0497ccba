"""Hearing that somebody knocks at a file, without looking at it again and again: the kernel tells (inotify).

A knock is a byte read from the file. It changes nothing on disk, waits for nothing, and is heard by everybody who may
read the file, in whatever process. Where the kernel does not tell (another system, no inotify left for this user, a
file system that keeps it to itself) an ear is deaf, and whoever would listen has to look.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_READ_FROM = 0x1  # the event
_DONT_FOLLOW = 0x02000000
_ROOM = 4096


class Door:
    """A file to knock at. It is closed with the last reference to it: another thread may be about to knock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A library that keeps the interpreter: a knock takes a microsecond, another thread would have it for 5 ms.
        self._read = ctypes.PyDLL(None).pread
        self._ask = (ctypes.c_int(descriptor), ctypes.create_string_buffer(1), ctypes.c_size_t(1), ctypes.c_long(0))

    def __del__(self) -> None:
        self.close()

    def knock(self) -> None:
        self._read(*self._ask)

    def close(self) -> None:
        self._descriptor = _closed(self._descriptor)


class Ear:
    """Hears who knocks at a door, which has to be that of the file at `path`."""

    def __init__(self, path: str, door: Door) -> None:
        self.door = door
        self.descriptor = -1  #: readable when somebody has knocked; -1: deaf
        libc = ctypes.PyDLL(None)
        begin, add = getattr(libc, "inotify_init1", None), getattr(libc, "inotify_add_watch", None)
        if begin is None or add is None:
            return
        self.descriptor = begin(os.O_NONBLOCK | os.O_CLOEXEC)  # there is a limit to how many a user has
        self._read = libc.read
        self._ask = (ctypes.c_int(self.descriptor), ctypes.create_string_buffer(_ROOM), ctypes.c_size_t(_ROOM))
        if self.descriptor >= 0:
            add(self.descriptor, os.fsencode(path), _READ_FROM | _DONT_FOLLOW)
            door.knock()
            if not self.was_knocked():  # not every file system tells, and the path may name another file by now
                self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def is_deaf(self) -> bool:
        return self.descriptor < 0

    def was_knocked(self) -> bool:
        """Whether somebody has knocked since the last call."""
        return self.descriptor >= 0 and self._read(*self._ask) > 0

    def close(self) -> None:
        self.descriptor = _closed(self.descriptor)


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return -1
