"""Stored values as plain JSON: no text with JSON in it, and none of the tags that tell our types apart."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any, Final, Literal

from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.codec import Coder, coder_for
from holdfast.errors import Undecodable

_ANY: Final[Coder[Any]] = coder_for(Any)
_MODES: Final[tuple[Literal["utf8", "base64"], ...]] = ("utf8", "base64")
#: Where records of ours hold a value of the user's, as text.
_TEXTS: Final = frozenset({"show", "draft", "value", "reply", "error"})

#: How another run ended (`Run.result`), and what it replied (`Run.interrupt`): words, and last a value as text.
ENDS_OF_OTHERS: Final = frozenset({"hf:result", "hf:reply"})


def jsonable(value: Any) -> Any:
    """A value as JSON has it: a list for a tuple, text for a date; what JSON does not know is shown as text."""
    for mode in _MODES:
        with suppress(PydanticSerializationError, ValueError):
            return _finite(to_jsonable_python(value, bytes_mode=mode, fallback=str))
    return str(value)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are text."""
    match value:
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case list():
            return [_finite(each) for each in value]
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case _:
            return value


def plain_value(stored: str | None) -> Any:
    """What stored text means, as plain JSON; nothing if there is none, and the text itself if it cannot be read."""
    if not stored:
        return None
    with suppress(Undecodable, ValueError, RecursionError):
        return jsonable(_ANY.loads(stored))
    return stored


def plain_text(stored: str) -> str:
    """The same as text, for a line; stored text without tags is that already."""
    if '{"$' not in stored:
        return stored
    return json.dumps(plain_value(stored), ensure_ascii=False, separators=(",", ":"))


def ends_of_others(stored: str | None) -> list[str]:
    """The texts that tell of the end of another run; none if they cannot be read, or are kept elsewhere."""
    found = plain_value(stored)
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else []


def plain_end(stored: str | None) -> Any:
    """The same as plain JSON."""
    *words, value = ends_of_others(stored) or [""]
    return [*words, plain_value(value)] if words else plain_value(stored)


def plain_note(stored: str | None) -> Any:
    """What a record of ours says, as plain JSON; the values in it that are stored as text of their own, too."""
    return _opened(plain_value(stored))


def _opened(note: Any) -> Any:
    if not isinstance(note, dict):
        return note
    texts = {name: plain_value(each) for name, each in note.items() if name in _TEXTS and isinstance(each, str)}
    return {name: texts[name] if name in texts else _opened(each) for name, each in note.items()}


def untagged(value: Any) -> Any:
    """A tree of stored JSON that was read already, without its tags."""
    return plain_value(json.dumps(value))
