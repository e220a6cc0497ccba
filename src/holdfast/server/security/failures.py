"""Failed sign-ins: after ten in a minute somebody waits."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from holdfast.base.clock import monotonic_us

MOST: Final = 10
_WINDOW_US: Final = 60_000_000
_PEERS: Final = 10_000


class Failures:
    """When each peer last failed; of the last ten thousand."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[int]] = OrderedDict()

    def note(self, peer: str) -> None:
        """It failed now."""
        times = self._times.setdefault(peer, deque(maxlen=MOST))
        times.append(monotonic_us())
        self._times.move_to_end(peer)
        if len(self._times) > _PEERS:
            self._times.popitem(last=False)

    def wait_s(self, peer: str) -> int:
        """How long it has to wait before it may try again; 0: not at all."""
        times = self._times.get(peer)
        if times is None or len(times) < MOST:
            return 0
        left_us = times[0] + _WINDOW_US - monotonic_us()
        return max(0, -(-left_us // 1_000_000))
