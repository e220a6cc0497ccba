"""What calls left in workspaces: the code of a run hears on replay what it heard then, not what came later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class WorkspaceVersions:
    """The versions of workspaces that the calls of a journal left: those before its turn, and those of each call."""

    __slots__ = ("_at_head", "_by_call")

    def __init__(self) -> None:
        self._at_head: Mapping[str, Any] = {}
        self._by_call: list[tuple[str, str, int]] = []

    def begin(self, workspaces: Mapping[str, Any]) -> None:
        """A turn begins, with these."""
        self._at_head = workspaces

    def take(self, key: str, note: Mapping[str, Any]) -> None:
        """A call left this."""
        self._by_call.append((key, note["name"], int(note["version"])))

    def version(self, name: str, *, is_before_loop: bool, is_told: Callable[[str], bool]) -> int:
        """The last one that the code has heard of, by which calls it was told of; 0 is the empty directory."""
        head = None if is_before_loop else self._at_head.get(name)
        told = [version for key, of, version in self._by_call if of == name and is_told(key)]
        return max([0 if head is None else int(head["version"]), *told])
