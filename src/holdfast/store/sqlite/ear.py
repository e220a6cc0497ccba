"""Hearing that somebody knocks at a file, without looking at it again and again: the kernel tells (inotify).

A knock is a byte read from the file. It changes nothing on disk, waits for nothing, and is heard by everybody who may
read the file, in whatever process. Where the kernel does not tell (another system, no inotify left for this user, a
file system that keeps it to itself) an ear is deaf, and whoever would listen has to look.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from holdfast.store.sqlite.inotify import Inotify

_READ_FROM = 0x1  # the event


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
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1


class Ear(Inotify):
    """Hears who knocks at a door, which has to be that of the file at `path`."""

    def __init__(self, path: str, door: Door) -> None:
        super().__init__(path, _READ_FROM)
        self.door = door
        if not self.is_deaf:
            door.knock()
            if not self.has_news():  # not every file system tells, and the path may name another file by now
                self.close()

    @property
    def is_deaf(self) -> bool:
        return self.descriptor < 0
