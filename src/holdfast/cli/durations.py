"""Lengths of time as people type them: `30m`, `12h`, `7d`, `2w`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

from holdfast.cli.failure import USAGE, Failure

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def age(text: str, option: str) -> timedelta:
    """The length of time that an option was given; a Failure says how to write one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise Failure(f"{option} takes a number with s, m, h, d or w, like 12h; got {text!r}.", USAGE)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise Failure(f"{option} is too long: {text!r}.", USAGE) from None


def seconds(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """The callback of an option that takes a short time, like `500ms`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time; write it like 500ms, 30s or 2m.", ctx, parameter)
    return float(found[1]) * _SECONDS[found[2]]


def age_text(length: timedelta) -> str:
    """`30d`, as it would be typed."""
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
