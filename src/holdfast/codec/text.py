"""Values to text and back, within limits of depth and size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from holdfast.codec.fastjson import decode, encode, make_decode, quote
from holdfast.codec.foreign import is_model
from holdfast.codec.refusal import Refused
from holdfast.codec.tags import ATOMS, CONTAINERS, MAX_DEPTH, Other, pack, read_tag

#: What a value may grow to when objects that it holds several times are written out each time.
MAX_NODES: Final = 20_000_000

_PLAIN: Final = ATOMS | {list, dict}
_TEXT_KEYS: Final = frozenset({str})
#: So many digits may be those of an int which needs a tag.
_LONG: Final = 600
_DIGITS: Final = "0123456789"

_decode_tagged = make_decode(read_tag)


def to_text(value: Any, other: Other, *, known_plain: bool = False) -> str:
    """The text of a value; raises `Refused`. `other` decides about types that the format does not have."""
    kind = type(value)
    if kind is str:
        return quote(value)
    try:
        if known_plain or ((kind is list or kind is dict) and _is_plain(value)):
            try:
                text = encode(value)
                if not _has_long_digits(text):
                    return text
            except ValueError:
                pass  # NaN, or an int too long for decimal digits: these have tags
        elif kind not in ATOMS:
            guard_size(value)
        return encode(pack(value, 0, other))
    except RecursionError:
        raise Refused(value, "it is nested too deep for the stack that is left here.") from None


def from_text(text: str) -> Any:
    """The value of a text; raises ValueError, whatever is wrong with it."""
    try:
        value = _decode_tagged(text) if '"$' in text else decode(text)
        if len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        return value
    except (RecursionError, TypeError, ArithmeticError, LookupError, OSError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _has_long_digits(text: str) -> bool:
    """Looks at every 600th character: a row of digits that long has one of them."""
    for place in range(_LONG - 1, len(text), _LONG):
        if text[place] in _DIGITS:
            before = text[max(0, place - _LONG) : place]
            after = text[place : place + _LONG]
            row = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if row >= _LONG:
                return True
    return False


def _is_plain(value: Any) -> bool:
    """Whether the C encoder of json can write a list or dict as it is: no other type, no look-alike of a tag."""
    level = [value]
    guarded = False
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                if not _TEXT_KEYS.issuperset(map(type, item)) or (len(item) == 1 and next(iter(item))[:1] == "$"):
                    return False
                item = item.values()
            if not ATOMS.issuperset(map(type, item)):
                if not _PLAIN.issuperset(map(type, item)):
                    return False
                below += [part for part in item if type(part) is list or type(part) is dict]
        if not below:
            return True
        if len(below) > 10_000 and not guarded:
            guarded = True
            guard_size(value)
        level = below
    return False


def guard_size(value: Any) -> None:
    """Refuse what would explode: a value that holds an object twice, which holds one twice, and so on.

    Looks at each object once per level and counts how often it would be written.
    """
    level = {id(value): (value, 1)}
    total = 0
    for _ in range(MAX_DEPTH):
        below: dict[int, tuple[Any, int]] = {}
        for item, times in level.values():
            for part in _parts(item):
                total += times
                if type(part) not in ATOMS:
                    below[id(part)] = (part, below.get(id(part), (part, 0))[1] + times)
        if total > MAX_NODES:
            raise Refused(value, f"written out, it has more than {MAX_NODES:,} parts, or it contains itself.")
        if not below:
            return
        level = below


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for item in level for part in _parts(item) if isinstance(part, CONTAINERS)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, CONTAINERS):
        return value
    if is_model(type(value)) or dataclasses.is_dataclass(value):
        return list(getattr(value, "__dict__", {}).values())
    return ()
