"""What must not outlive a fork: open databases and held lock files.

A child that closes an inherited SQLite connection can delete the parent's write-ahead log; one that keeps an inherited
lock file open keeps a dead parent looking alive. Objects registered here are told when they wake up in a child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

#: (device, inode) of a file.
FileId = tuple[int, int]


class Forkable(Protocol):
    def forked(self) -> None:
        """Called in the child, right after the fork."""
        ...


_registered: weakref.WeakSet[Forkable] = weakref.WeakSet()  # the fork hook is per process and cannot be removed

#: Databases that an ancestor of this process had open when it forked. SQLite's own table of locks was copied with the
#: rest of the memory and is wrong here: it would believe to hold locks that only the ancestor has.
_inherited: set[FileId] = set()


def inherit(file: FileId) -> None:
    """Remember, in a child, that a database was open before the fork."""
    _inherited.add(file)


def is_inherited(file: FileId) -> bool:
    return file in _inherited


def register(thing: Forkable) -> None:
    """Tell `thing` about forks for as long as it lives."""
    _registered.add(thing)


def _in_child() -> None:
    for thing in list(_registered):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
