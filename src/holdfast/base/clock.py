"""Time; the only place it comes from.

Tests move the wall clock: `shift_us` and `freeze` for this process, `HOLDFAST_TEST_CLOCK_SHIFT_S` (seconds, read once)
for a process from its start; `jump_us` moves it as somebody would who sets the clock of the machine. Durations and
leases are of another clock, which nothing moves.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.base import system
from holdfast.durations import Duration, length_s, no_duration
from holdfast.errors import UsageError

_VARIABLE: Final = "HOLDFAST_TEST_CLOCK_SHIFT_S"


def now_us() -> int:
    """Wall clock, microseconds since the epoch."""
    return _time_ns() // 1000


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_time(at_us: int) -> datetime:
    """A stored time, in UTC."""
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:  # damaged; `verify` is what reports it
        return (datetime.max if at_us > 0 else datetime.min).replace(tzinfo=UTC)


#: How far a clock may be put back, or be behind another machine's, without holding up what is ready.
_SLACK_US: Final = 2 * 3600 * 1_000_000


def ready_us() -> int:
    """From when something may be claimed that is ready now: earlier than now, since clocks are put back."""
    return now_us() - _SLACK_US


#: No two clocks that are right differ by as much, and none is set by as much while it is right.
AN_HOUR_US: Final = 3600 * 1_000_000


def is_ahead(at_us: int, now_us: int) -> bool:
    """Is a time that was written as the present one too far in the future to be believed?"""
    return at_us > now_us + AN_HOUR_US


def offset_us() -> int:
    """How much the wall clock is ahead of one that nobody sets; it changes when the clock of the machine is set."""
    return time.time_ns() // 1000 + _jumped_us - boottime_ms() * 1000


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def boottime_ms() -> int:
    """Milliseconds since boot, suspend included: lease time on one machine."""
    return system.since_boot_ns() // 1_000_000


def in_seconds(duration: Duration, what: str, *, may_be_over: bool = False) -> float:
    """A duration that `what` was given as, in seconds; `may_be_over`: a negative one has passed, and is none at all.

    Example: `timeout_s = in_seconds(timedelta(minutes=2), "timeout=")`
    """
    length = length_s(duration)
    if length is None or (length < 0 and not may_be_over):
        raise UsageError(no_duration(what, duration))
    return max(length, 0.0)


def due_us(wait: Duration | None, what: str) -> int | None:
    """When a wait is over that begins now, by the wall clock; None if it has no end."""
    return None if wait is None else now_us() + int(in_seconds(wait, what, may_be_over=True) * 1_000_000)


@functools.cache
def boot_id() -> str:
    """Changes with every boot of the machine; lease times of another boot mean nothing. Empty: not known."""
    return system.boot_id()


def is_of_another_boot(noted: str) -> bool:
    """Was this noted before the machine was booted, or on another one? Not known is not proven."""
    return bool(noted) and bool(boot_id()) and noted != boot_id()


# moving the wall clock, for tests


def _shift_of_process() -> int:
    given = os.environ.get(_VARIABLE)
    try:
        return int(float(given) * 1_000_000) if given else 0
    except (ValueError, OverflowError):
        raise UsageError(f"{_VARIABLE} takes a number of seconds; got {given!r}.") from None


def _shifted(by_us: int) -> Callable[[], int]:
    if not by_us:
        return time.time_ns
    by_ns = by_us * 1000
    return lambda: time.time_ns() + by_ns


_shift_us = _shift_of_process()
_jumped_us = 0
_frozen_us: int | None = None
_on_shift: list[Callable[[], None]] = []
#: One name for all of it, so that a thread which looks meanwhile sees the old time or the new one.
_time_ns: Callable[[], int] = _shifted(_shift_us)


def shift_us(by: int) -> None:
    """Move the wall clock of this process; a frozen one stays frozen.

    Example: `shift_us(-3_600_000_000)` puts it back by an hour.
    """
    if _frozen_us is None:
        _set(_shift_us + by, None)
    else:
        _set(_shift_us, _frozen_us + by)


def jump_us(by: int) -> None:
    """Set the clock of the machine, as far as this process can see; nobody is told.

    Example: `jump_us(400 * 86_400_000_000)` is what a wrong time server does.
    """
    global _jumped_us, _shift_us, _time_ns
    _jumped_us += by
    _shift_us += by
    _time_ns = _shifted(_shift_us)


def freeze(at_us: int) -> None:
    """Stop the wall clock of this process at a time."""
    _set(_shift_us, at_us)


def is_frozen() -> bool:
    """Does the wall clock stand still until somebody moves it?"""
    return _frozen_us is not None


def reset() -> None:
    """Take back what `shift_us`, `jump_us` and `freeze` did."""
    global _jumped_us
    _jumped_us = 0
    _set(_shift_of_process(), None)


def on_shift(callback: Callable[[], None]) -> None:
    """Have something called whenever the wall clock was moved from here, in the thread that moved it."""
    _on_shift.append(callback)


def off_shift(callback: Callable[[], None]) -> None:
    """Have it called no more; nothing happens if it was not."""
    if callback in _on_shift:
        _on_shift.remove(callback)


def _set(shift_us: int, frozen_us: int | None) -> None:
    global _shift_us, _frozen_us, _time_ns
    _shift_us, _frozen_us = shift_us, frozen_us
    _time_ns = _shifted(shift_us) if frozen_us is None else functools.partial(int, frozen_us * 1000)
    for callback in _on_shift.copy():
        callback()
