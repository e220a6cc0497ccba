"""Makes a Python process believe that its system has nothing but POSIX. With this folder in PYTHONPATH.

No /proc, no list of descriptors, no inotify, no statx, no statfs, no locks of open files, no clock that goes on while
the machine sleeps, no id of the boot. With `BARE_ASLEEP_S` a laptop was shut for so long before: the wall clock went
on meanwhile, the other one did not.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import os
import time
from typing import Any

_MISSING = ("inotify_init1", "statx", "statfs", "statfs64", "sysctlbyname")
_HIDDEN = ("/proc", "/dev/fd")

for name in ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"):
    if hasattr(fcntl, name):
        delattr(fcntl, name)
for name in ("O_PATH", "O_NOATIME", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
if hasattr(os, "process_cpu_count"):  # Python 3.13, which made it for a system that has the others
    os.process_cpu_count = os.cpu_count
if hasattr(time, "CLOCK_BOOTTIME"):
    del time.CLOCK_BOOTTIME


class Library:
    """The C library of a system that has less."""

    def __init__(self, name: str | None) -> None:
        self._all = _library(name)

    def __getattr__(self, name: str) -> Any:
        if name in _MISSING:
            raise AttributeError(name)
        return getattr(self._all, name)


def _without(function: Any) -> Any:
    def called(path: Any, *others: Any, **named: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(_HIDDEN):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return function(path, *others, **named)

    return called


def _later(function: Any, by: Any) -> Any:
    return lambda: function() + by


_library = ctypes.PyDLL
ctypes.PyDLL = Library  # type: ignore[assignment, misc]
builtins.open = io.open = _without(open)
for name in ("listdir", "stat", "lstat", "open"):
    setattr(os, name, _without(getattr(os, name)))
asleep_s = int(os.environ.get("BARE_ASLEEP_S", "0"))
time.time = _later(time.time, asleep_s)
time.time_ns = _later(time.time_ns, asleep_s * 1_000_000_000)
