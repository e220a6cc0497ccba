"""What must not outlive a fork: open databases and held lock files.

A child that closes an inherited SQLite connection can delete the parent's write-ahead log; one that keeps an inherited
lock file open keeps a dead parent looking alive. Objects registered here are told when they wake up in a child.

A thread that is inside of SQLite at the moment of a fork leaves the child with mutexes that nobody will ever unlock:
the child stands still when it frees the first thing that SQLite gave out, at the latest when its interpreter ends. So a
fork waits for the calls under way.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

#: (device, inode) of a file.
FileId = tuple[int, int]


_PATIENCE_S = 5.0  # for a call under way; whoever forks in the middle of one, as in a transaction of its own, goes on


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


_call_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def call_lock() -> threading.Lock:
    """To be held by a thread while it is inside of a library whose state must be whole when the process is copied."""
    lock = threading.Lock()
    _call_locks.add(lock)
    return lock


_forking = threading.local()  # which of them this thread holds while it forks


def _before() -> None:
    _forking.held = [lock for lock in list(_call_locks) if lock.acquire(timeout=_PATIENCE_S)]


def _after() -> None:
    for lock in _forking.__dict__.pop("held", ()):
        lock.release()


def _in_child() -> None:
    _after()
    for thing in list(_registered):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
