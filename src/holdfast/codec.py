"""Values, arguments and exceptions as JSON text, and back.

There is one format, whatever the annotation: JSON in ASCII, where an object with a single key that starts with `$` is
a tag for what JSON does not have (`{"$tuple": [1, 2]}`). The tags are a closed set; a dict of the user that looks like
one is written as `{"$dict": [[key, value]]}`. Nothing in stored data ever names a class to import or a function to
call: classes come only from the annotation that the code has now.

Three kinds of coders read and write that format. They differ in how they know that a value comes back as it was:

- no annotation: only exact builtin types are taken, and each of them is written without loss;
- an annotation made of builtins (`list[str]`): the same, and the shape is compared with the annotation;
- anything else goes through pydantic, which may drop or convert (a subclass loses its fields, a validator changes the
  value). So each value is decoded right after it was encoded, compared with the original, types included, and refused
  if it differs. What pydantic does not store by design stays unstored: private attributes and `model_fields_set`.

Live equals replay: whoever calls a step gets what `roundtrip` decoded, never the object that the step returned.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime as dt
import inspect
import json
import math
import pathlib
import re
import types
import typing
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any, Final, Generic, TypeVar
from zoneinfo import ZoneInfo

import typing_extensions
from pydantic import BaseModel, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import TzInfo, to_jsonable_python

from holdfast.codec_errors import ErrorCodec
from holdfast.errors import Undecodable, Unserialisable, UsageError

T = TypeVar("T")


class _Missing(Enum):
    MISSING = "no annotation"


MISSING: Final = _Missing.MISSING

#: Deeper values are refused, in both directions; a value that contains itself is infinitely deep.
MAX_DEPTH: Final = 200
#: What a value may grow to when objects that it holds several times are written out each time.
MAX_NODES: Final = 20_000_000
#: Python refuses to read ints of more digits than a limit that a process may set as low as 640.
_LONG_INT: Final = 1 << 2000
_LONG_DIGITS: Final = re.compile(r"\d{600}")
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")

_Json = Any
_Other = Callable[[Any, int], _Json]


class _Refused(Exception):
    """A value cannot be written; the path grows while the error climbs out of the containers."""

    def __init__(self, found: object, why: str) -> None:
        super().__init__(why)
        self.found = type_name(found)
        self.why = why
        self.path: list[str] = []

    def within(self, part: str) -> _Refused:
        self.path.append(part)
        return self

    def error(self, what: str) -> Unserialisable:
        path = self.where(what)
        return Unserialisable(f"{path} cannot be stored: {self.why}", path=path, type_name=self.found)

    def where(self, what: str) -> str:
        parts = self.path[::-1]
        if len(parts) > 40:
            parts[20:-10] = ["…"]
        return what + "".join(parts)


def type_name(value: object) -> str:
    """The qualified name of a value's type, without its module: `__main__` is another one under a worker."""
    return str(type.__dict__["__qualname__"].__get__(type(value)))


def digest(text: str | bytes) -> str:
    """16 hex digits that stand for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, digest_size=8).hexdigest()


def blob_digest(data: bytes) -> str:
    """32 hex digits that stand for a blob, the name it is stored under."""
    return blake2b(data, digest_size=16).hexdigest()


# The format: writing


def _json_encoder(sort_keys: bool) -> Callable[[_Json], str]:
    if c_make_encoder is None:
        return json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=sort_keys).encode
    # JSONEncoder.encode builds this object anew on each call, which takes longer than encoding a small value.
    encode = c_make_encoder(None, _not_json, encode_basestring_ascii, None, ":", ",", sort_keys, False, False)
    return lambda tree: "".join(encode(tree, 0))


def _not_json(value: object) -> typing.NoReturn:
    raise TypeError(f"{type_name(value)} is not JSON")


_encode = _json_encoder(sort_keys=False)
_encode_sorted = _json_encoder(sort_keys=True)

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})
_PLAIN: Final = _ATOMS | {list, dict}
_TEXT_KEYS: Final = frozenset({str})
_CONTAINERS: Final = (list, dict, tuple, set, frozenset, deque)
_BASES: Final[tuple[Any, ...]] = (str, int, float, bytes, bytearray, *_CONTAINERS)


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
            if not _ATOMS.issuperset(map(type, item)):
                if not _PLAIN.issuperset(map(type, item)):
                    return False
                below += [part for part in item if type(part) is list or type(part) is dict]
        if not below:
            return True
        if len(below) > 10_000 and not guarded:
            guarded = True
            _guard_size(value)
        level = below
    return False


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, _CONTAINERS):
        return value
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return list(getattr(value, "__dict__", {}).values())
    return ()


def _guard_size(value: Any) -> None:
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
                if type(part) not in _ATOMS:
                    below[id(part)] = (part, below.get(id(part), (part, 0))[1] + times)
        if total > MAX_NODES:
            raise _Refused(value, f"written out, it has more than {MAX_NODES:,} parts, or it contains itself.")
        if not below:
            return
        level = below


def _pack(value: Any, depth: int, other: _Other) -> _Json:
    """The JSON tree of a value; `other` decides about types that are not exactly one of the known ones."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if -_LONG_INT < value < _LONG_INT else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth > MAX_DEPTH:
        raise _Refused(value, f"it is nested deeper than {MAX_DEPTH} levels, or contains itself.")
    if kind is list:
        return _pack_items(value, depth, other)
    if kind is dict:
        return _pack_dict(value, depth, other)
    pack = _PACK_NESTED.get(kind)
    if pack is not None:
        return pack(value, depth + 1, other)
    write = _PACK_LEAF.get(kind)
    if write is not None:
        return write(value)
    return other(value, depth)


def _pack_items(items: Iterable[Any], depth: int, other: _Other) -> list[_Json]:
    packed = []
    for item in items:
        try:
            packed.append(_pack(item, depth + 1, other))
        except _Refused as refused:
            raise refused.within(f"[{len(packed)}]") from None
    return packed


def _pack_dict(value: dict[Any, Any], depth: int, other: _Other) -> _Json:
    packed: list[list[_Json]] = []
    plain = True
    for key, item in value.items():
        plain = plain and type(key) is str
        try:
            packed_key = _pack(key, depth + 1, other)
        except _Refused as refused:
            raise refused.within(f"[key {len(packed)}]") from None
        try:
            packed.append([packed_key, _pack(item, depth + 1, other)])
        except _Refused as refused:
            raise refused.within(_part(key)) from None
    if not plain or (len(packed) == 1 and packed[0][0][:1] == "$"):
        return {"$dict": packed}
    return dict(packed)


def _part(key: Any) -> str:
    if type(key) is str:
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    return f"[{key!r}]" if type(key) in _ATOMS else f"[{type_name(key)}]"


def _pack_set(tag: str, value: Iterable[Any], depth: int, other: _Other) -> _Json:
    # A set has no order that another process would share: the written one is that of the elements' texts.
    packed = []
    for item in value:
        try:
            packed.append(_pack(item, depth, other))
        except _Refused as refused:
            raise refused.within("{…}") from None
    return {tag: sorted(packed, key=_encode)}


def _pack_tuple(value: tuple[Any, ...], depth: int, other: _Other) -> _Json:
    return {"$tuple": _pack_items(value, depth, other)}


def _pack_deque(value: deque[Any], depth: int, other: _Other) -> _Json:
    return {"$deque": [value.maxlen, _pack_items(value, depth, other)]}


def _pack_datetime(value: dt.datetime) -> _Json:
    if value.fold == 0 and (value.tzinfo is None or type(value.tzinfo) in (dt.timezone, TzInfo)):
        zone = _pack_zone(value.tzinfo)
        if zone is None or len(zone) == 1:
            return {"$datetime": value.isoformat()}
    return {"$datetime": [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _pack_zone(value.tzinfo)]}


def _pack_time(value: dt.time) -> _Json:
    return {"$time": [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _pack_zone(value.tzinfo)]}


def _pack_zone(zone: dt.tzinfo | None) -> _Json:
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None and _ZONE_KEY.fullmatch(zone.key):
        return zone.key
    offset = zone.utcoffset(None) if type(zone) in (dt.timezone, TzInfo) else None
    if offset is not None:
        name = dt.timezone(offset).tzname(None) if type(zone) is TzInfo else zone.tzname(None)
        return [_seconds(offset)] if name == dt.timezone(offset).tzname(None) else [_seconds(offset), name]
    raise _Refused(zone, f"its time zone is a {type_name(zone)}; use zoneinfo.ZoneInfo or datetime.timezone.")


def _seconds(delta: dt.timedelta) -> list[int]:
    return [delta.days, delta.seconds, delta.microseconds]


def _exactly(value: Any) -> _Json:
    return _pack(value, 0, _refuse)


_PACK_NESTED: Final[Mapping[type, Callable[[Any, int, _Other], _Json]]] = {
    tuple: _pack_tuple,
    set: partial(_pack_set, "$set"),
    frozenset: partial(_pack_set, "$frozenset"),
    deque: _pack_deque,
}

_PACK_LEAF: Final[Mapping[type, Callable[[Any], _Json]]] = {
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode("ascii")},
    bytearray: lambda value: {"$bytearray": base64.b64encode(value).decode("ascii")},
    dt.datetime: _pack_datetime,
    dt.date: lambda value: {"$date": value.isoformat()},
    dt.time: _pack_time,
    dt.timedelta: lambda value: {"$timedelta": _seconds(value)},
    Decimal: lambda value: {"$decimal": str(value)},
    uuid.UUID: lambda value: {"$uuid": str(value)},
    type(pathlib.Path()): lambda value: {"$path": str(value)},
    complex: lambda value: {"$complex": [_exactly(value.real), _exactly(value.imag)]},
    Fraction: lambda value: {"$fraction": [_exactly(value.numerator), _exactly(value.denominator)]},
    range: lambda value: {"$range": [_exactly(value.start), _exactly(value.stop), _exactly(value.step)]},
}


def _is_attrs(kind: type) -> bool:
    return hasattr(kind, "__attrs_attrs__")


def _refuse(value: Any, depth: int) -> _Json:
    name = type_name(value)
    if isinstance(value, Secret | SecretStr | SecretBytes):
        raise _Refused(value, f"{name} is a secret, and secrets are not stored; fetch it where it is used.")
    if isinstance(value, memoryview):
        raise _Refused(value, "a memoryview is a window into another object; store bytes(view).")
    if _is_attrs(type(value)):
        raise _Refused(value, f"{name} is an attrs class; use a dataclass or a pydantic model, or attrs.asdict().")
    if isinstance(value, Enum | BaseModel) or dataclasses.is_dataclass(value) or hasattr(type(value), "_fields"):
        raise _Refused(
            value, f"found {name}, and nothing says which class to read it back as; annotate it (`-> {name}`)."
        )
    if isinstance(value, (*_CONTAINERS, str, int, float, complex, bytes, bytearray)):
        raise _Refused(value, f"found {name}, a subclass of a builtin; annotate it or convert it to the builtin.")
    raise _Refused(
        value, f"found {name}; return data (builtins, dataclasses, pydantic models) and not objects that do things."
    )


def _to_text(value: Any, other: _Other, *, known_plain: bool = False) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    try:
        if known_plain or ((kind is list or kind is dict) and _is_plain(value)):
            try:
                text = _encode(value)
                if len(text) < 600 or not _LONG_DIGITS.search(text):
                    return text
            except ValueError:
                pass  # NaN, or an int too long for decimal digits: these have tags
        elif kind not in _ATOMS:
            _guard_size(value)
        return _encode(_pack(value, 0, other))
    except RecursionError:
        raise _Refused(value, "it is nested too deep for the stack that is left here.") from None


# The format: reading


def _no_constant(token: str) -> typing.NoReturn:
    raise ValueError(f"the bare token {token}")


def _read_tag(found: dict[str, Any]) -> Any:
    if len(found) != 1:
        return found
    ((tag, body),) = found.items()
    if tag[:1] != "$":
        return found
    read = _READ.get(tag)
    if read is None:
        raise ValueError(f"unknown tag {tag[:40]!r}")
    return read(body)


def _items(body: Any, length: int | None = None) -> list[Any]:
    if type(body) is not list or length not in (None, len(body)):
        raise ValueError("the body of a tag has the wrong shape")
    return body


def _text(body: Any) -> str:
    if type(body) is not str:
        raise ValueError("the body of a tag is not a string")
    return body


def _int(body: Any) -> int:
    if type(body) is not int:
        raise ValueError("the body of a tag is not an int")
    return body


def _float(body: Any) -> float:
    if type(body) is not float:
        raise ValueError("the body of a tag is not a float")
    return body


def _read_dict(body: Any) -> dict[Any, Any]:
    return dict(_items(pair, 2) for pair in _items(body))


def _read_bytes(body: Any) -> bytes:
    return base64.b64decode(_text(body), validate=True)


def _read_datetime(body: Any) -> dt.datetime:
    if type(body) is str:
        return dt.datetime.fromisoformat(body)
    text, fold, zone = _items(body, 3)
    return dt.datetime.fromisoformat(_text(text)).replace(fold=_int(fold), tzinfo=_read_zone(zone))


def _read_time(body: Any) -> dt.time:
    text, fold, zone = _items(body, 3)
    return dt.time.fromisoformat(_text(text)).replace(fold=_int(fold), tzinfo=_read_zone(zone))


def _read_zone(body: Any) -> dt.tzinfo | None:
    if body is None:
        return None
    if type(body) is str:
        if not _ZONE_KEY.fullmatch(body):
            raise ValueError(f"{body[:40]!r} is not the name of a time zone")
        return ZoneInfo(body)
    offset, *name = _items(body)
    return dt.timezone(_read_delta(offset), *[_text(part) for part in name])


def _read_delta(body: Any) -> dt.timedelta:
    days, seconds, microseconds = _items(body, 3)
    return dt.timedelta(days=_int(days), seconds=_int(seconds), microseconds=_int(microseconds))


def _read_deque(body: Any) -> deque[Any]:
    maxlen, items = _items(body, 2)
    return deque(_items(items), None if maxlen is None else _int(maxlen))


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$int": lambda body: int(_text(body), 16),
    "$float": lambda body: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[_text(body)],
    "$tuple": lambda body: tuple(_items(body)),
    "$set": lambda body: set(_items(body)),
    "$frozenset": lambda body: frozenset(_items(body)),
    "$deque": _read_deque,
    "$dict": _read_dict,
    "$bytes": _read_bytes,
    "$bytearray": lambda body: bytearray(_read_bytes(body)),
    "$datetime": _read_datetime,
    "$date": lambda body: dt.date.fromisoformat(_text(body)),
    "$time": _read_time,
    "$timedelta": _read_delta,
    "$decimal": lambda body: Decimal(_text(body)),
    "$uuid": lambda body: uuid.UUID(_text(body)),
    "$path": lambda body: pathlib.Path(_text(body)),
    "$complex": lambda body: complex(*map(_float, _items(body, 2))),
    "$fraction": lambda body: Fraction(*map(_int, _items(body, 2))),
    "$range": lambda body: range(*map(_int, _items(body, 3))),
}

_plain_decoder = json.JSONDecoder(parse_constant=_no_constant)
_tag_decoder = json.JSONDecoder(parse_constant=_no_constant, object_hook=_read_tag)
# decode() looks for blanks around the value by regular expressions; our own texts have none.
_scan_plain = _plain_decoder.scan_once  # type: ignore[attr-defined]
_scan_tags = _tag_decoder.scan_once  # type: ignore[attr-defined]


def _from_text(text: str) -> Any:
    """The value of a text; raises ValueError, whatever is wrong with it."""
    try:
        try:
            value, end = _scan_tags(text, 0) if '"$' in text else _scan_plain(text, 0)
        except StopIteration:
            value, end = None, -1
        if end != len(text):
            value = (_tag_decoder if '"$' in text else _plain_decoder).decode(text)
        if len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        return value
    except (RecursionError, TypeError, ArithmeticError, LookupError, OSError, AttributeError, binascii.Error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for item in level for part in _parts(item) if isinstance(part, _CONTAINERS)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


# Coders


class Coder(Generic[T]):
    """Writes and reads the values of one annotation; get it from `coder_for`.

    `problem` says why values of this annotation cannot be stored at all, so that a decorator can refuse early.
    This class is the coder for what has no annotation: exact builtins, written without loss.
    """

    problem: str | None = None

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation

    def dumps(self, value: T, *, what: str = "value") -> str:
        """The text of a value; raises `Unserialisable` with the path of the part that cannot be stored."""
        try:
            return _to_text(value, _refuse)
        except _Refused as refused:
            raise refused.error(what) from None

    def loads(self, text: str, *, what: str = "value") -> T:
        """The value of a text; raises `Undecodable` if it is damaged or does not fit the annotation."""
        try:
            return _from_text(text)  # type: ignore[no-any-return]
        except ValueError as error:
            raise Undecodable(f"{what} cannot be read: the stored text is damaged or foreign ({error}).") from None

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        """The text of a value and what it reads back as, which is what the caller of a step gets."""
        text = self.dumps(value, what=what)
        if type(value) in _ATOMS:
            return text, value
        return text, self.loads(text, what=what)


class _PlainCoder(Coder[T]):
    """For annotations made of builtins: the format loses nothing of them, so that only the shape is checked."""

    def __init__(self, annotation: object, shape: _Shape) -> None:
        super().__init__(annotation)
        self._shape = shape

    def dumps(self, value: T, *, what: str = "value") -> str:
        try:
            self._shape.check(value)
            return _to_text(value, _refuse, known_plain=self._shape.proves_json)
        except _Refused as refused:
            raise refused.error(what) from None

    def loads(self, text: str, *, what: str = "value") -> T:
        value = super().loads(text, what=what)
        try:
            self._shape.check(value)
        except _Refused as refused:
            expected = describe(self.annotation)
            raise Undecodable(
                f"{refused.where(what)} does not fit {expected}, which the code asks for now: {refused.why}"
            ) from None
        return value


class _ModelCoder(Coder[T]):
    """For what pydantic knows; each value is read back and compared before its text is given out."""

    def __init__(self, annotation: object, adapter: TypeAdapter[T]) -> None:
        super().__init__(annotation)
        self._to_json = adapter.serializer.to_json
        self._to_python = adapter.serializer.to_python
        self._from_json = adapter.validator.validate_json
        self._from_python = adapter.validator.validate_python
        kinds = set(_schema_kinds(adapter.core_schema))
        self._is_json = kinds <= _JSON_SCHEMAS
        self._may_explode = not kinds.isdisjoint({"any", "definition-ref"}) or not self._is_json

    def dumps(self, value: T, *, what: str = "value") -> str:
        return self.roundtrip(value, what=what)[0]

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        try:
            if self._may_explode:
                _guard_size(value)
            if self._is_json:
                fast = self._roundtrip_json(value)
                if fast is not None:
                    return fast
            return self._roundtrip_tagged(value)
        except _Refused as refused:
            raise refused.error(what) from None
        except RecursionError:
            raise _Refused(value, "it is nested too deep, or contains itself.").error(what) from None

    def _roundtrip_json(self, value: T) -> tuple[str, T] | None:
        try:
            text = self._to_json(value, ensure_ascii=True, by_alias=False, round_trip=True, warnings=False).decode()
            if '"$' in text:
                return None
            back = self._from_json(text, by_alias=True, by_name=True)
        except Exception:  # validators and serialisers are foreign code; the other way says what is wrong
            return None
        return (text, back) if _is_same(value, back) else None

    def _roundtrip_tagged(self, value: T) -> tuple[str, T]:
        expected = describe(self.annotation)
        try:
            tree = self._to_python(value, mode="python", by_alias=False, round_trip=True, warnings=False)
        except Exception as error:  # serialisers are foreign code
            raise _Refused(value, f"writing it as {expected} failed: {type(error).__name__}: {error}") from error
        text = _to_text(tree, _pack_base)
        try:
            back = self._read(text)
        except ValidationError as error:
            raise _misfit(value, error, expected) from error
        except Exception as error:  # validators are foreign code
            raise _Refused(value, f"reading it back as {expected} failed: {type(error).__name__}: {error}") from error
        _check_same(value, back, expected)
        return text, back

    def loads(self, text: str, *, what: str = "value") -> T:
        try:
            return self._read(text)
        except ValidationError as error:
            why = _first_error(error)
        except Exception as error:  # validators are foreign code
            why = f"{type(error).__name__}: {error}"
        raise Undecodable(f"{what} does not fit {describe(self.annotation)}, which the code asks for now: {why}")

    def _read(self, text: str) -> T:
        if self._is_json and '"$' not in text:
            return self._from_json(text, by_alias=True, by_name=True)  # type: ignore[no-any-return]
        return self._from_python(_from_text(text), by_alias=True, by_name=True)  # type: ignore[no-any-return]


class _HopelessCoder(Coder[T]):
    """For annotations that no value can be read back as."""

    def __init__(self, annotation: object, problem: str) -> None:
        super().__init__(annotation)
        self.problem = problem

    def dumps(self, value: T, *, what: str = "value") -> str:
        if value is None:
            return "null"
        raise _Refused(value, f"found {type_name(value)}. {self.problem}").error(what)

    def loads(self, text: str, *, what: str = "value") -> T:
        if text == "null":
            return None  # type: ignore[return-value]
        raise Undecodable(f"{what} cannot be read. {self.problem}")


def coder_for(annotation: object) -> Coder[Any]:
    """The coder of an annotation; `MISSING`, `Any` and `object` give the one for exact builtins.

        coder_for(list[str]).dumps(["a"])   # '["a"]'

    Never raises: an annotation that cannot be stored gives a coder with a `problem`.
    """
    try:
        return _coder_by_value(annotation)
    except TypeError:  # not hashable, as in Annotated[int, {}]
        return _coder_by_identity(_Identity(annotation))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Identity:
    annotation: object

    def __hash__(self) -> int:
        return id(self.annotation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.annotation is self.annotation


@lru_cache(4096)
def _coder_by_value(annotation: object) -> Coder[Any]:
    return _new_coder(annotation)


@lru_cache(4096)
def _coder_by_identity(identity: _Identity) -> Coder[Any]:
    return _new_coder(identity.annotation)


def _new_coder(annotation: object) -> Coder[Any]:
    if annotation is MISSING or annotation is Any or annotation is object:
        return Coder(annotation)
    shape = _shape_of(annotation)
    if shape is not None:
        return _PlainCoder(annotation, shape)
    if isinstance(annotation, type) and _is_attrs(annotation):
        name = annotation.__qualname__
        return _HopelessCoder(annotation, f"{name} is an attrs class; use a dataclass or a pydantic model.")
    try:
        return _ModelCoder(annotation, TypeAdapter[Any](annotation))  # type: ignore[arg-type]
    except Exception as error:  # pydantic runs hooks of foreign classes here
        reason = str(error).partition("\n")[0]
        hint = "use a dataclass, a pydantic model, a TypedDict or builtins"
        return _HopelessCoder(annotation, f"{describe(annotation)} cannot be stored; {hint} ({reason})")


def describe(annotation: object) -> str:
    """An annotation the way its author wrote it, more or less."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return "None" if annotation is type(None) else annotation.__qualname__
    return repr(annotation).replace("typing.", "")


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = "".join(_part(part) for part in first["loc"]).removeprefix(".")
    return f"{where}: {first['msg']}" if where else first["msg"]


def _misfit(value: Any, error: ValidationError, expected: str) -> _Refused:
    """What is wrong with a value, at the place that pydantic complains about as far as the value has it."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = []
    for part in first["loc"]:
        inner = _part_of(value, part)
        if inner is not MISSING:  # the names of union members are in `loc` too
            value = inner
            path.append(_part(part))
    refused = _Refused(value, f"expected {expected}, found {type_name(value)} ({_first_error(error)}).")
    refused.path = path[::-1]
    return refused


def _part_of(value: Any, part: Any) -> Any:
    try:
        if isinstance(value, dict) or (isinstance(value, list | tuple | deque) and isinstance(part, int)):
            return value[part]
        return getattr(value, part, MISSING) if isinstance(part, str) else MISSING
    except Exception:  # properties are foreign code
        return MISSING


def _pack_base(value: Any, depth: int) -> _Json:
    """Write subclasses as their base: what pydantic reads back is compared with the original anyway."""
    if isinstance(value, Enum):
        return _pack(value.value, depth, _pack_base)
    if isinstance(value, Secret | SecretStr | SecretBytes | memoryview):
        return _refuse(value, depth)
    for base in _BASES:
        if isinstance(value, base):
            return _pack(base(value), depth, _pack_base)
    try:
        leaf = to_jsonable_python(value)  # URLs, addresses, patterns
    except Exception:  # runs foreign code
        return _refuse(value, depth)
    return _pack(leaf, depth, _refuse)


#: Kinds of pydantic schemas whose JSON is our format already.
_JSON_SCHEMAS: Final = frozenset(
    "any bool int float str none literal enum list nullable union tagged-union model model-fields model-field "
    "dataclass dataclass-args dataclass-field typed-dict typed-dict-field default definitions definition-ref dict "
    "function-after function-before function-wrap".split()
)


def _schema_kinds(schema: Any) -> Iterable[str]:
    """The kinds of a pydantic schema and its parts; `custom` where a class has its own way to be written."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, list | tuple):
            stack += part
        elif isinstance(part, dict):
            kind = part.get("type")
            if isinstance(kind, str):
                yield kind
            if "serialization" in part:
                yield "custom"
            if kind == "dict" and part.get("keys_schema", {"type": "any"})["type"] not in ("str", "any"):
                yield "keys that are not str"
            stack += [part[key] for key in _SCHEMA_PARTS if key in part]
            if isinstance(part.get("fields"), dict):
                stack += part["fields"].values()
            if isinstance(part.get("choices"), dict):
                stack += part["choices"].values()


_SCHEMA_PARTS: Final = (
    "schema items_schema keys_schema values_schema fields choices definitions extras_schema extras_keys_schema".split()
)


# Comparing what was read back with the original


def _is_same(one: Any, two: Any) -> bool:
    """Equal with equal types, all the way down. False may also mean: not sure, ask `_check_same`."""
    kind: Any = type(one)
    if kind is not type(two):
        return False
    if kind in _ATOMS:
        return bool(one == two)
    if kind is list:
        kinds = list(map(type, one))
        if kinds != list(map(type, two)):
            return False
        return bool(one == two) if _ATOMS.issuperset(kinds) else all(map(_is_same, one, two))
    if kind is dict:
        return all(map(_is_same, one, two)) and _is_same(list(one.values()), list(two.values()))
    names = _model_fields(kind)
    if names is not None:
        mine, theirs = one.__dict__, two.__dict__
        for name in names:
            part, other = mine.get(name, MISSING), theirs.get(name, MISSING)
            if type(part) is not type(other) or not (part == other if type(part) in _ATOMS else _is_same(part, other)):
                return False
        extra = one.__pydantic_extra__
        return not extra or _is_same(extra, two.__pydantic_extra__)
    if issubclass(kind, Enum):
        return one is two
    if dataclasses.is_dataclass(kind):
        return all(
            _is_same(getattr(one, field.name, MISSING), getattr(two, field.name, MISSING))
            for field in dataclasses.fields(kind)
        )
    return False


def _find_model_fields(kind: Any) -> tuple[str, ...] | None:
    return tuple(kind.__pydantic_fields__) if issubclass(kind, BaseModel) else None


_model_fields: Callable[[Any], tuple[str, ...] | None] = lru_cache(1024)(_find_model_fields)


def _check_same(one: Any, two: Any, expected: str) -> None:
    """Raise `_Refused` with the path of the first part that came back as something else."""
    kind = type(one)
    if kind is not type(two):
        if kind is int and type(two) is float and one == two:
            return  # an int where float is declared is right for type checkers, and no information is lost
        hint = "declare that class, or a union of the possible ones" if issubclass(kind, type(two)) else "convert it"
        raise _Refused(one, f"found {type_name(one)}, which {expected} would give back as {type_name(two)}; {hint}.")
    if kind is float:
        same = repr(one) == repr(two)
    elif issubclass(kind, list | tuple | deque):
        same = len(one) == len(two) and getattr(one, "maxlen", None) == getattr(two, "maxlen", None)
        for index, (mine, theirs) in enumerate(zip(one, two, strict=False)):
            _check_part(f"[{index}]", mine, theirs, expected)
    elif issubclass(kind, dict):
        same = len(one) == len(two) and getattr(one, "default_factory", None) == getattr(two, "default_factory", None)
        for mine, theirs in zip(one, two, strict=False):
            _check_part(f"[key {_part(mine)}]", mine, theirs, expected)
            _check_part(_part(mine), one[mine], two[theirs], expected)
    elif issubclass(kind, set | frozenset):
        same = one == two and _encode_sorted(_pack(one, 0, _pack_named)) == _encode_sorted(_pack(two, 0, _pack_named))
    elif issubclass(kind, BaseModel):
        same = True
        for name in kind.__pydantic_fields__:
            _check_part(_part(name), one.__dict__.get(name, MISSING), two.__dict__.get(name, MISSING), expected)
        _check_same(one.__pydantic_extra__ or {}, two.__pydantic_extra__ or {}, expected)
    elif issubclass(kind, Enum):
        same = one is two
    elif dataclasses.is_dataclass(kind):
        same = True
        for field in dataclasses.fields(kind):
            mine, theirs = getattr(one, field.name, MISSING), getattr(two, field.name, MISSING)
            _check_part(_part(field.name), mine, theirs, expected)
    elif issubclass(kind, dt.datetime | dt.time):
        same = one == two and one.fold == two.fold and _pack_zone(one.tzinfo) == _pack_zone(two.tzinfo)
    elif issubclass(kind, Decimal):
        same = str(one) == str(two)
    else:
        same = bool(one == two)
    if not same:
        raise _Refused(one, f"{type_name(one)} does not come back as it was when read as {expected}.")


def _check_part(part: str, one: Any, two: Any, expected: str) -> None:
    try:
        _check_same(one, two, expected)
    except _Refused as refused:
        raise refused.within(part) from None


# Shapes: annotations made of builtins


class _Shape:
    """Accepts anything. Subclasses compare a value with an annotation; types are exact, as the format keeps them."""

    #: If set, the shape accepts exactly the values of these types.
    kinds: frozenset[type] | None = None
    #: Whether a value that was accepted is known to be JSON already (but for NaN and long ints).
    proves_json = False

    def __init__(self, expected: str = "anything") -> None:
        self.expected = expected

    def check(self, value: Any) -> None:
        pass

    def refused(self, value: Any) -> _Refused:
        return _Refused(value, f"expected {self.expected}, found {type_name(value)}.")


class _Leaf(_Shape):
    def __init__(self, expected: str, kinds: Iterable[type]) -> None:
        super().__init__(expected)
        self.kinds = frozenset(kinds)

    def check(self, value: Any) -> None:
        assert self.kinds is not None
        if type(value) not in self.kinds:
            raise self.refused(value)


class _Items(_Shape):
    def __init__(self, expected: str, containers: frozenset[type], item: _Shape) -> None:
        super().__init__(expected)
        self._containers = containers
        self._item = item
        self.proves_json = containers == {list} and item.kinds is not None and item.kinds <= _ATOMS

    def check(self, value: Any) -> None:
        if type(value) not in self._containers:
            raise self.refused(value)
        if self._item.kinds is not None and self._item.kinds.issuperset(map(type, value)):
            return
        for index, item in enumerate(value):
            try:
                self._item.check(item)
            except _Refused as refused:
                raise refused.within(f"[{index}]") from None


class _Fixed(_Shape):
    def __init__(self, expected: str, items: list[_Shape]) -> None:
        super().__init__(expected)
        self._items = items

    def check(self, value: Any) -> None:
        if type(value) is not tuple:
            raise self.refused(value)
        if len(value) != len(self._items):
            raise _Refused(value, f"expected {self.expected}, found a tuple of {len(value)}.")
        for index, (shape, item) in enumerate(zip(self._items, value, strict=True)):
            try:
                shape.check(item)
            except _Refused as refused:
                raise refused.within(f"[{index}]") from None


class _Pairs(_Shape):
    def __init__(self, expected: str, key: _Shape, item: _Shape) -> None:
        super().__init__(expected)
        self._key = _Items("keys", frozenset({list}), key)
        self._item = item

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refused(value)
        self._key.check(list(value))
        if self._item.kinds is not None and self._item.kinds.issuperset(map(type, value.values())):
            return
        for key, item in value.items():
            try:
                self._item.check(item)
            except _Refused as refused:
                raise refused.within(_part(key)) from None


class _Keys(_Shape):
    """A TypedDict. Keys that it does not name are kept: an older version of the code may have written them."""

    def __init__(self, expected: str, fields: dict[str, _Shape], required: frozenset[str]) -> None:
        super().__init__(expected)
        self._fields = fields
        self._required = required

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refused(value)
        for name, shape in self._fields.items():
            if name in value:
                try:
                    shape.check(value[name])
                except _Refused as refused:
                    raise refused.within(_part(name)) from None
            elif name in self._required:
                raise _Refused(value, f"{self.expected} requires the key {name!r}.")


class _Either(_Shape):
    def __init__(self, expected: str, options: list[_Shape]) -> None:
        super().__init__(expected)
        self._options = options

    def check(self, value: Any) -> None:
        best: _Refused | None = None
        for option in self._options:
            try:
                return option.check(value)
            except _Refused as refused:
                # The option that accepted most of the value says best what is wrong with it.
                if refused.path and (best is None or len(refused.path) > len(best.path)):
                    best = refused
        raise best or self.refused(value)


class _OneOf(_Shape):
    def __init__(self, expected: str, values: tuple[Any, ...]) -> None:
        super().__init__(expected)
        self._values = values

    def check(self, value: Any) -> None:
        if not any(type(value) is type(option) and value == option for option in self._values):
            shown = repr(value) if type(value) in _ATOMS else type_name(value)
            raise _Refused(value, f"expected {self.expected}, found {shown}.")


_LEAVES: Final[Mapping[object, tuple[type, ...]]] = {
    None: (type(None),),
    type(None): (type(None),),
    str: (str,),
    bool: (bool,),
    int: (int, bool),
    float: (float, int, bool),
    complex: (complex, float, int, bool),
    bytes: (bytes,),
    bytearray: (bytearray,),
    dt.datetime: (dt.datetime,),
    dt.date: (dt.date, dt.datetime),
    dt.time: (dt.time,),
    dt.timedelta: (dt.timedelta,),
    Decimal: (Decimal,),
    Fraction: (Fraction,),
    uuid.UUID: (uuid.UUID,),
    pathlib.Path: (type(pathlib.Path()),),
    range: (range,),
    typing.NoReturn: (),
    typing.Never: (),
}

_SEQUENCES: Final = frozenset({list, tuple, deque})
_ITEMS: Final[Mapping[object, frozenset[type]]] = {
    list: frozenset({list}),
    set: frozenset({set}),
    frozenset: frozenset({frozenset}),
    deque: frozenset({deque}),
    typing.get_origin(typing.Sequence): _SEQUENCES,
    typing.get_origin(typing.MutableSequence): frozenset({list, deque}),
    typing.get_origin(typing.AbstractSet): frozenset({set, frozenset}),
    typing.get_origin(typing.MutableSet): frozenset({set}),
    typing.get_origin(typing.Collection): _SEQUENCES | {set, frozenset},
    typing.get_origin(typing.Iterable): _SEQUENCES | {set, frozenset},
}
_DICTS: Final = (dict, typing.get_origin(typing.Mapping), typing.get_origin(typing.MutableMapping))


def _shape_of(annotation: Any, depth: int = 0) -> _Shape | None:
    """The shape of an annotation made of builtins only, else None."""
    if depth > 30:
        return None
    if annotation is Any or annotation is object:
        return _Shape()
    while type(annotation) in (typing.NewType, typing_extensions.TypeAliasType):
        annotation = getattr(annotation, "__supertype__", None) or annotation.__value__
    try:
        kinds = _LEAVES.get(annotation)
    except TypeError:
        return None
    expected = describe(annotation)
    if kinds is not None:
        return _Leaf(expected, kinds)
    origin = typing.get_origin(annotation) or annotation
    args = typing.get_args(annotation)
    if origin is typing.Literal:
        return _OneOf(expected, args) if _ATOMS.issuperset(map(type, args)) else None
    if typing_extensions.is_typeddict(annotation):
        return _typed_dict_shape(annotation, depth)
    parts = [_shape_of(arg, depth + 1) for arg in args if arg is not Ellipsis]
    shapes = [part for part in parts if part is not None]
    if len(shapes) < len(parts):
        return None
    if origin in (typing.Union, types.UnionType):
        if all(shape.kinds is not None for shape in shapes):
            return _Leaf(expected, chain.from_iterable(shape.kinds or () for shape in shapes))
        return _Either(expected, shapes)
    if origin in _ITEMS:
        return _Items(expected, _ITEMS[origin], shapes[0] if shapes else _Shape())
    if origin in _DICTS:
        return _Pairs(expected, *(shapes or [_Shape(), _Shape()]))
    if origin is tuple:
        if annotation in (tuple, typing.Tuple) or Ellipsis in args:  # noqa: UP006
            return _Items(expected, frozenset({tuple}), shapes[0] if shapes else _Shape())
        return _Fixed(expected, shapes)
    return None


def _typed_dict_shape(annotation: Any, depth: int) -> _Shape | None:
    try:
        hints = typing_extensions.get_type_hints(annotation)
        marked = typing_extensions.get_type_hints(annotation, include_extras=True)
    except Exception:  # evaluates annotations of foreign modules
        return None
    shapes = {name: _shape_of(hint, depth + 1) for name, hint in hints.items()}
    fields = {name: shape for name, shape in shapes.items() if shape is not None}
    if len(fields) < len(shapes) or (hasattr(annotation, "__parameters__") and annotation.__parameters__):
        return None
    required = set(annotation.__required_keys__)
    for name, hint in marked.items():
        # `__required_keys__` does not see these marks where annotations are text.
        mark: Any = typing.get_origin(hint)
        if mark in (typing.NotRequired, typing_extensions.NotRequired):
            required.discard(name)
        elif mark in (typing.Required, typing_extensions.Required):
            required.add(name)
    return _Keys(describe(annotation), fields, frozenset(required))


# Functions: what they return and what they are called with


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function that can be resolved now."""
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn) and not isinstance(fn, type):
        fn = type(fn).__call__
    # Evaluates annotations, which may raise anything; one name that does not exist must not cost the others.
    with suppress(Exception):
        return typing.get_type_hints(fn, include_extras=True)
    resolved: dict[str, Any] = {}
    try:
        local_names: Mapping[str, Any] = inspect.getclosurevars(fn).nonlocals
    except (TypeError, ValueError):
        local_names = {}
    for name, hint in getattr(fn, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        with suppress(Exception):
            resolved |= typing.get_type_hints(holder, getattr(fn, "__globals__", {}), dict(local_names), True)
    return resolved


def result_annotation(fn: Callable[..., Any]) -> object:
    """What a function says it returns, `MISSING` if it does not say or names something that does not exist."""
    return _hints(fn).get("return", MISSING)


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """What is known of a function before it is called. `simple` means: no `*args`, `**kwargs`, positional-only."""

    signature: inspect.Signature | None
    simple: bool
    heads: tuple[tuple[str, str], ...]
    positional: int
    hides_first: bool
    coders: Mapping[str, Coder[Any]]


def _plan(fn: Callable[..., Any]) -> _Plan:
    try:
        return _plan_of(fn)
    except TypeError:  # a callable that is not hashable
        return _new_plan(fn)


@lru_cache(2048)
def _plan_of(fn: Callable[..., Any]) -> _Plan:
    return _new_plan(fn)


def _new_plan(fn: Callable[..., Any]) -> _Plan:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return _Plan(None, False, (), 0, False, {})
    parameters = list(signature.parameters.values())
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    hints = _hints(fn)
    return _Plan(
        signature=signature,
        simple=all(parameter.kind in by_name for parameter in parameters),
        heads=tuple((parameter.name, encode_basestring_ascii(parameter.name) + ":") for parameter in parameters),
        positional=sum(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters),
        hides_first=bool(parameters) and parameters[0].name in ("self", "cls"),
        coders={parameter.name: coder_for(hints.get(parameter.name, MISSING)) for parameter in parameters},
    )


def encode_call(signature_owner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The arguments of a step or effect as text for people, and a digest to recognise the call by.

    Never raises. What cannot be stored is named by its type alone, so that both are the same in every process; the
    digest does not depend on the order of dicts and sets either. The text is not meant to be decoded.
    """
    plan = _plan(signature_owner)
    parts: list[str] = []
    try:
        if not plan.simple or len(args) > plan.positional:
            parts = _call_parts(plan, args, kwargs)
        else:
            for (_, head), value in zip(plan.heads, args, strict=False):
                parts.append(head + (encode_basestring_ascii(value) if type(value) is str else _call_text(value)))
            if kwargs:
                parts += [head + _call_text(kwargs[name]) for name, head in plan.heads[len(args) :] if name in kwargs]
                if len(parts) != len(args) + len(kwargs):
                    parts = _call_parts(plan, args, kwargs)
            if plan.hides_first and args:
                parts[0] = f'{plan.heads[0][1]}{{"$opaque":{encode_basestring_ascii(type_name(args[0]))}}}'
        text = "{" + ",".join(parts) + "}"
        return text, digest(text if text.count("{") == 1 else _canonical(text))
    except Exception:  # arguments are foreign objects that may do anything when looked at
        text = '{"$opaque":"arguments"}'
        return text, digest(text)


def _call_parts(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    try:
        if plan.signature is None:
            raise TypeError("no signature")
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError:
        return [f'"*":{_call_text(args)}', f'"**":{_call_text(kwargs)}']
    return [f"{encode_basestring_ascii(name)}:{_call_text(value)}" for name, value in bound.arguments.items()]


def _call_text(value: Any) -> str:
    try:
        return _to_text(value, _pack_named)
    except Exception:  # too deep, cyclic, or an object that raises when looked at
        return _encode({"$opaque": type_name(value)})


def _pack_named(value: Any, depth: int) -> _Json:
    """Write what has no place in the format by the name of its type, with its content where it is data."""
    name = type_name(value)
    if isinstance(value, Secret | SecretStr | SecretBytes):
        return {"$opaque": name}
    if isinstance(value, Enum):
        return {"$enum": [name, str(value._name_)]}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return {"$opaque": str(getattr(value, "__qualname__", name))}
    content: Any
    if isinstance(value, BaseModel):
        content = {field: value.__dict__.get(field) for field in type(value).__pydantic_fields__}
        content |= value.__pydantic_extra__ or {}
    elif dataclasses.is_dataclass(value):
        content = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    elif _is_attrs(type(value)):
        content = {field.name: getattr(value, field.name, None) for field in type(value).__attrs_attrs__}
    else:
        for base in _BASES:
            if isinstance(value, base):
                content = base(value)
                break
        else:
            return {"$opaque": name}
    return {"$object": [name, _pack(content, depth + 1, _pack_named)]}


def _canonical(text: str) -> str:
    """The text with all dicts in the order of their keys."""
    return _encode_sorted(_plain_decoder.decode(text) if '"$dict"' not in text else _pair_decoder.decode(text))


def _sort_pairs(found: dict[str, Any]) -> dict[str, Any]:
    pairs = found.get("$dict")
    return {"$dict": sorted(pairs, key=_encode_sorted)} if len(found) == 1 and type(pairs) is list else found


_pair_decoder = json.JSONDecoder(object_hook=_sort_pairs)


def encode_input(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The input of an agent as text, each argument by its annotation, and a digest that ignores the order of dicts.

    Defaults are not written, so that a new default reaches runs that did not give the argument.
    """
    plan = _plan(fn)
    name = getattr(fn, "__name__", type_name(fn))
    if plan.signature is None:
        raise UsageError(f"{name} has no signature that could be read; an agent must be a plain async function.")
    try:
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{name}{plan.signature} cannot be called like this: {error}.") from None
    parts = []
    for parameter, value in bound.arguments.items():
        coder = plan.coders[parameter]
        kind = plan.signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            items = [coder.dumps(item, what=f"{parameter}[{index}]") for index, item in enumerate(value)]
            part = f"[{','.join(items)}]"
        elif kind is inspect.Parameter.VAR_KEYWORD:
            pairs = [f"{encode_basestring_ascii(key)}:{coder.dumps(item, what=key)}" for key, item in value.items()]
            part = "{" + ",".join(pairs) + "}"
        else:
            part = coder.dumps(value, what=parameter)
        parts.append(f"{encode_basestring_ascii(parameter)}:{part}")
    text = "{" + ",".join(parts) + "}"
    return text, digest(_canonical(text))


def decode_input(fn: Callable[..., Any], text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call an agent with, each read by the annotation that it has now."""
    plan = _plan(fn)
    name = getattr(fn, "__name__", type_name(fn))
    try:
        found = _plain_decoder.decode(text)
        if type(found) is not dict or plan.signature is None:
            raise ValueError("not an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise Undecodable(f"The stored input of {name} is damaged or foreign ({error}).") from None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in plan.signature.parameters.values():
        if parameter.name not in found:
            continue
        stored = found.pop(parameter.name)
        read = partial(_read_argument, plan.coders[parameter.name], parameter.name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += [read(item) for item in _of_type(list, stored, parameter.name)]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= {key: read(item) for key, item in _of_type(dict, stored, parameter.name).items()}
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or len(args) < _position(plan, parameter.name):
            kwargs[parameter.name] = read(stored)
        else:
            args.append(read(stored))
    if found:
        unknown = ", ".join(sorted(found))
        raise Undecodable(
            f"The stored input of {name} has arguments that {name}{plan.signature} does not take: {unknown}."
        )
    try:
        plan.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Undecodable(f"The stored input does not fit {name}{plan.signature}: {error}.") from None
    return tuple(args), kwargs


def _position(plan: _Plan, parameter: str) -> int:
    return next(index for index, (name, _) in enumerate(plan.heads) if name == parameter)


def _read_argument(coder: Coder[Any], what: str, stored: _Json) -> Any:
    try:
        text = _encode(stored)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} cannot be read: {error}.") from None
    return coder.loads(text, what=what)


def _of_type(kind: type, stored: _Json, what: str) -> Any:
    if type(stored) is not kind:
        raise Undecodable(f"{what} cannot be read: expected {kind.__name__}, found {type_name(stored)}.")
    return stored


# Exceptions


_errors = ErrorCodec(pack=_exactly, encode=_encode, decode=_from_text)
encode_error = _errors.encode
decode_error = _errors.decode
roundtrip_error = _errors.roundtrip
