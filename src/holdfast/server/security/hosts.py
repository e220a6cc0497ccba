"""Under which names the server may be asked: a page whose name was made to lead here is not ours."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from holdfast.base.data import data
from holdfast.errors import UsageError

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
#: Browsers leave these out.
_UNSAID: Final = (80, 443)
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::(?P<port>[0-9]{1,5}))?")


@data
class Hosts:
    """Names that are allowed, each with one port, or with any (None)."""

    allowed: frozenset[tuple[str, int | None]]

    @classmethod
    def of(cls, names: Collection[str], *, port: int | None) -> Hosts:
        """This machine's own names with the port that is listened on, and names that were given, as `name[:port]`."""
        given = [_parts(name) for name in names]
        for name, found in zip(names, given, strict=True):
            if found is None:
                raise UsageError(f"{name!r} is no name of a host, such as holdfast.example.org or localhost:7788.")
        own = None if port in _UNSAID else port
        return cls(frozenset([*((name, own) for name in LOOPBACK), *(each for each in given if each is not None)]))

    def allow(self, header: str) -> bool:
        """Is this one of them?"""
        found = _parts(header)
        if found is None:
            return False
        return found in self.allowed or (found[0], None) in self.allowed


def _parts(text: str) -> tuple[str, int | None] | None:
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    return found["name"], None if found["port"] is None else int(found["port"])
