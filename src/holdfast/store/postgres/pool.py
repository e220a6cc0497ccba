"""A few connections that read. Nothing that reads waits for another read, so two of them are enough for any number.

While the server is away, a read is tried again for a moment, so that a restart is not noticed; then it fails with a
StoreError. A worker's loop logs that and looks again at its next sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.base import clock
from holdfast.errors import HoldfastError, StoreError
from holdfast.store.postgres.connection import Backoff, Keeper, Role, Sort, Target, explain, sort_of
from holdfast.store.postgres.reads import Reads
from holdfast.store.queries import Queries

T = TypeVar("T")

_SIZE = 2
_PATIENCE_S = 10.0


class Readers:
    """The pool; belongs to one event loop."""

    def __init__(self, target: Target, queries: Queries, *, size: int = _SIZE) -> None:
        self._target = target
        self._queries = queries
        self._keepers = [Keeper(target, Role.read) for _ in range(size)]
        self._idle = list(self._keepers)
        self._free = asyncio.Semaphore(size)
        self._is_closed = False
        self.trouble: str | None = None  #: what reads wait for, if they do

    @property
    def is_connected(self) -> bool:
        """Can something be read at once?"""
        return any(keeper.is_connected for keeper in self._keepers)

    @property
    def connections(self) -> list[Any]:
        return [keeper.connection for keeper in self._keepers if keeper.connection is not None]

    async def read(self, work: Callable[[Reads], Awaitable[T]]) -> T:
        """What `work` reads with a connection of its own; it may be called several times."""
        backoff, give_up_us = Backoff(), 0
        while True:
            try:
                async with self._free:
                    if self._is_closed:
                        raise StoreError(f"{self._target.shown} is closed.")
                    keeper = self._next()
                    try:
                        found = await work(Reads(await keeper.get(), self._queries))
                        self.trouble = None
                        return found
                    except BaseException as error:
                        # Cancelled in the middle of an answer, or no answer: nobody knows what comes next on it.
                        if not isinstance(error, HoldfastError) and (
                            not isinstance(error, Exception) or sort_of(error) is Sort.away
                        ):
                            keeper.drop()
                        raise
                    finally:
                        self._idle.append(keeper)
            except HoldfastError:
                raise
            except Exception as error:
                now_us = clock.monotonic_us()
                give_up_us = give_up_us or now_us + int(_PATIENCE_S * 1e6)
                if sort_of(error) is Sort.own or now_us > give_up_us or self._is_closed:
                    raise explain(error, self._target) from error
                self.trouble = str(explain(error, self._target))
            await asyncio.sleep(backoff.next_s())

    async def reach(self) -> None:
        """Have a connection; raises what keeps it from being made."""
        async with self._free:
            keeper = self._next()
            try:
                await keeper.get()
            except HoldfastError:
                raise
            except Exception as error:
                raise explain(error, self._target) from error
            finally:
                self._idle.append(keeper)

    def _next(self) -> Keeper:
        """One that has a connection, if there is one: the server may have no room for another."""
        keeper = next((each for each in reversed(self._idle) if each.is_connected), self._idle[-1])
        self._idle.remove(keeper)
        return keeper

    async def close(self) -> None:
        self._is_closed = True
        for keeper in self._keepers:
            await keeper.close()
