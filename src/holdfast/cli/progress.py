"""A bar of progress on stderr, for a person who waits; nothing where nobody looks."""

from __future__ import annotations

import sys

from holdfast.history.words import count

_WIDTH = 24


class Bar:
    """Call it with how much is done; `wipe` it before anything else is printed."""

    def __init__(self, total: int, what: str) -> None:
        self._total = max(total, 1)
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._last = ""

    def __call__(self, done: int) -> None:
        if not self._is_shown:
            return
        full = min(_WIDTH, _WIDTH * done // self._total)
        text = f"{'█' * full}{'░' * (_WIDTH - full)} {count(done, self._what)} of {self._total}"
        if text != self._last:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._last = text

    def wipe(self) -> None:
        if self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._last = ""
