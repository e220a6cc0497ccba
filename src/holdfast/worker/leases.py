"""The lease of this process: proof to others that it lives, and to itself that it may still act.

Renewal runs in a thread of its own, so an agent that blocks the event loop does not lose its runs; what blocks is named
in a warning. A loop that stands still for much longer is given up: the thread alone is no proof that anything works.

A process that was stopped, or whose machine slept, finds the leases of all others expired when it wakes up, because
they slept too. Until everybody had the time to renew, an expired lease proves nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import platform
import sys
import threading
from contextlib import suppress

from holdfast.base.clock import boot_id, monotonic_us, now_us
from holdfast.base.config import Settings
from holdfast.base.ids import new_worker_id
from holdfast.base.telemetry import info, warn
from holdfast.codec import said_by
from holdfast.model import Worker, WorkerId
from holdfast.store.contract import Store
from holdfast.worker.stalls import Stall, StallWatch, blocking

_BEAT_S = 0.25


class Lease:
    """This process as a worker."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.worker_id = WorkerId(new_worker_id())
        self.pid = os.getpid()
        self.host = platform.node()
        self.boot_id = boot_id()
        self.told = "{}"  #: what others are told of this process, as JSON
        self.lapses = 0  #: how often it had run out before it was renewed: others may have taken runs meanwhile
        self.is_lost = False  #: somebody removed this worker; its runs are no longer its own
        self.answered_us = 0  #: when the store last answered a renewal, be it that it cannot; of the monotonic clock
        self.lease_ms = int(settings.lease_s * 1000)
        self._late_ms = int(max(settings.lease_s / 2, settings.renew_s * 1.5) * 1000)
        self._every_s = max(0.01, min(_BEAT_S, settings.renew_s, settings.block_warning_s / 2))
        self._renewed_ms = 0  #: when the last renewal that succeeded was sent
        self._distrust_until_ms = 0
        self._beat_us = 0
        self._loop: asyncio.AbstractEventLoop | None = None  #: of the agents
        self._loop_thread = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None  #: of the thread

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    async def open(self) -> None:
        """Become a worker that others can see."""
        sent_ms = self._store.lease_clock_ms()
        until_ms = sent_ms + self.lease_ms
        worker = Worker(self.worker_id, os.getpid(), self.host, self.boot_id, now_us(), until_ms, self.told)
        await self._store.add_worker(worker)
        self._renewed_ms = sent_ms
        self.answered_us = monotonic_us()
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._tick()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), name="holdfast-lease", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Leave: nothing of this process works for any run any more."""
        if self._thread is None:
            return
        self._stopped.set()
        if self._wake is not None:
            with suppress(RuntimeError):  # the thread has ended already
                self._wake[0].call_soon_threadsafe(self._wake[1].set)
        await asyncio.to_thread(self._thread.join)
        self._thread = None
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        await self._store.remove_worker(self.worker_id)

    def remaining_s(self) -> float:
        """Seconds for which nobody can take this worker's runs, counted from before the last renewal was sent."""
        return (self._renewed_ms + self.lease_ms - self._store.lease_clock_ms()) / 1000

    def trusts_leases(self) -> bool:
        """Does an expired lease prove that its worker is gone? Not if this one was late itself, and for a lease after.

        Late is earlier than expired: of two workers that slept together, the one to wake first may have the longer
        lease.
        """
        now_ms = self._store.lease_clock_ms()
        return now_ms - self._renewed_ms <= self._late_ms and now_ms >= self._distrust_until_ms

    def beat(self) -> None:
        """A sign of life of the event loop; it gives one by itself, four times a second or more."""
        self._beat_us = monotonic_us()

    def _tick(self) -> None:
        self.beat()
        assert self._loop is not None
        self._heartbeat = self._loop.call_later(self._every_s, self._tick, context=contextvars.Context())

    # in the thread

    async def _keep(self) -> None:
        """Watch the loop and renew. A renewal that takes long does not keep the loop from being watched."""
        woken = asyncio.Event()
        self._wake = (asyncio.get_running_loop(), woken)
        watch = StallWatch(self._settings.block_warning_s, int(self._every_s * 1.5e6))
        renewal: asyncio.Task[None] | None = None
        sent_ms = self._store.lease_clock_ms()
        is_stalled = False
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await woken.wait()
            assert self._loop is not None
            if self._loop.is_closed():
                break
            silent_s = watch.look(monotonic_us(), self._beat_us, self._find_blocking)
            if is_stalled != (silent_s >= self._settings.stall_limit_s):
                is_stalled = not is_stalled
                if is_stalled:
                    warn("lease.stalled", worker=self.worker_id, seconds=round(silent_s, 1))
            now_ms = self._store.lease_clock_ms()
            is_due = now_ms - sent_ms >= self._settings.renew_s * 1000 and (renewal is None or renewal.done())
            if is_due and not is_stalled and not self.is_lost and not self._stopped.is_set():
                sent_ms = now_ms
                renewal = asyncio.create_task(self._renew(sent_ms))
        if renewal is not None:
            await renewal

    async def _renew(self, sent_ms: int) -> None:
        try:
            if not await self._store.renew_worker(self.worker_id, sent_ms + self.lease_ms):
                self.is_lost = True
                warn("lease.lost", worker=self.worker_id)
                return
        except Exception as error:  # the next one may succeed
            warn("lease.not_renewed", worker=self.worker_id, error=said_by(error))
            self.answered_us = monotonic_us()
            return
        if self.remaining_s() <= 0:
            self.lapses += 1  # before it is renewed: whoever sees the one sees the other
        late_ms = sent_ms - self._renewed_ms
        if late_ms > self._late_ms:
            self._distrust_until_ms = self._store.lease_clock_ms() + self.lease_ms
            info("lease.late", worker=self.worker_id, seconds=round(late_ms / 1000, 1))
        self._renewed_ms = sent_ms
        self.answered_us = monotonic_us()

    def _find_blocking(self) -> Stall | None:
        beat_us = self._beat_us
        assert self._loop is not None
        found = blocking(sys._current_frames().get(self._loop_thread)) if self._loop.is_running() else None
        return found if self._beat_us == beat_us else None
