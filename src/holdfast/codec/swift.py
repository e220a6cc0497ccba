"""The same JSON text as that of `fastjson`, for what is large: pydantic-core writes it in a third of the time.

It differs from `json` in floats, in DEL, and in what is not ASCII. So trees with floats are not for it, and the text is
looked at afterwards, which takes next to nothing. Stored texts and digests depend on each character: a version of
pydantic-core that writes one of them differently is not used.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.codec.fastjson import Json, encode

if TYPE_CHECKING:
    from collections.abc import Callable

_CHARACTERS: Final = "".join(map(chr, range(127)))
_PROBE: Final = {
    _CHARACTERS: [_CHARACTERS, *_CHARACTERS, "", [], {}, [[]], {"": {}}, None, True, False, {"b": 0, "a": None}],
    "ints": [0, -1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 2**64, -(2**64), 10**30, -(10**599)],
}


def encode_swiftly(tree: Json) -> bytes | None:
    """The text of a tree without floats, as `encode` writes it; None if only `encode` does."""
    write = _writer()
    if write is not None:
        with suppress(ValueError):  # a lone surrogate
            data = write(tree)
            if data.isascii() and b"\x7f" not in data:
                return data
    return None


@lru_cache(1)
def _writer() -> Callable[[Json], bytes] | None:
    # Not at the top: many programs have nothing that is large, and it takes 10 ms to load.
    from pydantic_core import to_json

    return to_json if to_json(_PROBE) == encode(_PROBE).encode() else None
