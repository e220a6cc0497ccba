"""Who waits until records of a run are on disk."""

from __future__ import annotations

import asyncio
import heapq

Waiter = asyncio.Future[None]


class Waiters:
    """By the number of the record that each waits for, and those whose batch has no numbers yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbered: list[tuple[int, int, list[Waiter]]] = []  # a heap
        self._count = 0
        self.unformed: list[Waiter] = []  #: who waits for a batch that is not formed
        self._is_abandoned = False

    def until(self, seq: int) -> Waiter:
        """For what is to be on disk up to a record."""
        waiter = self._new()
        self._add(seq, [waiter])
        return waiter

    def until_next(self) -> Waiter:
        """For the batch that is formed next."""
        waiter = self._new()
        self.unformed.append(waiter)
        return waiter

    def number(self, head_seq: int) -> None:
        """Those who asked for a batch wait for its last record."""
        self._add(head_seq, self.unformed)
        self.unformed = []

    def wake(self, durable_seq: int) -> None:
        numbered = self._numbered
        while numbered and numbered[0][0] <= durable_seq:
            for waiter in heapq.heappop(numbered)[2]:
                if not waiter.done():
                    waiter.set_result(None)

    def abandon(self) -> None:
        """Nothing more gets to the disk: whoever waits for it is torn down, now or soon."""
        self._is_abandoned = True
        for waiters in (self.unformed, *(waiters for _, _, waiters in self._numbered)):
            for waiter in waiters:
                waiter.cancel()
        self.unformed.clear()
        self._numbered.clear()

    def _new(self) -> Waiter:
        waiter: Waiter = self._loop.create_future()
        if self._is_abandoned:
            waiter.cancel()
        return waiter

    def _add(self, seq: int, waiters: list[Waiter]) -> None:
        self._count += 1  # whoever asked first is woken first
        heapq.heappush(self._numbered, (seq, self._count, waiters))
