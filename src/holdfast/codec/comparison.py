"""Whether what was read back is the original: equal, with equal types, all the way down."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from holdfast.codec.coders import MISSING
from holdfast.codec.fastjson import encode_sorted
from holdfast.codec.foreign import is_model, pack_named
from holdfast.codec.refusal import Refused, part, type_name
from holdfast.codec.tags import ATOMS, pack, pack_zone

#: So many values are compared by columns.
_MANY: Final = 16


def is_same(one: Any, two: Any) -> bool:
    """The quick answer for what JSON keeps. False may also mean: not sure, ask `check_same`."""
    kind: Any = type(one)
    if kind is not type(two):
        return False
    if kind in ATOMS:
        return bool(one == two)
    if kind is list:
        kinds = list(map(type, one))
        if kinds != list(map(type, two)):
            return False
        return bool(one == two) if ATOMS.issuperset(kinds) else _are_same(one, two)
    if kind is dict:
        return all(map(is_same, one, two)) and is_same(list(one.values()), list(two.values()))
    names = _model_fields(kind)
    if names is not None:
        mine, theirs = one.__dict__, two.__dict__
        for name in names:
            held, other = mine.get(name, MISSING), theirs.get(name, MISSING)
            if type(held) is not type(other) or not (held == other if type(held) in ATOMS else is_same(held, other)):
                return False
        extra = one.__pydantic_extra__
        return not extra or is_same(extra, two.__pydantic_extra__)
    if issubclass(kind, Enum):
        return one is two
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        return all(is_same(getattr(one, name, MISSING), getattr(two, name, MISSING)) for name in names)
    return False


def _are_same(ones: list[Any], twos: list[Any]) -> bool:
    """The same of two lists whose types are the same, which are not all atoms."""
    if len(ones) < _MANY:
        return all(map(is_same, ones, twos))
    kinds = set(map(type, ones))
    if len(kinds) == 1:
        return _are_same_of(kinds.pop(), ones, twos)
    for kind in kinds:
        mine, theirs = ([each for each in them if type(each) is kind] for them in (ones, twos))
        if not (mine == theirs if kind in ATOMS else _are_same_of(kind, mine, theirs)):
            return False
    return True


def _are_same_of(kind: Any, ones: list[Any], twos: list[Any]) -> bool:
    """The same of values of one type, by columns: without a step of the interpreter for each of them."""
    if kind is list or kind is dict:
        if list(map(len, ones)) != list(map(len, twos)) or (kind is dict and not _are_same_columns(*_flat(ones, twos))):
            return False
        return _are_same_columns(*(_flat(ones, twos) if kind is list else _flat(*_values(ones, twos))))
    names = _model_fields(kind)
    if names is not None:
        mine, theirs = ([each.__dict__ for each in them] for them in (ones, twos))
        if any(each.__pydantic_extra__ for each in ones):
            return all(map(is_same, ones, twos))
        columns = (([each.get(name, MISSING) for each in them] for them in (mine, theirs)) for name in names)
        return all(_are_same_columns(*column) for column in columns)
    if not issubclass(kind, Enum) and dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        columns = (([getattr(each, name, MISSING) for each in them] for them in (ones, twos)) for name in names)
        return all(_are_same_columns(*column) for column in columns)
    return all(map(is_same, ones, twos))


def _are_same_columns(ones: list[Any], twos: list[Any]) -> bool:
    kinds = list(map(type, ones))
    if kinds != list(map(type, twos)):
        return False
    return ones == twos if ATOMS.issuperset(kinds) else _are_same(ones, twos)


def _flat(*lists: Iterable[Iterable[Any]]) -> tuple[list[Any], ...]:
    return tuple(list(chain.from_iterable(each)) for each in lists)


def _values(*lists: list[Any]) -> tuple[Iterable[Any], ...]:
    return tuple(map(dict.values, each) for each in lists)


def _find_model_fields(kind: Any) -> tuple[str, ...] | None:
    return tuple(kind.__pydantic_fields__) if is_model(kind) else None


_model_fields: Callable[[Any], tuple[str, ...] | None] = lru_cache(1024)(_find_model_fields)


def check_same(one: Any, two: Any, expected: str) -> None:
    """Raise `Refused` with the path of the first part that came back as something else."""
    kind: Any = type(one)
    if kind is not type(two):
        if kind is int and type(two) is float and one == two:
            return  # an int where float is declared is right for type checkers, and no information is lost
        hint = "declare that class, or a union of the possible ones" if issubclass(kind, type(two)) else "convert it"
        raise Refused(one, f"found {type_name(one)}, which {expected} would give back as {type_name(two)}; {hint}.")
    same = True
    if issubclass(kind, list | tuple | deque):
        same = len(one) == len(two) and getattr(one, "maxlen", None) == getattr(two, "maxlen", None)
        for index, (mine, theirs) in enumerate(zip(one, two, strict=False)):
            _check_part(f"[{index}]", mine, theirs, expected=expected)
    elif issubclass(kind, dict):
        same = len(one) == len(two) and getattr(one, "default_factory", None) == getattr(two, "default_factory", None)
        for mine, theirs in zip(one, two, strict=False):
            _check_part(f"[key {part(mine)}]", mine, theirs, expected=expected)
            _check_part(part(mine), one[mine], two[theirs], expected=expected)
    elif is_model(kind):
        for name in kind.__pydantic_fields__:
            _check_part(part(name), one.__dict__.get(name, MISSING), two.__dict__.get(name, MISSING), expected=expected)
        check_same(one.__pydantic_extra__ or {}, two.__pydantic_extra__ or {}, expected)
    elif dataclasses.is_dataclass(kind) and not issubclass(kind, Enum):
        for name in (field.name for field in dataclasses.fields(kind)):
            _check_part(part(name), getattr(one, name, MISSING), getattr(two, name, MISSING), expected=expected)
    else:
        same = _is_same_leaf(kind, one, two)
    if not same:
        raise Refused(one, f"{type_name(one)} does not come back as it was when read as {expected}.")


def _check_part(outer: str, one: Any, two: Any, *, expected: str) -> None:
    try:
        check_same(one, two, expected)
    except Refused as refused:
        raise refused.within(outer) from None


def _is_same_leaf(kind: type, one: Any, two: Any) -> bool:
    if issubclass(kind, Enum):
        return one is two
    if kind is float:
        return repr(one) == repr(two)
    if issubclass(kind, Decimal):
        return str(one) == str(two)
    if issubclass(kind, dt.datetime | dt.time):
        return bool(one == two and one.fold == two.fold and pack_zone(one.tzinfo) == pack_zone(two.tzinfo))
    if issubclass(kind, set | frozenset):
        # Elements that are equal may differ in type: 1, 1.0 and True.
        return bool(one == two and _named(one) == _named(two))
    return bool(one == two)


def _named(value: Any) -> str:
    return encode_sorted(pack(value, 0, pack_named))
