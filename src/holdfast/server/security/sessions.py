"""Sessions of browsers: a random id in a cookie, and in memory whose it is."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from holdfast.base.clock import monotonic_us
from holdfast.base.ids import new_token

LENGTH_S: Final = 12 * 3600
_MOST: Final = 1000


class Sessions:
    """Who signed in, for twelve hours; gone with the process."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, tuple[str, int]] = OrderedDict()

    def begin(self, name: str) -> str:
        """The id of a new session; the oldest ends if there are too many."""
        token = new_token()
        self._open[_mark(token)] = (name, monotonic_us() + LENGTH_S * 1_000_000)
        if len(self._open) > _MOST:
            self._open.popitem(last=False)
        return token

    def name_of(self, token: str) -> str | None:
        """Whose session it is, if it is one."""
        found = self._open.get(_mark(token))
        if found is None:
            return None
        if found[1] < monotonic_us():
            self.end(token)
            return None
        return found[0]

    def end(self, token: str) -> None:
        """Sign out."""
        self._open.pop(_mark(token), None)


def _mark(token: str) -> bytes:
    """Looked up by its hash, so that how long that takes says nothing of ids that are near."""
    return hashlib.sha256(token.encode()).digest()
