"""Which changes of the code a run has taken (`hf.patched`), in each of its parts: before its loop, and in it."""

from __future__ import annotations

from collections.abc import Iterable


class Patches:
    """Of one execution. What was decided in a turn does not change the prologue; the next turn decides anew."""

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._in_loop: set[str] = set()
        self._passed: set[str] = set()  # by this execution, on the old path
        self.is_closed = False  #: the loop had begun, and this execution has not come to it

    @property
    def in_loop(self) -> tuple[str, ...]:
        """Those that turns have taken."""
        return tuple(sorted(self._in_loop)) if self._in_loop else ()

    def take(self, patch_ids: Iterable[str], *, in_loop: bool) -> None:
        """The new path is taken, from here on."""
        (self._in_loop if in_loop else self._before).update(patch_ids)

    def has(self, patch_id: str) -> bool:
        """Was the new path taken, in this part of the run?"""
        return patch_id in self._before or (not self.is_closed and patch_id in self._in_loop)

    def may_take(self, patch_id: str) -> bool:
        """May it be? Not in a closed prologue, nor where the old path was gone before."""
        return not self.is_closed and patch_id not in self._passed

    def go_past(self, patch_id: str) -> None:
        """The old path was taken, for the rest of this part."""
        self._passed.add(patch_id)

    def begin_part(self) -> None:
        """A turn begins, or is come to: an old path has ended."""
        self.is_closed = False
        self._passed.clear()
