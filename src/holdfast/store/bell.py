"""A bell between processes: eight bytes of a file that every process maps, and that whoever rings makes new.

Ringing and looking are memory accesses: the thread that writes does not give up the interpreter lock for them. It is a
hint and nothing more. Without the file (read-only, removed, in a forked child) a listener hears nothing and wakes up
when its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os

from holdfast import clock
from holdfast.store import forks

_POLL_S = 0.005
_LOOK_US = 500_000  # how often it is checked that the file is still the one that others map
_SIZE = 8


class Bell:
    """One store's bell, as one process hears and rings it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writable = False
        self._is_open = False
        self._map: mmap.mmap | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what is mapped
        self._heard = b""
        self._look_at = 0
        # Never the same twice: the process, and a number that goes up. Times of start keep namesakes apart.
        self._rung = clock.monotonic_us()
        forks.register(self)

    def open(self, *, read_only: bool) -> None:
        self._is_open, self._writable = True, not read_only
        self._look(clock.monotonic_us())
        self._heard = self._value()

    def close(self) -> None:
        """Whoever waits stops waiting."""
        self._is_open = False
        self._map = self._file = None  # not closed: another thread may be looking

    def forked(self) -> None:
        self.close()

    def ring(self) -> None:
        if not self._is_open or not self._writable:
            return
        now = clock.monotonic_us()
        if now >= self._look_at:
            self._look(now)
        if self._map is not None:
            self._rung += 1
            self._map[:_SIZE] = (os.getpid() << 40 | self._rung & 0xFF_FFFF_FFFF).to_bytes(_SIZE, "little")

    async def changed(self, timeout_s: float) -> bool:
        """Whether somebody rang since the last call; False after a time, or when the bell is closed."""
        give_up = clock.monotonic_us() + int(timeout_s * 1e6)
        while self._is_open:
            now = clock.monotonic_us()
            if now >= self._look_at:
                self._look(now)
            value = self._value()
            if value != self._heard:
                self._heard = value
                return True
            if now >= give_up:
                break
            await asyncio.sleep(min(_POLL_S, (give_up - now) / 1e6))
        return False

    def _value(self) -> bytes:
        mapped = self._map
        return mapped[:_SIZE] if mapped is not None else self._heard

    def _look(self, now: int) -> None:
        """Map the file that the path names now."""
        self._look_at = now + _LOOK_US
        try:
            status = os.stat(self._path)
            if (status.st_dev, status.st_ino) == self._file and status.st_size >= _SIZE:
                return
        except OSError:
            pass  # made anew below, if that is possible
        self._map = self._file = None
        with contextlib.suppress(OSError, ValueError):
            self._map, self._file = self._open_file()

    def _open_file(self) -> tuple[mmap.mmap, tuple[int, int]]:
        flags = os.O_RDWR | os.O_CREAT if self._writable else os.O_RDONLY
        descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            status = os.fstat(descriptor)
            if status.st_size < _SIZE and self._writable:
                os.pwrite(descriptor, bytes(_SIZE), 0)  # a page without space behind it would kill who writes there
            mapped = mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ)
            return mapped, (status.st_dev, status.st_ino)
        finally:
            os.close(descriptor)
