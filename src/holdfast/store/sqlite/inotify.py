"""What the kernel tells of files by itself: asked with one call that finds nothing.

That call is to an epoll: of those that do not wait it is the cheapest, and it knows at once that something came. There
is a limit to how many a user has (128, unless told otherwise), and not every system or file system tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select

_DONT_FOLLOW = 0x02000000
_ROOM = 4096


class Inotify:
    """Watches the file at a path for some events. `descriptor` is readable when one came; -1: nothing is told."""

    def __init__(self, path: str, events: int) -> None:
        self._libc = libc = ctypes.PyDLL(None)  # which keeps the interpreter: all of this takes less than a switch
        self._ready: select.epoll | None = None
        begin = getattr(libc, "inotify_init1", None)  # another system has none
        self.descriptor: int = -1 if begin is None else begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor >= 0 and not (self._can_ask() and self.add(path, events)):
            self.close()

    def __del__(self) -> None:
        self.close()

    def add(self, path: str, events: int) -> bool:
        """Watch another file as well; False: it is not watched."""
        watch: int = self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), events | _DONT_FOLLOW)
        return watch >= 0

    def has_news(self) -> bool:
        """Whether something came since the last call."""
        if self._ready is None or not self._ready.poll(0, 1):
            return False
        os.read(self.descriptor, _ROOM)
        return True

    def close(self) -> None:
        if self._ready is not None:
            self._ready.close()
            self._ready = None
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
        self.descriptor = -1

    def _can_ask(self) -> bool:
        with contextlib.suppress(OSError):  # there is no room for one more
            self._ready = select.epoll(1)
            self._ready.register(self.descriptor, select.EPOLLIN)
            return True
        return False
