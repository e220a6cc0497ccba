"""The same JSON text as that of `fastjson`, for what is large: pydantic-core takes a third of the time.

It differs from `json` in some floats, in DEL, and in what it refuses. So whoever has floats asks whether they are
`plain` first, the text is looked at afterwards, which takes next to nothing, and what is refused is left to `fastjson`.
Stored texts and digests depend on each character: a version of pydantic-core that writes or reads one of them
differently is not used.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from holdfast.codec.fastjson import Json, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHARACTERS: Final = "".join(map(chr, range(127)))
_PROBE: Final = {
    _CHARACTERS: [_CHARACTERS, *_CHARACTERS, "", [], {}, [[]], {"": {}}, None, True, False, {"b": 0, "a": None}],
    "ints": [0, -1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 2**64, -(2**64), 10**30, -(10**599)],
    "floats": [0.0, -0.0, 0.1, -1.5, 1e-4, 123456.789, 1e15, 9999999999999998.0, 1 / 3, -2 / 3e3],
}
_BEYOND: Final = f"{_CHARACTERS}\x80éſ\u2028\uffff\U00010000\U0001f600"
_READABLE: Final = (
    '[-0,0.0,-0.0,1E5,1e-07,5e-324,1.7976931348623157e308,"\\/\\u00e9\\ud83d\\ude00",{"a":1,"b":2,"a":3}]'
)
_UNREADABLE: Final = ("NaN", "[Infinity]", "-Infinity", "01", "1.", "[1,]", "1 1", '"\x01"', "[" * 202 + "]" * 202)


def text_swiftly(tree: Json, *, has_escapes: bool = False) -> str | None:
    """The text of a tree whose floats are plain, as `encode` writes it; None if only `encode` does.

    `has_escapes`: whether it most likely has letters beyond ASCII.
    """
    write = _writer()
    if write is not None:
        with suppress(ValueError):  # a lone surrogate
            data = write(tree, ensure_ascii=has_escapes)
            try:
                text = data.decode("ascii")
            except UnicodeDecodeError:  # only now: looking for them while writing takes as long again
                text = write(tree, ensure_ascii=True).decode("ascii")
            if "\x7f" not in text:
                return text
    return None


def encode_swiftly(tree: Json, *, has_escapes: bool = False) -> bytes | None:
    """The same as bytes."""
    text = text_swiftly(tree, has_escapes=has_escapes)
    return None if text is None else text.encode("ascii")


def decode_swiftly(text: str) -> Json | None:
    """The tree of a text, as `decode` reads it, not deeper than any that is stored; None if only `decode` knows."""
    read = _reader()
    if read is not None:
        with suppress(ValueError, TypeError):  # of what is not JSON; a lone surrogate
            return read(text)
    return None


def copy_swiftly(tree: Json) -> Json | None:
    """What a tree that `text_swiftly` has written reads back as: nothing of it but strings is shared. None: read it."""
    copy = _copier()
    if copy is not None:
        with suppress(ValueError):
            return copy(tree)
    return None


def are_plain(floats: Sequence[float]) -> bool:
    """Whether floats are written alike: not those that need an exponent, and that JSON has."""
    sizes = list(map(abs, filter(None, floats)))
    return not sizes or (min(sizes) >= 1e-4 and max(sizes) < 1e16 and not any(map(math.isnan, sizes)))


@lru_cache(1)
def _writer() -> Callable[..., bytes] | None:
    # Not at the top: many programs have nothing that is large, and it takes 10 ms to load.
    from pydantic_core import to_json

    is_same = to_json(_PROBE) == encode(_PROBE).encode()
    return to_json if is_same and to_json(_BEYOND, ensure_ascii=True) == encode(_BEYOND).encode() else None


@lru_cache(1)
def _reader() -> Callable[[str], Json] | None:
    from pydantic_core import from_json

    read = partial(from_json, allow_inf_nan=False, cache_strings="keys")
    for text in _UNREADABLE:
        with suppress(ValueError):
            read(text)
            return None
    texts = (_READABLE, encode(_PROBE), "[" * 201 + "]" * 201)
    return read if all(repr(read(text)) == repr(decode(text)) for text in texts) else None


@lru_cache(1)
def _copier() -> Callable[[Json], Json] | None:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python if repr(to_jsonable_python(_PROBE)) == repr(_PROBE) else None
