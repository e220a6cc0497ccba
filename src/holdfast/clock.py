"""Time; the only place it comes from."""

from __future__ import annotations

import functools
import time
from pathlib import Path


def now_us() -> int:
    """Wall clock, microseconds since the epoch."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def boottime_ms() -> int:
    """Milliseconds since boot, suspend included: lease time on one machine."""
    return (
        time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic_ns() // 1_000_000
    )


@functools.cache
def boot_id() -> str:
    """Changes with every boot of the machine; lease times of another boot mean nothing."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text().strip()
    except OSError:
        return f"boot-{int(time.time() - time.monotonic())}"
