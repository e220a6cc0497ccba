"""Whether a worker can write: a run that it claimed and could not append to would stand still, and nobody would know.

A server may have no room for another connection, a pooler may be full, a server may be away. The worker says so, claims
nothing meanwhile, and goes on by itself.
"""

from __future__ import annotations

import asyncio

from holdfast.base.seldom import Seldom
from holdfast.base.telemetry import info, warn
from holdfast.errors import StoreError
from holdfast.store.contract import Store

_PATIENCE_S = 1.0


class Reach:
    """The store, as one worker can reach it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trouble = Seldom()
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
        if detail is None and self._trouble.is_over("store"):
            info("store.reached", url=self._store.url)
        elif detail is not None and self._trouble.is_due("store"):
            warn("store.out_of_reach", detail=detail)

    async def _missing(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._store.reach()
        except TimeoutError:
            return self._store.trouble or f"{self._store.url} does not answer."
        except StoreError as error:
            return str(error)
        return None
