"""What JSON schemas say beyond the standard, and texts in the formats that they name, as pydantic reads them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

#: The keyword of a schema for the other names of a property.
OTHER_NAMES: Final = "x-other-names"

#: Longer texts are no numbers of seconds.
_LONGEST: Final = 60

_DATE: Final = r"(?P<date>\d{4}-\d\d-\d\d)"
_TIME: Final = (
    r"(?P<clock>\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)[.,](?P<fraction>\d+))?(?:[Zz]|[+\-−](?P<offset>\d\d:?\d\d))?"
)
_SECONDS: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_date_time = re.compile(rf"{_DATE}(?:[Tt _]{_TIME})?", re.A).fullmatch
_time = re.compile(_TIME, re.A).fullmatch
_seconds = re.compile(_SECONDS, re.A).fullmatch
_uuid = re.compile(
    r"[0-9a-f]{32}|(urn:uuid:)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\{[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}",
    re.A | re.I,
).fullmatch


def _has_real_time(found: re.Match[str]) -> bool:
    dt.time.fromisoformat(found["clock"])
    offset = (found["offset"] or "0000").replace(":", "")
    return int(offset[:2]) < 24 and int(offset[2:]) < 60


def _is_date_time(text: str) -> bool:
    found = _date_time(text)
    if found is None:
        return _seconds_in(text) is not None
    dt.date.fromisoformat(found["date"])
    return found["clock"] is None or _has_real_time(found)


def _is_date(text: str) -> bool:
    found = _date_time(text)
    if found is None:
        seconds = _seconds_in(text)
        return seconds is not None and seconds % 86_400 == 0
    time = (found["clock"] or "") + (found["fraction"] or "")[:6]
    return _is_date_time(text) and not re.search("[1-9]", time)


def _seconds_in(text: str) -> Fraction | None:
    """Seconds or, if there are so many, milliseconds since 1970; in the years that Python has."""
    if len(text) > _LONGEST or not _seconds(text):
        return None
    seconds = Fraction(text.rstrip("."))
    if abs(seconds) > 20_000_000_000:
        seconds /= 1000
    return seconds if -62_135_596_800 <= seconds < 253_402_300_800 else None


def _is_time(text: str) -> bool:
    found = _time(text)
    return found is not None and _has_real_time(found)


def _is_decimal(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


def _is_decimal_or_infinite(text: str) -> bool:
    try:
        return not Decimal(text).is_nan()
    except ArithmeticError:
        return False


#: What is expected, for people; and whether a text is that, where a ValueError means no.
FORMATS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "date-time": ("a date and time such as '2026-01-31T12:00:00Z'", _is_date_time),
    "date": ("a date such as '2026-01-31'", _is_date),
    "time": ("a time such as '12:00:00'", _is_time),
    "uuid": ("a UUID", _uuid),
    "decimal": ("a decimal number", _is_decimal),
    "decimal-or-infinite": ("a decimal number", _is_decimal_or_infinite),
}
