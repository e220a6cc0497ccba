"""Which kinds of values the columns of a table hold.

A database checks that when something is written. A damaged page is read as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

_TEXT, _NUMBER, _BYTES = (str,), (int,), (bytes,)
_TEXT_OR_NONE, _NUMBER_OR_NONE = (str, type(None)), (int, type(None))

STRANGE = "a value is missing, or of another kind than its column"

Shape = frozenset[tuple[type, ...]]


def _shape(*columns: tuple[type, ...]) -> Shape:
    return frozenset(product(*columns))


RUN = _shape(
    *4 * [_TEXT],  # id, thread, agent, nonce
    _TEXT_OR_NONE,  # parent
    *2 * [_TEXT],  # queue and key
    *3 * [_NUMBER],  # priority, created, updated
    _TEXT,  # status
    _TEXT_OR_NONE,  # reason
    _NUMBER_OR_NONE,  # wake
    *3 * [_NUMBER],  # turn, epoch, head
    _TEXT + _BYTES,  # hash: SQLite's JSON answers have it in hexadecimal
    *2 * [_TEXT],  # digest of the input, summary
    _TEXT_OR_NONE,  # owner
    *2 * [_NUMBER],  # claims, mail
    _TEXT,  # digest
)
RECORD = _shape(*3 * [_NUMBER], *3 * [_TEXT], *4 * [_NUMBER], _TEXT, *2 * [_TEXT_OR_NONE], _TEXT)
MAIL = _shape(_TEXT, _NUMBER, *3 * [_TEXT], _NUMBER, _TEXT, _TEXT_OR_NONE)
QUESTION = _shape(*5 * [_TEXT], _NUMBER, _NUMBER_OR_NONE, _TEXT, _NUMBER_OR_NONE, _TEXT_OR_NONE, *2 * [_TEXT])
MESSAGE = _shape(_TEXT, _NUMBER, _TEXT, _NUMBER, _TEXT, _NUMBER_OR_NONE, *2 * [_TEXT])
THREAD = _shape(_TEXT, *5 * [_NUMBER])
DEFINITION = _shape(*3 * [_TEXT], _NUMBER, _NUMBER_OR_NONE)
WORKER = _shape(_TEXT, _NUMBER, *2 * [_TEXT], *2 * [_NUMBER])


def fits(values: Iterable[Any], shape: Shape) -> bool:
    """Whether each value is of a kind that its column can hold."""
    return tuple(map(type, values)) in shape


def readable(values: Sequence[Any], shape: Shape) -> list[Any]:
    """What can be shown of a row that does not fit: nothing stands where a value is strange."""
    columns = (set(kinds) for kinds in zip(*shape, strict=True))
    return [value if type(value) in kinds else _nothing(kinds) for value, kinds in zip(values, columns, strict=True)]


def _nothing(kinds: set[type]) -> Any:
    return None if type(None) in kinds else "" if str in kinds else 0
