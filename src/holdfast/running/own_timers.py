"""The timers that the code of a run sets by itself: no other process would know of them.

A durable wait survives the process. A timer of the code's own does not: `asyncio.timeout`, `asyncio.sleep`,
`loop.call_later`, a deadline of anyio. A run that left memory under one would never hear of it.
"""

from __future__ import annotations

import asyncio

_FEW = 16
_LATE_S = 1.0
_SLACK_S = 0.005  # loops that count in milliseconds call back in another order than the exact times say


class OwnTimers:
    """The timers that the code of one run has set."""

    __slots__ = ("_loop", "_many", "_set")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._set: list[tuple[asyncio.TimerHandle, str]] = []
        self._many = _FEW

    def add(self, handle: asyncio.TimerHandle, branch: str) -> None:
        if not hasattr(handle, "when"):
            return  # uvloop calls at once what is due at once
        if self._set and self._set[-1][0] is handle:
            return  # one of the two ways to set a timer goes through the other
        self._set.append((handle, branch))
        if len(self._set) > self._many:
            self._set = self.pending(self._loop.time() - _LATE_S)
            self._many = max(_FEW, 2 * len(self._set))

    def pending(self, as_of: float) -> list[tuple[asyncio.TimerHandle, str]]:
        """Those that are still to fire, with their branches.

        `as_of` is the time that the look itself was due at: what was due before that has been called, however late
        both are.
        """
        return [each for each in self._set if not each[0].cancelled() and each[0].when() >= as_of - _SLACK_S]

    def came_due(self, since: float, until: float) -> bool:
        """Was one of them due then, and has the code not cancelled it since?"""
        return any(since <= handle.when() <= until and not handle.cancelled() for handle, _ in self._set)
