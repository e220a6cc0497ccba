"""Signs of life of the children of a supervisor: they send them through a pipe, and the parent makes one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from holdfast.base.clock import monotonic_us

#: Tells a child the number of its end of the pipe.
_PIPE = "HOLDFAST_SIGNS"
_LONGEST = 65536


class ChildHeartbeats:
    """In the parent: what is heard of each child. It is as alive as the child that has been silent for longest."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._is_complete = False  #: every child has given a sign once
        self._heard: set[int] = set()
        self._signs: dict[int, int] = {}
        self._rest = b""
        self.ours, self.theirs = os.pipe()
        os.set_blocking(self.ours, False)
        os.set_blocking(self.theirs, False)

    @property
    def environment(self) -> Mapping[str, str]:
        return {_PIPE: str(self.theirs)}

    def began(self, pid: int) -> None:
        self._signs[pid] = monotonic_us()

    def ended(self, pid: int) -> None:
        """One that is dead, and is replaced, does not count: this process sees to that."""
        self._signs.pop(pid, None)
        self._heard.discard(pid)

    def listen(self) -> None:
        """Read what has come."""
        with suppress(BlockingIOError):
            *lines, self._rest = (self._rest + os.read(self.ours, _LONGEST)).split(b"\n")
            for line in lines:
                pid, sign_us = map(int, line.split())
                if pid in self._signs:
                    self._signs[pid] = sign_us
                    self._heard.add(pid)
        self._is_complete = self._is_complete or len(self._heard) == self._processes

    def sign_us(self) -> int:
        """The oldest of their signs; 0 as long as not all of them are there. Asked by another thread."""
        if not self._is_complete:
            return 0
        return min([*self._signs.values()], default=monotonic_us())

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)


class Voice:
    """In a child: what sends its signs to the parent."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_inheritable(pipe, False)

    @classmethod
    def of_environment(cls) -> Voice | None:
        """If a parent listens. What an agent starts does not inherit it."""
        given = os.environ.pop(_PIPE, None)
        return None if given is None else cls(int(given))

    def tell(self, sign_us: int) -> None:
        with suppress(OSError):  # the parent is gone, or does not read
            os.write(self._pipe, b"%d %d\n" % (os.getpid(), sign_us))

    def close(self) -> None:
        os.close(self._pipe)
