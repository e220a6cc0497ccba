"""What ended a run: which calls failed, and what a retry does anew."""

from __future__ import annotations

import json

from holdfast.codec import message_of
from holdfast.journal.replay import undo_key
from holdfast.model import Kind, Record
from holdfast.worker.cancelling import CANCEL


def first_line(error: BaseException | None) -> str:
    """What a person sees of it first."""
    return "" if error is None else f"{type(error).__name__}: {message_of(error)}".partition("\n")[0][:200]


def keys_of(error: BaseException) -> set[str]:
    """The calls whose failures ended the run."""
    keys: set[str] = set()
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        each = stack.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if key := getattr(each, "_holdfast_key", None):
            keys.add(key)
        stack += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            stack += each.exceptions
    return keys


def superseded(records: list[Record]) -> list[int]:
    """The outcomes that ended the run: its end, and the failures that led to it."""
    end = next((r for r in reversed(records) if r.kind == Kind.finished), None)
    if end is None:
        return []
    keys = set(json.loads(end.args or "[]"))
    keys |= {undo_key(key) for key in keys}  # an undo by the call's own rule
    gone = {seq for r in records if r.kind == Kind.reopened for seq in json.loads(r.payload or "{}")["superseded"]}
    failures = [r.seq for r in records if r.kind == Kind.failed and r.key in keys and r.seq not in gone]
    told = next((r.seq for r in reversed(records) if r.key == CANCEL and r.seq not in gone), None)
    if told is not None:  # what the cancellation cut off is done anew
        failures += [r.seq for r in records if r.seq >= told and (r.key == CANCEL or r.kind == Kind.cancelled)]
        unasked = {r.key for r in records if r.kind == Kind.settled and json.loads(r.payload or "{}")["by"] == "cancel"}
        failures += [r.seq for r in records if r.seq >= told and r.kind == Kind.failed and r.key in unasked]
    return [*failures, end.seq]
