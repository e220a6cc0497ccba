"""What the API shows of runs, questions, doubts and values, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.base.clock import as_time
from holdfast.handle.decisions import InDoubt, Question
from holdfast.history.info import info_of, is_sound
from holdfast.history.values import plain_text
from holdfast.journal.blobs import blob_in
from holdfast.model import (
    RunRow,
    Status,
    Wait,
    WaitKind,
    reasons,
)

#: Characters of a value that are shown in a run, and in a list of records.
SHOWN: Final = 64_000
GLIMPSE: Final = 4_000


def run_object(row: RunRow, *, is_lost: bool) -> dict[str, Any]:
    """A run, as lists and details have it."""
    info = info_of(row, is_lost=is_lost)
    waits = reasons.waits_of(row.reason)
    return {
        "id": info.id,
        "token": info.token,
        "thread_id": info.thread_id,
        "agent": info.agent,
        "status": info.status.value,
        "is_cut_off": info.is_lost,
        "now": _now(info.now, row.status, waits),
        "waits": [_wait(each) for each in waits],
        "created_at": iso(info.created_at),
        "updated_at": iso(info.updated_at),
        "parent_id": info.parent_id,
        "queue": row.queue,
        "priority": row.priority,
        "tags": dict(info.tags),
        "calls": {"steps": info.steps, "effects": info.effects},
        "usage": {"input_tokens": info.input_tokens, "output_tokens": info.output_tokens, "cost": info.cost},
        "progress": None if info.progress is None else plain(info.progress),
        "epoch": info.epoch,
        "records": info.records,
        "is_sound": is_sound(row),
    }


def _now(text: str, status: Status, waits: Sequence[Wait]) -> str:
    asked = next((each for each in waits if each.kind is WaitKind.question), None)
    return f"asks: {asked.prompt}" if asked is not None and status is Status.waiting else text


def _wait(wait: Wait) -> dict[str, Any]:
    named = wait.question or wait.child or wait.name or wait.key
    return {"kind": wait.kind.value, "id": named, "due_at": None if wait.due is None else stamp(wait.due)}


def question_object(question: Question) -> dict[str, Any]:
    """A question, as people see it."""
    show = json.dumps(question.show, ensure_ascii=False)
    draft = None if question.draft is None else json.dumps(question.draft, ensure_ascii=False)
    return {
        "id": question.id,
        "run_id": question.run_id,
        "key": question.key,
        "agent": question.agent,
        "thread_id": question.thread_id,
        "prompt": question.prompt,
        "show_json": show[:SHOWN],
        "kind": question.kind,
        "options": question.options,
        "schema": question.schema,
        "draft_json": None if draft is None else draft[:SHOWN],
        "truncated": max(len(show), len(draft or "")) > SHOWN,
        "asked_at": iso(question.asked_at),
        "due_at": None if question.due_at is None else iso(question.due_at),
        "state": question.state.value,
        "decided_at": None if question.decided_at is None else iso(question.decided_at),
        "decided_by": question.decided_by,
        "note": question.note,
        "shown": question.shown,
    }


def doubt_object(doubt: InDoubt) -> dict[str, Any]:
    """An effect in doubt, as people see it."""
    args = None if doubt.args is None else plain_text(doubt.args)
    return {
        "run_id": doubt.run_id,
        "key": doubt.key,
        "name": doubt.name,
        "attempt": doubt.attempt,
        "args_json": None if args is None else args[:SHOWN],
        "truncated": len(args or "") > SHOWN,
        "idempotency_key": doubt.idempotency_key,
        "since": stamp(doubt.since),
        "cause": doubt.cause,
    }


def etag_of(row: RunRow) -> str:
    """Changes whenever something was recorded of the run, or sent to it."""
    return f'"{row.epoch}.{row.head_seq}.{row.mail}"'


def cut(text: str, most: int, run_id: str, seq: int, part: str) -> dict[str, Any]:
    """A value as text; where it is cut, all of it is a download away."""
    found: dict[str, Any] = {"json": text[:most], "truncated": len(text) > most}
    if found["truncated"]:
        found |= {"run_id": run_id, "seq": seq, "part": part}
    return found


def glimpse(stored: str | None, run_id: str, seq: int, part: str) -> dict[str, Any] | None:
    if stored is None:
        return None
    if blob_in(stored) is not None:
        return {"json": None, "truncated": True, "run_id": run_id, "seq": seq, "part": part}
    return cut(stored, GLIMPSE, run_id, seq, part)


# times


def stamp(at_us: int) -> str:
    return iso(as_time(at_us))


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def plain(value: Any) -> Any:
    """Ready for JSON, whatever is in it."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)
