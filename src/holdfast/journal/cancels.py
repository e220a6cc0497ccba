"""Calls that the code once cancelled, made again on replay: they stay pending until the code cancels them again.

Whether it still may is looked at from time to time, for all of them at once; one that nothing is left to cancel, at
several looks in a row, is given up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.journal.replay import PATIENCE_S, Entry

_LOOK_S = 0.25
_LOOKS = 4

#: Those of the calls, made at these times of the loop, that nothing is left to cancel; the look was due at the time.
Overdue = Callable[[Mapping[Entry, float], float], set[Entry]]


@dataclass(slots=True)
class _Awaited:
    give_up: Callable[[], None]
    looks: int = 0


class AwaitedCancels:
    """Those of one run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._made: dict[Entry, float] = {}
        self._order: list[tuple[int, int, Entry]] = []  # the same as a heap, by tick
        self._awaited: dict[Entry, _Awaited] = {}
        self._overdue: Overdue = lambda _made, _due: set()
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._made)

    def add(self, entry: Entry, overdue: Overdue, give_up: Callable[[], None]) -> None:
        assert entry.outcome is not None
        self._made[entry] = self._loop.time()
        heapq.heappush(self._order, (entry.outcome.tick, entry.seq, entry))
        self._awaited[entry] = _Awaited(give_up)
        self._overdue = overdue
        self._arm()

    def remove(self, entry: Entry) -> None:
        self._made.pop(entry, None)
        self._awaited.pop(entry, None)

    def are_due_before(self, tick: int) -> bool:
        """Did the code cancel a call before this tick that it has not cancelled yet, though it had the time for it?"""
        now, order = self._loop.time(), self._order
        while order and order[0][0] < tick:
            entry = order[0][2]
            took = entry.outcome.took / 1_000_000 if entry.outcome is not None else 0.0
            if entry in self._made and now < self._made[entry] + took + PATIENCE_S:
                return True
            heapq.heappop(order)  # it was cancelled, or is not waited for any longer
        return False

    def has_overdue(self, as_of: float) -> bool:
        """Is one about to be given up?"""
        return bool(self._made and self._overdue(self._made, as_of))

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            due = self._loop.time() + _LOOK_S
            self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._is_armed = False
        if not self._made:
            return
        overdue = self._overdue(self._made, due)
        for entry, awaited in list(self._awaited.items()):
            awaited.looks = awaited.looks + 1 if entry in overdue else 0
            if awaited.looks >= _LOOKS:
                awaited.give_up()
        self._arm()
