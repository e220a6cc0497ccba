"""Trees of our format as plain JSON: what pydantic writes for the same value, where it takes tags."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from holdfast.codec.fastjson import Json, encode
from holdfast.codec.tags import MAX_DEPTH


def plain_of(value: Json, depth: int = 0) -> Json:
    """The value without tags; RecursionError if it is too deep. Decimals stay decimals, so that they are exact."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if type(value) is list:
        return [plain_of(item, depth + 1) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((tag, body),) = value.items()
        read = _UNTAGGED.get(tag)
        if read is not None:
            try:
                return read(body, depth + 1)
            except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
                pass  # plain JSON that looks like a tag
    return {key: plain_of(item, depth + 1) for key, item in value.items()}


def _untagged_items(body: Json, depth: int) -> Json:
    if type(body) is not list:
        raise TypeError
    return plain_of(body, depth)


def _untagged_text(body: Json, depth: int) -> str:
    if type(body) is not str:
        raise TypeError
    return body


def _untagged_time(body: Json, depth: int) -> str:
    # The zone is left out where it is apart from the time: no schema asks for it.
    return _untagged_text(body[0] if type(body) is list else body, depth)


def _untagged_dict(body: Json, depth: int) -> dict[str, Json]:
    return {key_text(plain_of(key, depth)): plain_of(item, depth) for key, item in body}


def key_text(key: Json) -> str:
    """A key of a dict as JSON has it."""
    if isinstance(key, str):
        return key
    if isinstance(key, list):
        return ",".join(map(key_text, key))
    return encode(key) if isinstance(key, bool | int | float) else str(key)


def _untagged_bytes(body: Json, depth: int) -> str:
    # ASCII, so that it is as long as the bytes are.
    return base64.b64decode(body, validate=True).decode("ascii", "replace").replace("\ufffd", "?")


def _untagged_delta(body: Json, depth: int) -> str:
    days, seconds, microseconds = body
    return f"P{days:d}DT{seconds:d}.{microseconds:06d}S"


_UNTAGGED: Final[Mapping[str, Callable[[Json, int], Json]]] = {
    "$int": lambda body, depth: int(body, 16),
    "$float": lambda body, depth: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[body],
    "$dict": _untagged_dict,
    "$tuple": _untagged_items,
    "$set": _untagged_items,
    "$frozenset": _untagged_items,
    "$deque": lambda body, depth: _untagged_items(body[1], depth),
    "$range": _untagged_items,
    "$bytes": _untagged_bytes,
    "$bytearray": _untagged_bytes,
    "$datetime": _untagged_time,
    "$date": _untagged_text,
    "$time": _untagged_time,
    "$timedelta": _untagged_delta,
    "$decimal": lambda body, depth: Decimal(_untagged_text(body, depth)),
    "$uuid": _untagged_text,
    "$path": _untagged_text,
    "$complex": lambda body, depth: str(complex(*body)),
    "$fraction": lambda body, depth: f"{body[0]:d}/{body[1]:d}",
}
