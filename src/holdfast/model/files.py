"""Files of runs: what a record says of one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.base.data import data


@data
class FileRef:
    """A file in the store, by its content. One of several chunks names the list of their digests too."""

    sha256: str
    size: int
    listed: str = ""  #: the sha256 of the list of its chunks; empty: it has one, or none

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        return {"sha256": self.sha256, "size": self.size, **({"listed": self.listed} if self.listed else {})}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> FileRef:
        return cls(str(said["sha256"]), int(said["size"]), str(said.get("listed", "")))


class FileState(StrEnum):
    """Whether the store still has what was stored."""

    stored = "stored"
    missing = "missing"
    damaged = "damaged"
