"""Taking the store's url out of the environment, so that what an agent starts does not get it.

A variable that is removed is still in the block of memory that the kernel shows as `/proc/PID/environ`, to every
process of the same user: it is overwritten there too. Whoever may read the memory of this process still finds the url;
only another user or a container keeps a tool from that.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.base import system
from holdfast.base.config import HIDDEN, URL, store_url
from holdfast.base.telemetry import warn

_PROC = Path("/proc/self")
_ENV_START = 47  #: field 50 of /proc/self/stat, counted from behind the program's name


def hide_url() -> str:
    """Take `HOLDFAST_URL` out of the environment of this process; the url that it had, or the default."""
    url = store_url(None)
    os.environ[HIDDEN] = "1"  # else a command that an agent starts would make a store where it is
    is_file = (_PROC / "environ").exists()
    if not is_file:
        system.wipe_variable(URL)  # `ps` shows it
    if os.environ.pop(URL, None) is not None and is_file:
        _overwrite(URL.encode())
    return url


def _overwrite(name: bytes) -> None:
    try:
        start = int((_PROC / "stat").read_text().rpartition(")")[2].split()[_ENV_START])
        with open(_PROC / "mem", "r+b", buffering=0) as memory:
            for entry in _shown().split(b"\0"):
                if entry.startswith(name + b"="):
                    os.pwrite(memory.fileno(), bytes(len(entry)), start)
                start += len(entry) + 1
        is_shown = b"\0" + name + b"=" in b"\0" + _shown()
    except (OSError, ValueError, IndexError):
        is_shown = True
    if is_shown:
        warn("url.still_shown", file=f"/proc/{os.getpid()}/environ")


def _shown() -> bytes:
    return (_PROC / "environ").read_bytes()
