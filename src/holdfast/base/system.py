"""What differs between operating systems: a function for each, and what is done where a system has no such thing.

Linux is what everything is tested on. What is said here about macOS has never run there: the tests have these branches
run, with the answers that such a system should give, and have agents killed on a system that has none of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import time

try:
    from _blake2 import blake2b as blake2b  # of `hashlib`, which loads OpenSSL for others that nobody needs here
except ImportError:
    from hashlib import blake2b as blake2b

SYSTEM = sys.platform
_BOOT = "/proc/sys/kernel/random/boot_id"
_MOUNTS = "/proc/self/mountinfo"
_LOCKS = "/proc/locks"
_OPEN = ("/proc/self/fd", "/dev/fd")
_MOST_OPEN = 4096  # of descriptors, where a system does not list them
_ROOM = 4096  # for what a system says of a file system; macOS needs 2168 bytes

#: `struct flock`, where it is known: on Linux the kind comes first, on macOS last.
_LOCK_LAYOUT = {"linux": "hhqqi4x", "darwin": "qqihh"}
_MAC_TYPE = slice(72, 88)  # of `struct statfs`: the name of the file system


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


# time


def since_boot_ns() -> int:
    """A clock that nobody sets and that goes on while the machine sleeps; else one that stands still meanwhile."""
    try:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except AttributeError:
        # On macOS time.monotonic() stands still, and this one does not.
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) if SYSTEM == "darwin" else time.monotonic_ns()


def boot_id() -> str:
    """Another one after each boot of the machine, the same for all its processes; empty if there is none.

    What could be computed from clocks changes when the machine sleeps or its clock is set: that would prove deaths of
    processes that live.
    """
    try:
        return _text(_BOOT).strip()
    except OSError:
        return _sysctl("kern.bootsessionuuid") if SYSTEM == "darwin" else ""


def _sysctl(name: str) -> str:
    """A text that the kernel of a BSD tells; empty if it does not."""
    import ctypes

    ask = getattr(ctypes.PyDLL(None), "sysctlbyname", None)
    text, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    if ask is None or ask(name.encode(), text, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return ""
    return text.value.decode("ascii", "replace")


# disks


def sync(descriptor: int) -> None:
    """Have the disk itself keep what was written; on macOS `fsync` leaves it in the memory of the disk."""
    whole: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if whole is not None:
        with contextlib.suppress(OSError):  # a file system that does not know it
            fcntl.fcntl(descriptor, whole)
            return
    os.fsync(descriptor)


def file_system_of(path: str) -> str | None:
    """The name of the file system that a file is on, or would be; None if nobody says."""
    real = os.path.realpath(path)
    if SYSTEM == "darwin":
        return _mac_file_system(real)
    try:
        return _mounted(real, _text(_MOUNTS).splitlines())
    except OSError:
        return None


def _mounted(real: str, mounts: list[str]) -> str | None:
    best, found = "", None
    for line in mounts:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, found = mount, after.split()[0]
    return found


def _mac_file_system(real: str) -> str | None:
    import ctypes

    while not os.path.exists(real):
        real = os.path.dirname(real)
    libc, found = ctypes.PyDLL(None), ctypes.create_string_buffer(_ROOM)
    # The second is a struct of another layout where the first exists.
    ask = getattr(libc, "statfs$INODE64", None) or getattr(libc, "statfs", None)
    if ask is None or ask(os.fsencode(real), found) != 0:
        return None
    return found.raw[_MAC_TYPE].partition(b"\0")[0].decode("ascii", "replace") or None


def kind_of_file_system(path: str) -> int:
    """The number that Linux has for the file system of a file; 0: not known."""
    import ctypes

    ask = getattr(ctypes.PyDLL(None), "statfs", None) if SYSTEM == "linux" else None
    found = ctypes.create_string_buffer(_ROOM)
    if ask is None or ask(os.fsencode(path), found) != 0:
        return 0
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF


# descriptors and locks


def descriptors() -> set[int]:
    """The descriptors that this process has open."""
    for folder in _OPEN:
        with contextlib.suppress(OSError):
            return {int(name) for name in os.listdir(folder) if name.isdecimal()}
    return {number for number in range(_MOST_OPEN) if _is_open(number)}


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def lock_open_file(descriptor: int, kind: int, start: int, length: int) -> None:
    """Set a lock that belongs to an open file, not to the process; nothing happens where there are none."""
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    layout = _LOCK_LAYOUT.get(SYSTEM)
    if command is None or layout is None:
        return
    place = (start, length, 0, kind, os.SEEK_SET) if SYSTEM == "darwin" else (kind, os.SEEK_SET, start, length, 0)
    with contextlib.suppress(OSError):  # a file system without such locks
        fcntl.fcntl(descriptor, command, struct.pack(layout, *place))


def locks_of(pid: int) -> list[str]:
    """POSIX locks that a process has for writing, a line each; none where a system does not list them."""
    try:
        lines = _text(_LOCKS).splitlines()
    except OSError:
        return []
    return [line for line in lines if f"WRITE {pid} " in line]


# the environment


def wipe_variable(name: str) -> None:
    """Overwrite a variable where it is in memory, so that what shows it shows nothing."""
    import ctypes

    libc = ctypes.PyDLL(None)
    find = libc.getenv
    find.restype = ctypes.c_void_p
    place: int | None = find(name.encode())
    if place:
        ctypes.memset(place, 0, len(ctypes.string_at(place)))
