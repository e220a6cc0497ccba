"""The end of a bell that is inside the process: rung from any thread, heard by whoever waits on an event loop."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.store import forks


class News:
    """Whether somebody rang since the last time that somebody listened."""

    def __init__(self) -> None:
        self._is_open = False
        self._is_rung = False
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        forks.register(self)

    def open(self) -> None:
        self._is_open, self._is_rung = True, False

    def close(self) -> None:
        """Whoever waits stops waiting."""
        self._is_open = False
        self._wake()

    def forked(self) -> None:
        self._is_open = False
        self._waiting.clear()

    def ring(self) -> None:
        """From any thread."""
        self._is_rung = True
        if self._waiting:
            self._wake()

    async def changed(self, timeout_s: float) -> bool:
        """Whether somebody rang since the last call; False after a time, or when it is closed."""
        if self._is_open and not self._is_rung and timeout_s > 0:
            loop = asyncio.get_running_loop()
            waiter = (loop, loop.create_future())
            self._waiting.add(waiter)
            try:
                if not self._is_rung:  # between the look and the entry into the list
                    async with asyncio.timeout(timeout_s):
                        await waiter[1]
            except TimeoutError:
                pass
            finally:
                self._waiting.discard(waiter)
        if not self._is_open or not self._is_rung:
            return False
        self._is_rung = False
        return True

    def _wake(self) -> None:
        for loop, future in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
