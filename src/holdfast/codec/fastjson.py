"""JSON text, in ASCII and strict (no NaN), by the C functions of `json`; and digests of texts.

The classes of `json` prepare and check so much on each call that it takes longer than encoding a small value. Here it
is done once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

from holdfast.base.system import blake2b

#: What JSON has: None, bool, int, float, str, list, dict.
Json = Any

#: The text of a string.
quote: Final[Callable[[str], str]] = encode_basestring_ascii


def _not_json(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _no_constant(token: str) -> NoReturn:
    raise ValueError(f"the bare token {token}")


def _make_encode(sort_keys: bool) -> Callable[[Json], str]:
    if c_make_encoder is None:
        return json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=sort_keys).encode
    encode = c_make_encoder(None, _not_json, quote, None, ":", ",", sort_keys, False, False)
    return lambda tree: "".join(encode(tree, 0))


def make_decode(object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Callable[[str], Any]:
    """A function that reads a text, with `object_hook` for each object; raises ValueError, and what the hook raises."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_hook=object_hook)
    scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]

    def decode(text: str) -> Any:
        try:
            value, end = scan(text, 0)
        except StopIteration:
            value, end = None, -1
        # Not one of ours if there is more: decode() skips blanks, and says what is wrong.
        return value if end == len(text) else decoder.decode(text)

    return decode


encode: Final = _make_encode(sort_keys=False)
encode_sorted: Final = _make_encode(sort_keys=True)
decode: Final = make_decode()


def digest(text: str | bytes) -> str:
    """16 hex digits that stand for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, digest_size=8).hexdigest()


def blob_digest(data: bytes) -> str:
    """32 hex digits that stand for a blob, the name it is stored under."""
    return blake2b(data, digest_size=16).hexdigest()
