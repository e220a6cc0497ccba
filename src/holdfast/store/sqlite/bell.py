"""A bell between processes: eight bytes of a file that every process maps, and that whoever rings makes new.

Whoever has made them new knocks at the file, and whoever waits hears that (`ear`). Both together are a memory access
and a microsecond in the kernel, for which the thread that writes does not give up the interpreter lock. Where knocks
are not heard, the bytes are looked at every 5 ms.

It is a hint and nothing more. Without the file (read-only, removed, in a forked child) a listener hears nothing and
wakes up when its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os

from holdfast.base import clock
from holdfast.errors import StoreError
from holdfast.store import forks
from holdfast.store.sqlite.ear import Door, Ear
from holdfast.store.sqlite.owners import Owners

_POLL_S = 0.005
_LOOK_US = 500_000  # how often it is checked that the file is still the one that others map
_SIZE = 8
_TRUST = 3  # rings in a row that nobody knocked for, before the ear is not relied on any more


class _File:
    """The file that a path names, mapped; an OSError, ValueError or StoreError, if none can be."""

    def __init__(self, path: str, owners: Owners, *, writable: bool) -> None:
        descriptor = owners.open(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY)
        self.door = Door(descriptor)
        with contextlib.suppress(OSError, AttributeError):  # it is somebody else's, or another system
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NOATIME)  # else knocking may write to the disk
        status = os.fstat(descriptor)
        if status.st_size < _SIZE and writable:
            os.pwrite(descriptor, bytes(_SIZE), 0)  # a page without space behind it would kill who writes there
        self.id = (status.st_dev, status.st_ino)
        self.bytes = mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)


class Bell:
    """One store's bell, as one process hears and rings it."""

    def __init__(self, path: str, owners: Owners) -> None:
        self._path = path
        self._owners = owners
        self._writable = False
        self._is_open = False
        self._file: _File | None = None
        self._ear: Ear | None = None
        self._unheard = 0
        self._heard = b""
        self._look_at = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
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
        self._file = self._ear = None  # not closed: another thread may be ringing
        for loop, waiter in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(_resolve, waiter)

    def forked(self) -> None:
        # What the child inherited is closed before it can disturb the parent, whose event loop has it registered.
        if self._ear is not None:
            self._ear.close()
        if self._file is not None:
            self._file.door.close()
        self._is_open = False
        self._file = self._ear = None
        self._waiting.clear()

    def ring(self) -> None:
        if not self._is_open or not self._writable:
            return
        now = clock.monotonic_us()
        if now >= self._look_at:
            self._look(now)
        file = self._file
        if file is not None:
            self._rung += 1
            file.bytes[:_SIZE] = (os.getpid() << 40 | self._rung & 0xFF_FFFF_FFFF).to_bytes(_SIZE, "little")
            file.door.knock()  # after that: whoever hears it finds the bytes new

    async def changed(self, timeout_s: float) -> bool:
        """Whether somebody rang since the last call; False after a time, or when the bell is closed."""
        give_up = clock.monotonic_us() + int(timeout_s * 1e6)
        while self._is_open:
            now = clock.monotonic_us()
            if now >= self._look_at:
                self._look(now)
            if timeout_s > 0:
                self._listen()
            if self._has_rung():
                return True
            if now >= give_up:
                break
            await self._wait((give_up - now) / 1e6, (self._look_at - now) / 1e6)
        return False

    def _has_rung(self) -> bool:
        ear = self._ear
        if ear is not None and ear.has_news():
            self._unheard = 0
        value = self._value()
        if value == self._heard:
            return False
        self._heard = value
        if ear is not None and not ear.is_deaf:
            self._unheard += 1  # until the next knock, which may be on its way
        return True

    def _value(self) -> bytes:
        file = self._file
        return file.bytes[:_SIZE] if file is not None else self._heard

    def _listen(self) -> None:
        """Have an ear at the file that is mapped now, unless there are rings that it does not hear."""
        file = self._file
        if file is None or self._unheard > _TRUST:
            self._ear = None
        elif self._ear is None or self._ear.door is not file.door:
            self._ear, self._unheard = Ear(self._path, file.door), 0

    async def _wait(self, most_s: float, look_s: float) -> None:
        """Wait for a knock, for a time, or until it is time to look."""
        ear = self._ear if self._ear is not None and not self._ear.is_deaf and not self._waiting else None
        has_to_poll = ear is None and self._file is not None
        wait_s = min(most_s, _POLL_S if has_to_poll else max(look_s, _POLL_S))
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(wait_s, _resolve, waiter)
        self._waiting.add((loop, waiter))
        try:
            if ear is not None:
                loop.add_reader(ear.descriptor, _resolve, waiter)
            await waiter
        finally:
            if ear is not None and not ear.is_deaf:  # as it is in a forked child
                loop.remove_reader(ear.descriptor)
            self._waiting.discard((loop, waiter))
            timer.cancel()

    def _look(self, now: int) -> None:
        """Map the file that the path names now."""
        self._look_at = now + _LOOK_US
        try:
            status = os.lstat(self._path)
            file = self._file
            if file is not None and (status.st_dev, status.st_ino) == file.id and status.st_size >= _SIZE:
                return
        except OSError:
            pass  # made anew below, if that is possible
        self._file = None
        with contextlib.suppress(OSError, ValueError, StoreError):  # what is not ours is not listened to
            self._file = _File(self._path, self._owners, writable=self._writable)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
