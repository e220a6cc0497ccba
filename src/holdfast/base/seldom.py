"""What goes wrong again and again: told when it begins, and when it is another thing, and now and then meanwhile."""

from __future__ import annotations

from holdfast.base.clock import monotonic_us


class Seldom:
    """What was told of each thing, and when."""

    def __init__(self, every_us: int = 30_000_000) -> None:
        self._every_us = every_us
        self._told: dict[str, tuple[str, int]] = {}

    def is_due(self, about: str, said: str = "") -> bool:
        """Is it to be told now? Whoever asks tells it then."""
        now, told = monotonic_us(), self._told.get(about)
        if told is not None and told[0] == said and now - told[1] < self._every_us:
            return False
        self._told[about] = (said, now)
        return True

    def is_over(self, about: str) -> bool:
        """It is well now: was anything told of it?"""
        return self._told.pop(about, None) is not None
