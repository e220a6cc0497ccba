"""Reading what people and other programs send: stored text, or plain JSON as they would write it."""

from __future__ import annotations

from typing import Any

from holdfast.codec.annotations import coder_for
from holdfast.codec.refusal import describe
from holdfast.errors import HoldfastError, Undecodable


def read_outside(annotation: Any, text: str, *, what: str = "value") -> tuple[str, Any]:
    """The text to store and the value; `Undecodable` if it is neither what the codec writes nor plain JSON that fits.

    Example: `read_outside(date, '"2026-11-16"')` reads the date that the codec itself would write with a tag.
    """
    coder = coder_for(annotation)
    try:
        return text, coder.loads(text, what=what)
    except Undecodable as unread:
        from pydantic import TypeAdapter, ValidationError  # seldom needed, and slow to load

        try:
            value = TypeAdapter(annotation).validate_json(text)
            return coder.roundtrip(value, what=what)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in each['loc']) or what}: {each['msg']}" for each in error.errors()[:5]
            )
            raise Undecodable(f"{what} does not fit {describe(annotation)}: {problems}") from None
        except (HoldfastError, TypeError, ValueError, RecursionError):
            raise unread from None
