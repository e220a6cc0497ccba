"""Whether a worker can write: a run that it claimed and could not append to would stand still, and nobody would know.

A server may have no room for another connection, a pooler may be full, a server may be away. The worker says so, claims
nothing meanwhile, and goes on by itself.
"""

from __future__ import annotations

import asyncio

from holdfast.base.clock import monotonic_us
from holdfast.base.telemetry import info, warn
from holdfast.errors import StoreError
from holdfast.store.contract import Store

_PATIENCE_S = 1.0
SAY_AGAIN_US = 30_000_000  #: what stays wrong is told this often


class Reach:
    """The store, as one worker can reach it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said_us = 0
        self.is_there = True  #: at the last look; nobody becomes a worker without

    async def keep_looking(self, every_s: float) -> None:
        """On its own: whatever else a worker does may wait for the store for a while."""
        while True:
            await self.look()
            await asyncio.sleep(every_s)

    async def look(self) -> None:
        """Find out, and tell when it changes."""
        detail = await self._missing()
        self.is_there = detail is None
        now = monotonic_us()
        if detail is not None and now - self._said_us > SAY_AGAIN_US:
            self._said_us = now
            warn("store.out_of_reach", detail=detail)
        elif detail is None and self._said_us:
            self._said_us = 0
            info("store.reached", url=self._store.url)

    async def _missing(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._store.reach()
        except TimeoutError:
            return self._store.trouble or f"{self._store.url} does not answer."
        except StoreError as error:
            return str(error)
        return None
