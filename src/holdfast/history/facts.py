"""What records say, as data that is ready for JSON, and in few words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.codec.plain import plain_of
from holdfast.model import Kind, Record


class Facts:
    """Gives classes of data `as_dict()`."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Facts):
        return value.as_dict()
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def note_of(record: Record) -> dict[str, Any]:
    """A record's payload, where it is an object; damaged ones are shown as empty, `verify` is what reports them."""
    return object_in(record.payload)


def object_in(text: str | None) -> dict[str, Any]:
    """The object that a JSON text is; empty if it is none."""
    with suppress(ValueError):
        found = json.loads(text or "{}")
        return found if isinstance(found, dict) else {}
    return {}


def superseded_in(records: Iterable[Record]) -> set[int]:
    """The numbers of outcomes that count no longer, since the run was opened again."""
    return {seq for r in records if r.kind == Kind.reopened for seq in note_of(r).get("superseded", [])}


def error_text(tree: Any) -> str:
    """`ValueError: no such page`; empty if it is no stored exception."""
    if not isinstance(tree, dict) or "type" not in tree:
        return ""
    message = str(tree.get("message", ""))
    return f"{tree['type']}: {message}" if message else str(tree["type"])


def short(payload: str | None) -> str:
    """The beginning of a stored value, without tags."""
    text = payload or ""
    if '{"$' in text:  # tags are for the codec, not for people
        with suppress(ValueError, RecursionError):
            text = json.dumps(plain_of(json.loads(text)), ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= 200 else f"{text[:199]}…"


def joined(*parts: object) -> str:
    """What there is of these, with commas."""
    return ", ".join(str(part) for part in parts if part)
