"""How the saver stores values: each by the digest of what it is, the elements of a list each on its own.

A reference is JSON: `[type, base64]` is a small value itself, a text the digest of a blob that is such a pair, and
`{"list": [...]}` a list. Of a list, each full group of references is a blob too, and each full group of such blobs; a
list that grows changes its last group at each level, so a checkpoint of it has a few dozen references.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener

from holdfast.errors import Undecodable

_GROUP: Final = 32
_INLINE: Final = 64
_blocked: ContextVar[list[str] | None] = ContextVar("holdfast_langgraph_blocked", default=None)


def _listen(event: SerdeEvent) -> None:
    if (found := _blocked.get()) is not None and event["kind"].endswith("_blocked"):
        found.append(f"{event['module']}.{event['name']}")


register_serde_event_listener(_listen)


class Writing:
    """Makes references; `blobs` is what they refer to."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.blobs: dict[str, str] = {}

    def refer(self, value: Any) -> Any:
        if type(value) is not list:
            return self._leaf(value)
        levels: list[list[Any]] = []
        refs: list[Any] = [self._leaf(each) for each in value]
        while refs or not levels:
            full = len(refs) - len(refs) % _GROUP
            levels.append(refs[full:])
            refs = [self._blob(refs[at : at + _GROUP]) for at in range(0, full, _GROUP)]
        return {"list": levels}

    def pair(self, value: Any) -> list[str]:
        kind, data = self._serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode()]

    def _leaf(self, value: Any) -> Any:
        pair = self.pair(value)
        return pair if len(pair[1]) <= _INLINE else self._blob(pair)

    def _blob(self, content: Any) -> str:
        text = json.dumps(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:24]).decode()
        self.blobs[digest] = text
        return digest


def digests(ref: Any, blobs: Mapping[str, str]) -> Iterator[str]:
    """The blobs that a reference needs, as far as `blobs` tells."""
    if isinstance(ref, str):
        yield ref
        if ref in blobs and (content := json.loads(blobs[ref])) and not _is_pair(content):
            yield from (found for each in content for found in digests(each, blobs))
    elif isinstance(ref, dict):
        yield from (found for level in ref["list"] for each in level for found in digests(each, blobs))


def _is_pair(content: list[Any]) -> bool:
    """Not a group: those are longer."""
    return len(content) == 2


def read(serde: SerializerProtocol, ref: Any, blobs: Mapping[str, str]) -> Any:
    """The value of a reference. Undecodable: it is of a type that may not be made from what is stored."""
    if isinstance(ref, dict):
        return [_value(serde, each) for level in reversed(ref["list"]) for each in _pairs(level, blobs)]
    return _value(serde, next(iter(_pairs([ref], blobs))))


def _pairs(refs: Iterable[Any], blobs: Mapping[str, str]) -> Iterator[list[str]]:
    for ref in refs:
        content = json.loads(blobs[ref]) if isinstance(ref, str) else ref
        if _is_pair(content):
            yield content
        else:
            yield from _pairs(content, blobs)


def _value(serde: SerializerProtocol, pair: list[str]) -> Any:
    found: list[str] = []
    token = _blocked.set(found)
    try:
        value = serde.loads_typed((pair[0], base64.b64decode(pair[1])))
    finally:
        _blocked.reset(token)
    if found:
        raise Undecodable(
            f"A checkpoint has a value of {', '.join(sorted(set(found)))}, which is not made from what is stored "
            f"unless it is named: Saver(app, allow=[{found[0].rpartition('.')[2]}])."
        )
    return value
