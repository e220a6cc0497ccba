"""How long something takes, as people write it: a number of seconds, or a timedelta. `clock.in_seconds` reads it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = float | timedelta

#: No time is longer: what people wait for comes, and due times fit where they are stored.
LONGEST_S: Final = 100 * 365 * 86_400


def length_s(duration: object) -> float | None:
    """A duration in seconds, negative if it is over already; None if it is no duration."""
    if isinstance(duration, timedelta):
        length = duration.total_seconds()
    elif isinstance(duration, float | int) and not isinstance(duration, bool):
        length = float(duration) if abs(duration) <= LONGEST_S else LONGEST_S + 1.0
    else:
        return None
    return length if abs(length) <= LONGEST_S else None


def no_duration(what: str, given: object) -> str:
    """What is said of something that is no duration; `what` it was given as."""
    return f"{what} takes seconds or a timedelta, from 0 to a hundred years; got {given!r}."
