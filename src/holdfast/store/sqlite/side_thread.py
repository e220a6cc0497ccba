"""A thread that does things for event loops, one after the other.

An executor of the standard library would do: it keeps a future of its own for each thing, with a lock, and chains the
loop's to it. That is more than half of what a small query costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.store.forks import call_lock

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class SideThread:
    """One thread, until it is stopped."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs, call_lock()), name=name, daemon=True).start()

    async def do(self, job: Callable[[], T]) -> T:
        """Have something done there, and return or raise what it does. Whoever is cancelled does not wait for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, done, job))
        return await done

    def stop(self) -> None:
        """What is queued is done before."""
        self._jobs.put(None)


def _work(jobs: queue.SimpleQueue[_Job | None], busy: threading.Lock) -> None:
    while (job := jobs.get()) is not None:
        loop, done, work = job
        try:
            with busy:
                settle, outcome = done.set_result, None if done.cancelled() else work()
        except BaseException as error:  # whatever it is, it is told to whoever waits
            settle, outcome = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, done, settle, outcome)
        del job, loop, done, work, settle, outcome  # the next one may be long in coming


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)
