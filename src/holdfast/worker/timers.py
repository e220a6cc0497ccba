"""Things to do at wall-clock times.

The wall clock is what due times are written in, and it may jump: somebody sets it, a laptop wakes up, a test moves it.
The loop's clock knows nothing of that. So the loop is asked for the earliest due time, but never for more than a
second ahead, and then the wall clock is looked at again. If it went forward, what is due meanwhile happens at once and
once; if it went back, it is waited for.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import Final

from holdfast.base import clock

#: How long a jump of the wall clock may go unnoticed.
_LOOK_S: Final = 1.0
#: The loop's clock and the wall clock do not run alike: the last bit is waited for without haste.
_LEAST_S: Final = 0.001
#: Callbacks in one turn of the loop.
_TURN: Final = 1000
#: Cancelled timers that are kept until it is worth the work to throw them out.
_FEW: Final = 64


class Timer:
    """Something that is to happen at a time, once, unless it is cancelled."""

    __slots__ = ("_callback", "_timers", "due_us")

    def __init__(self, timers: Timers, due_us: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback: Callable[[], None] | None = callback
        self.due_us = due_us

    def cancel(self) -> None:
        """It will not happen; nothing, if it has."""
        if self._callback is not None:
            self._callback = None
            self._timers._one_cancelled()

    @property
    def is_live(self) -> bool:
        """Is it still going to happen?"""
        return self._callback is not None

    def _take(self) -> Callable[[], None] | None:
        callback, self._callback = self._callback, None
        return callback


class Timers:
    """The timers of one loop, which is the one that the first of them is set in."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._cancelled = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_us = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, due_us: int, callback: Callable[[], None]) -> Timer:
        """Have something called when the wall clock shows this time, or soon if it does; never from within this call.

        Due ones are called in the order of their times, then in the order they were set.

        Example: `timers.at(now_us() + 5_000_000, wake)`
        """
        timer = Timer(self, due_us, callback)
        if self._closed:
            timer._take()
            return timer
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            clock.on_shift(self._shifted)
        self._count += 1
        heapq.heappush(self._heap, (due_us, self._count, timer))
        if self._handle is None or due_us < self._armed_us:
            self._arm()
        return timer

    def next_due(self) -> int | None:
        """The earliest time that something is to happen at, if anything is."""
        heap = self._heap
        while heap and not heap[0][2].is_live:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def close(self) -> None:
        """Nothing happens any more."""
        self._closed = True
        clock.off_shift(self._shifted)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for _, _, timer in self._heap:
            timer._take()
        self._heap.clear()
        self._cancelled = 0

    def _shifted(self) -> None:
        """The wall clock was moved, perhaps by another thread."""
        assert self._loop is not None
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._arm()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arm)

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        due_us = self.next_due()
        if due_us is None or self._loop is None or self._closed:
            return
        ahead_us = due_us - clock.now_us()
        if ahead_us > 0 and clock.is_frozen():
            return  # looking again and again would change nothing
        delay_s = min(max(ahead_us / 1_000_000, _LEAST_S), _LOOK_S) if ahead_us > 0 else 0.0
        self._armed_us = due_us
        # In a context of its own: the timer may be set from inside a run, and the next one is of another run.
        self._handle = self._loop.call_later(delay_s, self._look, context=contextvars.Context())

    def _look(self) -> None:
        self._handle = None
        now_us, newest = clock.now_us(), self._count
        heap = self._heap
        try:
            for _ in range(_TURN):
                # One that a callback has set meanwhile waits for the next turn: the loop must get its own.
                if not heap or heap[0][0] > now_us or heap[0][1] > newest:
                    break
                callback = heapq.heappop(heap)[2]._take()
                if callback is None:
                    self._cancelled -= 1
                else:
                    self._call(callback)
        finally:
            self._arm()

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # of one; the others are not to blame
            assert self._loop is not None
            self._loop.call_exception_handler(
                {"message": "what was to happen at a time failed", "exception": error, "callback": callback}
            )

    def _one_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
            # In place: a callback that cancels others is called with the heap in use.
            self._heap[:] = [entry for entry in self._heap if entry[2].is_live]
            heapq.heapify(self._heap)
            self._cancelled = 0
