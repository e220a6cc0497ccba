"""The format: values as JSON trees, where tags stand for what JSON does not have, and back.

`TAGS` has a row for each tagged type. Ints, floats and dicts are tagged only where JSON cannot hold them as they are.
A tag is for ever: stored values outlive releases.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from holdfast.base.data import brisk
from holdfast.codec.fastjson import Json, encode
from holdfast.codec.later import DECIMAL, FRACTION, PATH, REAL_PATH, UUID, ZONE_INFO, Later
from holdfast.codec.refusal import Refused, class_name, part, type_name

if TYPE_CHECKING:
    from fractions import Fraction
    from zoneinfo import ZoneInfo

T = TypeVar("T")


class OtherTypes:
    """Decides about values whose type is not exactly one of the known ones."""

    def __call__(self, value: Any, depth: int) -> Json:
        """The JSON tree of a value, or `Refused`."""
        raise NotImplementedError

    def many(self, kind: type, values: Sequence[Any], depth: int) -> list[Json] | None:
        """The same of many values of one type, if there is a way that takes less for each of them."""
        return None


#: Deeper values are refused, in both directions; a value that contains itself is infinitely deep.
MAX_DEPTH: Final = 200
ATOMS: Final = frozenset({str, int, float, bool, type(None)})
CONTAINERS: Final = (list, dict, tuple, set, frozenset, deque)
#: Python refuses to read ints of more digits than a limit that a process may set as low as 640.
LONG_INT: Final = 1 << 2000
#: So many values are looked at together.
_MANY: Final = 16
_MOST: Final = 1_000_000
_ZONE_KEY: Final = r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"


def pack(value: Any, depth: int, other: OtherTypes) -> Json:
    """The JSON tree of a value; raises `Refused`, as does `other` for what it does not take."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if -LONG_INT < value < LONG_INT else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth > MAX_DEPTH:
        raise Refused(value, f"it is nested deeper than {MAX_DEPTH} levels, or contains itself.")
    if kind is list:
        return _pack_items(value, depth, other)
    if kind is dict:
        return _pack_dict(value, depth, other)
    found = _TAG_OF.get(kind) or _later_tag_of(kind)
    if found is not None:
        tag, write = found
        return {tag: write(value, depth + 1, other)}
    return other(value, depth)


def read_tag(found: dict[str, Any]) -> Any:
    """The value of an object in a JSON tree: a dict, or what its tag says. Raises all sorts of errors."""
    if len(found) != 1:
        return found
    ((tag, body),) = found.items()
    if tag[:1] != "$":
        return found
    read = _READ.get(tag)
    if read is None:
        raise ValueError(f"unknown tag {tag[:40]!r}")
    return read(body)


def _exact(kind: type[T], body: Json) -> T:
    if type(body) is not kind:
        raise ValueError(f"expected {kind.__name__} in a tag, found {type_name(body)}")
    return body


def _list(body: Json, length: int | None = None) -> list[Any]:
    items: list[Any] = _exact(list, body)
    if length not in (None, len(items)):
        raise ValueError(f"expected {length} items in a tag, found {len(items)}")
    return items


def _pack_items(items: Collection[Any], depth: int, other: OtherTypes) -> list[Json]:
    if len(items) > _MANY and depth < MAX_DEPTH - 3:
        many = pack_many(list(items), depth + 1, other)
        if many is not None:
            return many
    packed: list[Json] = []
    for item in items:
        try:
            packed.append(pack(item, depth + 1, other))
        except Refused as refused:
            raise refused.within(f"[{len(packed)}]") from None
    return packed


def pack_many(values: list[Any], depth: int, other: OtherTypes) -> list[Json] | None:
    """The JSON trees of many values, all of a level at once; the same list if nothing changes. None: one by one."""
    kinds = set(map(type, values))
    if not _are_short(values, kinds):
        return None
    packed = values
    for kind in kinds - ATOMS:
        own = values if len(kinds) == 1 else [each for each in values if type(each) is kind]
        found = _pack_alike(own, depth, other)
        if found is None:
            return None
        if found is not own:
            rest = iter(found)
            packed = [next(rest) if type(each) is kind else done for each, done in zip(values, packed, strict=True)]
    return packed


def _pack_alike(values: list[Any], depth: int, other: OtherTypes) -> list[Json] | None:
    kind = type(values[0])
    if kind is not dict and kind is not list:
        is_known = kind in CONTAINERS or kind in _TAG_OF or _later_tag_of(kind) is not None
        return None if is_known else other.many(kind, values, depth)
    if depth > MAX_DEPTH - 3 or sum(map(len, values)) > _MOST:
        return None
    if kind is list:
        parts = list(chain.from_iterable(values))
        packed = pack_many(parts, depth + 1, other)
        if packed is None or packed is parts:
            return None if packed is None else values
        rest = iter(packed)
        return [list(islice(rest, len(each))) for each in values]
    # One that looks like a tag is written in another way.
    if not {str}.issuperset(map(type, chain.from_iterable(values))) or any(
        len(each) == 1 and next(iter(each))[:1] == "$" for each in values
    ):
        return None
    parts = list(chain.from_iterable(map(dict.values, values)))
    packed = pack_many(parts, depth + 1, other)
    if packed is None or packed is parts:
        return None if packed is None else values
    rest = iter(packed)
    return [dict(zip(each, rest, strict=False)) for each in values]


def _are_short(atoms: Iterable[Any], kinds: Set[type]) -> bool:
    """Whether none of them needs a tag."""
    if float in kinds and not all(map(math.isfinite, (each for each in atoms if type(each) is float))):
        return False
    return int not in kinds or all(-LONG_INT < each < LONG_INT for each in atoms if type(each) is int)


def _pack_dict(value: dict[Any, Any], depth: int, other: OtherTypes) -> Json:
    packed: list[list[Json]] = []
    plain = True
    for key, item in value.items():
        plain = plain and type(key) is str
        try:
            packed_key = pack(key, depth + 1, other)
        except Refused as refused:
            raise refused.within(f"[key {len(packed)}]") from None
        try:
            packed.append([packed_key, pack(item, depth + 1, other)])
        except Refused as refused:
            raise refused.within(part(key)) from None
    if not plain or (len(packed) == 1 and packed[0][0][:1] == "$"):
        return {"$dict": packed}
    return dict(packed)


def _read_dict(body: Json) -> dict[Any, Any]:
    return dict(_list(pair, 2) for pair in _list(body))


def _write_set(value: Iterable[Any], depth: int, other: OtherTypes) -> Json:
    # A set has no order that another process would share: the written one is that of the elements' texts.
    packed: list[Json] = []
    for item in value:
        try:
            packed.append(pack(item, depth, other))
        except Refused as refused:
            raise refused.within("{…}") from None
    return sorted(packed, key=encode)


def _write_deque(value: deque[Any], depth: int, other: OtherTypes) -> Json:
    return [value.maxlen, _pack_items(value, depth, other)]


def _read_deque(body: Json) -> deque[Any]:
    maxlen, items = _list(body, 2)
    return deque(_list(items), None if maxlen is None else _exact(int, maxlen))


def _write_bytes(value: bytes, *_: object) -> Json:
    return base64.b64encode(value).decode("ascii")


def _read_bytes(body: Json) -> bytes:
    return base64.b64decode(_exact(str, body), validate=True)


def _write_datetime(value: dt.datetime, *_: object) -> Json:
    zone = pack_zone(value.tzinfo)
    has_offset_only = type(zone) is list and len(zone) == 1
    if value.fold == 0 and (zone is None or has_offset_only):
        return value.isoformat()
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone]


def _read_datetime(body: Json) -> dt.datetime:
    if type(body) is str:
        return dt.datetime.fromisoformat(body)
    text, fold, zone = _list(body, 3)
    return dt.datetime.fromisoformat(_exact(str, text)).replace(fold=_exact(int, fold), tzinfo=_read_zone(zone))


def _write_time(value: dt.time, *_: object) -> Json:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, pack_zone(value.tzinfo)]


def _read_time(body: Json) -> dt.time:
    text, fold, zone = _list(body, 3)
    return dt.time.fromisoformat(_exact(str, text)).replace(fold=_exact(int, fold), tzinfo=_read_zone(zone))


def pack_zone(zone: dt.tzinfo | None) -> Json:
    """A time zone as its key, or as its offset, with a name where it has one of its own."""
    if zone is None:
        return None
    if _is_zone_info(zone) and zone.key is not None and re.fullmatch(_ZONE_KEY, zone.key):
        return zone.key
    if type(zone) is dt.timezone or _is_parsed_by_pydantic(zone):
        offset = zone.utcoffset(None)
        assert offset is not None
        name = zone.tzname(None) if type(zone) is dt.timezone else None
        return (
            [_write_delta(offset)] if name in (None, dt.timezone(offset).tzname(None)) else [_write_delta(offset), name]
        )
    raise Refused(zone, f"its time zone is a {type_name(zone)}; use zoneinfo.ZoneInfo or datetime.timezone.")


def _is_zone_info(zone: dt.tzinfo) -> TypeGuard[ZoneInfo]:
    return ZONE_INFO.is_type(type(zone))


def _is_parsed_by_pydantic(zone: dt.tzinfo) -> bool:
    """Whether it is pydantic's twin of `datetime.timezone`, told by its name: importing pydantic takes long."""
    kind = type(zone)
    return class_name(kind) == "TzInfo" and kind.__module__.partition(".")[0] == "pydantic_core"


def _read_zone(body: Json) -> dt.tzinfo | None:
    if body is None:
        return None
    if type(body) is str:
        if not re.fullmatch(_ZONE_KEY, body):
            raise ValueError(f"{body[:40]!r} is not the name of a time zone")
        return ZONE_INFO.load()(body)  # type: ignore[no-any-return]
    offset, *name = _list(body)
    return dt.timezone(_read_delta(offset), *[_exact(str, text) for text in name])


def _write_delta(value: dt.timedelta, *_: object) -> Json:
    return [value.days, value.seconds, value.microseconds]


def _read_delta(body: Json) -> dt.timedelta:
    days, seconds, microseconds = (_exact(int, number) for number in _list(body, 3))
    return dt.timedelta(days=days, seconds=seconds, microseconds=microseconds)


def _write_complex(value: complex, depth: int, other: OtherTypes) -> Json:
    return _pack_items((value.real, value.imag), depth, other)


def _write_fraction(value: Fraction, depth: int, other: OtherTypes) -> Json:
    return _pack_items((value.numerator, value.denominator), depth, other)


def _write_range(value: range, depth: int, other: OtherTypes) -> Json:
    return _pack_items((value.start, value.stop, value.step), depth, other)


def _write_str(value: object, *_: object) -> Json:
    return str(value)


@brisk
class Tag:
    """A type, and how the body of its tag is written and read."""

    kind: type | Later
    write: Callable[[Any, int, OtherTypes], Json]
    read: Callable[[Json], Any]


TAGS: Final[Mapping[str, Tag]] = {
    "$tuple": Tag(tuple, _pack_items, lambda body: tuple(_list(body))),
    "$set": Tag(set, _write_set, lambda body: set(_list(body))),
    "$frozenset": Tag(frozenset, _write_set, lambda body: frozenset(_list(body))),
    "$deque": Tag(deque, _write_deque, _read_deque),
    "$bytes": Tag(bytes, _write_bytes, _read_bytes),
    "$bytearray": Tag(bytearray, _write_bytes, lambda body: bytearray(_read_bytes(body))),
    "$datetime": Tag(dt.datetime, _write_datetime, _read_datetime),
    "$date": Tag(dt.date, _write_str, lambda body: dt.date.fromisoformat(_exact(str, body))),
    "$time": Tag(dt.time, _write_time, _read_time),
    "$timedelta": Tag(dt.timedelta, _write_delta, _read_delta),
    "$decimal": Tag(DECIMAL, _write_str, lambda body: DECIMAL.load()(_exact(str, body))),
    "$uuid": Tag(UUID, _write_str, lambda body: UUID.load()(_exact(str, body))),
    "$path": Tag(REAL_PATH, _write_str, lambda body: PATH.load()(_exact(str, body))),
    "$complex": Tag(
        complex, _write_complex, lambda body: complex(*[_exact(float, number) for number in _list(body, 2)])
    ),
    "$fraction": Tag(
        FRACTION, _write_fraction, lambda body: FRACTION.load()(*[_exact(int, number) for number in _list(body, 2)])
    ),
    "$range": Tag(range, _write_range, lambda body: range(*[_exact(int, number) for number in _list(body, 3)])),
}

_TAG_OF: Final = {row.kind: (tag, row.write) for tag, row in TAGS.items() if isinstance(row.kind, type)}
_TAG_OF_LATER: Final = [(row.kind, (tag, row.write)) for tag, row in TAGS.items() if isinstance(row.kind, Later)]
_READ: Final[Mapping[str, Callable[[Json], Any]]] = {
    "$int": lambda body: int(_exact(str, body), 16),
    "$float": lambda body: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[_exact(str, body)],
    "$dict": _read_dict,
    **{tag: row.read for tag, row in TAGS.items()},
}


def tags_of(kinds: Iterable[type]) -> frozenset[str]:
    """The tags of those of these types that have one."""
    found = (_TAG_OF.get(kind) or _later_tag_of(kind) for kind in kinds)
    return frozenset(row[0] for row in found if row is not None)


def _later_tag_of(kind: type) -> tuple[str, Callable[[Any, int, OtherTypes], Json]] | None:
    return next((row for later, row in _TAG_OF_LATER if later.is_type(kind)), None)
