"""What a run waits for, in a few words: the question, the signal, the child, the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.base.clock import now_us
from holdfast.cli.lists import due_text
from holdfast.history.history import RunInfo, as_time
from holdfast.model import Status

_WAITING = frozenset({Status.waiting, Status.sleeping, Status.paused, Status.in_doubt})


def now_of(info: RunInfo, *, now: datetime | None = None) -> str:
    """What the run does, or what it waits for and until when."""
    if info.is_lost or info.status not in _WAITING:
        return info.now
    now = now or as_time(now_us())
    reason = info.reason or {}
    waits = [wait for wait in reason.get("waits") or [] if isinstance(wait, Mapping)]
    told = _told(waits, now)
    match info.status:
        case Status.paused:
            return _paused(reason, told) or info.now
        case Status.in_doubt:
            return told or info.now
        case Status.sleeping if not told and reason.get("due"):
            return f"until {due_text(as_time(reason['due']), now=now)}"
        case _:
            return told or info.now


def needs_answer(info: RunInfo) -> bool:
    """Does it wait for a person to answer a question?"""
    return info.status is Status.waiting and any(
        wait.get("kind") == "question" for wait in (info.reason or {}).get("waits") or []
    )


def _told(waits: Iterable[Mapping[str, Any]], now: datetime) -> str:
    parts = list(dict.fromkeys(_one(wait, now) for wait in waits))
    shown = ", ".join(parts[:2])
    return f"{shown} and {len(parts) - 2} more" if len(parts) > 2 else shown


def _one(wait: Mapping[str, Any], now: datetime) -> str:
    due = wait.get("due")
    until = f"until {due_text(as_time(due), now=now)}" if isinstance(due, int) else ""
    name = str(wait.get("name") or wait.get("key") or "")
    match wait.get("kind"):
        case "question":
            return _with(f"asks: {wait.get('prompt') or name}", until)
        case "signal":
            return _with(f"signal {name}", until)
        case "child":
            return _with(f"child {wait.get('child') or name}", until)
        case "doubt":
            return f"{wait.get('key') or name} ({wait.get('cause', 'unknown')})"
        case _:
            return until or name


def _with(text: str, until: str) -> str:
    return f"{text}, {until}" if until else text


def _paused(reason: Mapping[str, Any], told: str) -> str:
    by, note = reason.get("by"), reason.get("note")
    who = f"by {by}" if by else ""
    said = ": ".join(str(part) for part in (who, note) if part)
    return " · ".join(part for part in (said, told) if part)
