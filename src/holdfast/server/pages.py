"""Pages of lists: a cursor says where the last one ended, and of which list it was."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast.base.data import data
from holdfast.server.problems import Problem

LIMIT: Final = 50
MOST: Final = 200
_PREFIX: Final = "c_"
_LONGEST: Final = 2000


@data
class Position:
    """The last item of a page: when it was created, µs, and its id."""

    at: int
    id: str


def cursor_of(position: Position, filters: Mapping[str, Any]) -> str:
    """What a client sends back for the next page of the same list."""
    text = json.dumps([position.at, position.id, _digest(filters)], separators=(",", ":"))
    return _PREFIX + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_in(cursor: str | None, filters: Mapping[str, Any]) -> Position | None:
    """Where a page begins; Problem if the cursor is none, or of another list."""
    if cursor is None:
        return None
    try:
        if not cursor.startswith(_PREFIX) or len(cursor) > _LONGEST or not cursor.isascii():
            raise ValueError("no cursor")
        body = cursor.removeprefix(_PREFIX)
        padded = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        at, item_id, digest = json.loads(padded)
        if type(at) is not int or type(item_id) is not str or not -(2**63) <= at < 2**63:
            raise ValueError("no position")
        item_id.encode()
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Problem("cursor_does_not_fit", "It is no cursor of this server.") from None
    if digest != _digest(filters):
        raise Problem("cursor_does_not_fit", "A cursor goes on with the list that it came from: the same filters.")
    return Position(at, item_id)


def _digest(filters: Mapping[str, Any]) -> str:
    given = {name: value for name, value in filters.items() if value not in (None, [], "")}
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()[:16]
