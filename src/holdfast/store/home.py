"""Where an app lives: its event loop, in its process. Futures of one loop are never heard of in another."""

from __future__ import annotations

import asyncio
import os

from holdfast.errors import UsageError


class Home:
    """The event loop and process that an app was opened in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def check(self, what: str) -> None:
        """Refuse what is done in another loop: it would wait for ever. A forked process hears that from its store."""
        if asyncio._get_running_loop() is self._loop or os.getpid() != self._pid:
            return
        state = "is closed" if self._loop.is_closed() else "is another thread's, or not the running one"
        raise UsageError(
            f"{what} was called on another event loop than the one that its app was opened on, which {state}. An app "
            "serves one loop: open another with hf.connect(…) in each loop or thread, or hand the call over with "
            "asyncio.run_coroutine_threadsafe(…)."
        )
