"""Places: where the calls of a branch get their names, if not from the tasks that lie in between."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """A path, and what was counted there."""

    path: str
    calls: dict[str, int]
    branches: dict[str, int]
    sealed: bool = False


class Places:
    """Those of one execution, and what else extensions keep for its time."""

    __slots__ = ("entered", "local")

    def __init__(self) -> None:
        self.entered: dict[str, Place] = {}
        self.local: dict[str, Any] = {}  #: by the names of the extensions
