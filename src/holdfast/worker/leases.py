"""The lease of this process: proof to others that it lives, and to itself that it may still act.

Renewal runs in a thread of its own, so an agent that blocks the event loop does not lose its runs.
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading

from holdfast.clock import boot_id, now_us
from holdfast.config import Settings
from holdfast.errors import StoreError
from holdfast.ids import new_worker_id
from holdfast.model import Worker, WorkerId
from holdfast.store.base import Store
from holdfast.telemetry import warn


class Lease:
    """This process as a worker."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.worker_id = WorkerId(new_worker_id())
        self.pid = os.getpid()
        self.host = platform.node()
        self.boot_id = boot_id()
        self._until_ms = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    async def open(self) -> None:
        """Become a worker that others can see."""
        until_ms = self._store.lease_clock_ms() + int(self._settings.lease_s * 1000)
        worker = Worker(self.worker_id, os.getpid(), self.host, self.boot_id, now_us(), until_ms)
        await self._store.add_worker(worker)
        self._until_ms = until_ms
        self._thread = threading.Thread(target=lambda: asyncio.run(self._renew()), name="holdfast-lease", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Leave: nothing of this process works for any run any more."""
        if self._thread is None:
            return
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)
        self._thread = None
        await self._store.remove_worker(self.worker_id)

    def remaining_s(self) -> float:
        """Seconds for which nobody can take this worker's runs, counted from before the last renewal was sent."""
        return (self._until_ms - self._store.lease_clock_ms()) / 1000

    async def _renew(self) -> None:
        while not self._stopped.wait(self._settings.renew_s):  # blocks: this loop has nothing else to do
            until_ms = self._store.lease_clock_ms() + int(self._settings.lease_s * 1000)
            try:
                if await self._store.renew_worker(self.worker_id, until_ms):
                    self._until_ms = until_ms
                else:
                    warn("lease.gone", worker=self.worker_id)
            except StoreError as error:
                warn("lease.not_renewed", worker=self.worker_id, error=str(error))
