"""Ctrl-C while a run is waited for: it is left as a crash would leave it, but in good order.

The first one cancels whoever waits, and closing hands the run over; that waits for `def` bodies, which nobody can stop.
The second one does not wait. Both end with the same sentence: the run is safe, and how to go on with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

EXIT_CODE: Final = 130
_PATIENCE_S: Final = 0.5


def is_default() -> bool:
    """Does Ctrl-C do here what it does in any script? Else somebody listens to it already, or nobody can."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def left_safe(run_id: str, command: str) -> str:
    """`run order-7 is left safe. Go on with: holdfast resume order-7 shop.py`"""
    return f"run {run_id} is left safe. Go on with: {command}"


class Interruption:
    """Ctrl-C while one coroutine works; `told` is what to say then."""

    def __init__(self, told: Callable[[], str]) -> None:
        self.told = told
        self.times = 0

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; Ctrl-C raises CancelledError in it, and a second one ends the process."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            return await work
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.times += 1
        if self.times > 1:
            _say(self.told())
            os._exit(EXIT_CODE)
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._loop.call_later(_PATIENCE_S, _say, "Waiting for a call to end; Ctrl-C again leaves at once.")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
