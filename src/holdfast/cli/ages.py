"""Lengths of time as people type them: `30m`, `12h`, `7d`, `2w`."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.cli.failure import USAGE, Failure

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str, option: str) -> timedelta:
    """The length of time that an option was given; a Failure says how to write one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise Failure(f"{option} takes a number with s, m, h, d or w, like 12h; got {text!r}.", USAGE)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise Failure(f"{option} is too long: {text!r}.", USAGE) from None


def age_text(length: timedelta) -> str:
    """`30d`, as it would be typed."""
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
