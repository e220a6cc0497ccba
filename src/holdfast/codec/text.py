"""Values to text and back, within limits of depth and size."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from holdfast.base.data import brisk
from holdfast.codec.fastjson import Json, decode, encode, make_decode, quote
from holdfast.codec.foreign import is_model
from holdfast.codec.members import members_of
from holdfast.codec.refusal import Refused
from holdfast.codec.swift import are_plain, decode_swiftly, text_swiftly
from holdfast.codec.tags import ATOMS, CONTAINERS, LONG_INT, MAX_DEPTH, OtherTypes, pack, read_tag

#: What a value may grow to when objects that it holds several times are written out each time.
MAX_NODES: Final = 20_000_000

#: Fewer are not counted one by one.
_FEW_NODES: Final = 500_000

#: From so many characters on, a text is written and put in order by other means.
LARGE: Final = 2000
#: Deeper values are put in order without a stack of our own.
DEEP: Final = 30
#: So many parts are large, too.
_MANY: Final = 64
#: The types that the parts of a value have, and those of its parts, and so on; `float` only if some are not plain.
Levels = list[set[type]]
_UNKNOWN: Final[Levels] = []

_PLAIN: Final = ATOMS | {list, dict}
_TEXT_KEYS: Final = frozenset({str})
#: So many digits may be those of an int which needs a tag.
_LONG: Final = 600
_DIGITS: Final = "0123456789"

#: Where a tag may be. A string that begins with `$` is no tag.
_TAGGED: Final = r'\{\s*"\$'

_decode_tagged = make_decode(read_tag)


@brisk
class Tree:
    """A large JSON tree that `text_swiftly` writes."""

    value: Json
    depth: int  #: so many levels have lists and dicts


def to_text(value: Any, other: OtherTypes, *, known_plain: bool = False) -> str:
    """The text of a value; raises `Refused`. `other` decides about types that the format does not have."""
    return to_text_and_tree(value, other, known_plain=known_plain)[0]


def to_text_and_tree(value: Any, other: OtherTypes, *, known_plain: bool = False) -> tuple[str, Tree | None]:
    """The text of a value, and the tree that it is of if it is large."""
    kind = type(value)
    if kind is str:
        text = text_swiftly(value) if len(value) > LARGE else None
        return (quote(value), None) if text is None else (text, Tree(value, 0))
    if kind is int and -LONG_INT < value < LONG_INT:
        return int.__repr__(value), None
    try:
        levels = _levels(value, known_plain=known_plain) if kind is list or kind is dict else None
        if levels is not None:
            try:
                text, tree = _written(value, levels)
                is_long = len(text) > _LONG and (not levels or _has(int, levels)) and has_long_digits(text)
                if not is_long and ("$" not in text or '{"$' not in text):
                    return text, tree
            except ValueError:
                pass  # NaN, or an int too long for decimal digits: these have tags
        elif kind not in ATOMS:
            guard_size(value)
        packed = pack(value, 0, other)
        levels = _plain_levels(packed) if type(packed) is dict or type(packed) is list else None
        return _written(packed, levels or _UNKNOWN)
    except RecursionError:
        raise Refused(value, "it is nested too deep for the stack that is left here.") from None


def _written(tree: Json, levels: Levels) -> tuple[str, Tree | None]:
    text = text_swiftly(tree) if levels and not _has(float, levels) else None
    return (encode(tree), None) if text is None else (text, Tree(tree, len(levels) - 1))


def from_text(text: str) -> Any:
    """The value of a text; raises ValueError, whatever is wrong with it."""
    try:
        is_tagged = has_tags(text)
        if len(text) > LARGE and not is_tagged:
            value = decode_swiftly(text)
            if value is not None:
                return value
        value = _decode_tagged(text) if is_tagged else decode(text)
        if len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        return value
    except (RecursionError, TypeError, ArithmeticError, LookupError, OSError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def has_long_digits(text: str) -> bool:
    """Looks at every 600th character: a row of digits that long has one of them, and half of itself on one side."""
    half = _LONG // 2
    for mark in re.finditer("[0-9]", text[_LONG - 1 :: _LONG]):
        place = (mark.start() + 1) * _LONG - 1
        if text[place : place + half].isdigit() or text[place - half : place].isdigit():
            before = text[place - _LONG + 1 : place]
            after = text[place : place + _LONG]
            row = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if row >= _LONG:
                return True
    return False


def _has(kind: type, levels: Levels) -> bool:
    return any(kind in kinds for kinds in levels)


def plain_tree(value: Any) -> Tree | None:
    """A value that is JSON as it is, with plain floats; but for look-alikes of tags, and ints of many digits."""
    if type(value) is dict or type(value) is list:
        levels = _levels_of_many(value)
        return None if levels is None or _has(float, levels) else Tree(value, len(levels) - 1)
    return Tree(value, 0) if type(value) in ATOMS and (type(value) is not float or are_plain([value])) else None


def has_dollars(text: str) -> bool:
    """Whether a string begins with `$`: a tag, or one of the user's."""
    return "$" in text and '"$' in text  # the first look takes a fiftieth of the second


def has_tags(text: str) -> bool:
    """Whether a text has tags, or objects of others that look like them."""
    return has_dollars(text) and re.search(_TAGGED, text) is not None


def _levels(value: Any, *, known_plain: bool) -> Levels | None:
    if not known_plain:
        return _plain_levels(value)
    return _levels_of_many(value) if len(value) > _MANY else _UNKNOWN


def _plain_levels(value: Any) -> Levels | None:
    """The types on each level of a list or dict if it can be written as it is, but for look-alikes of tags.

    None: it cannot. Empty: it can, and is too small to look any closer.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                if not _TEXT_KEYS.issuperset(map(type, item)):
                    return None
                item = item.values()
            if len(item) > _MANY:
                return _levels_of_many(value)
            if not ATOMS.issuperset(map(type, item)):
                if not _PLAIN.issuperset(map(type, item)):
                    return None
                below += [part for part in item if type(part) is list or type(part) is dict]
        if not below:
            return _UNKNOWN
        if len(below) > _MANY:
            return _levels_of_many(value)
        level = below
    return None


def _levels_of_many(value: Any) -> Levels | None:
    """The same of what is large: all parts of a level at once, without a step of the interpreter for each."""
    level, levels = [value], [{type(value)}]
    guarded = False
    for _ in range(MAX_DEPTH):
        found = members_of(level)
        if found is None:
            return None
        parts, kinds = found
        if not _PLAIN.issuperset(kinds):
            return None
        has_plain = float in kinds and are_plain([part for part in parts if type(part) is float])
        levels.append(kinds - {float} if has_plain else kinds)
        if ATOMS.issuperset(kinds):
            return levels
        level = parts if ATOMS.isdisjoint(kinds) else [part for part in parts if type(part) not in ATOMS]
        if len(level) > 10_000 and not guarded:
            guarded = True
            guard_size(value)
    return None


def guard_size(value: Any) -> None:
    """Refuse what would explode: a value that holds an object twice, which holds one twice, and so on.

    Looks at each object once per level and counts how often it would be written.
    """
    if _is_small(value):
        return
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


def _is_small(value: Any) -> bool:
    """Whether it has few parts, however often it holds them; seen without a step of the interpreter for each."""
    level, total = [value], 0
    for _ in range(MAX_DEPTH):
        parts: list[Any] = []
        for kind in set(map(type, level)):
            held: list[Any] = [item for item in level if type(item) is kind]
            if is_model(kind) or (dataclasses.is_dataclass(kind) and kind.__dictoffset__):
                held, kind = [item.__dict__ for item in held], dict
            elif dataclasses.is_dataclass(kind) or (issubclass(kind, CONTAINERS) and kind not in CONTAINERS):
                return False
            if kind in CONTAINERS:
                total += sum(map(len, held))
                if total > _FEW_NODES:
                    return False
                parts += chain.from_iterable(held)
                if kind is dict:
                    parts += chain.from_iterable(map(dict.values, held))
        level = [part for part in parts if type(part) not in ATOMS]
        if not level:
            return True
    return False


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
