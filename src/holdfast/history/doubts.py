"""Effects in doubt: those that a person must settle, what is known of each, and how it was settled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.data import data
from holdfast.base.hints import hint
from holdfast.history.facts import Facts, note_of
from holdfast.journal.blobs import stored_text
from holdfast.journal.mismatches import is_left_over
from holdfast.journal.replay import Replay
from holdfast.model import Kind, Record, RunFilter, RunId, RunRow, Status
from holdfast.store.contract import Store
from holdfast.store.runs import every_run

_STOPPED = frozenset({Status.in_doubt, Status.blocked})
_GOING = frozenset({Status.running, Status.paused})
_UNTOLD = '{"retry_at": 0, "postponed": 0}'
_VERDICTS = {
    "landed": "it happened",
    "not_landed": "it did not happen",
    "retry": "done again",
    "undo": "undone",
    "fail": "failed",
    "failed": "failed",
}


@data
class DoubtInfo(Facts):
    """An effect that may or may not have happened."""

    key: str
    name: str
    attempt: int
    args: str | None
    idempotency_key: str
    since: int  #: when its intent was recorded, µs
    cause: str


def in_doubt_of(row: RunRow, records: Sequence[Record], *, is_woken: bool = False) -> list[DoubtInfo]:
    """The effects that a person must settle: somebody was asked, or the code no longer makes the call.

    `is_woken`: also of a run that a verdict may have woken; whoever takes it up asks anew.
    """
    if not _may_doubt(row, is_woken=is_woken):
        return []
    found = []
    for entry in Replay(records, turn=row.turn, code="").entries.values():
        intent = entry.intent
        if intent is None or not (entry.is_in_doubt or is_left_over(row, entry)):
            continue
        key = str(note_of(intent).get("idempotency_key", ""))
        cause = _cause(note_of(entry.held)) if entry.held is not None else "code change"
        found.append(DoubtInfo(entry.key, entry.name, intent.attempt, entry.args, key, intent.at, cause))
    return found


def _may_doubt(row: RunRow, *, is_woken: bool) -> bool:
    return not row.status.is_final and (is_woken or row.status is not Status.queued)


def _cause(effect: Mapping[str, Any]) -> str:
    at = f" ({effect['at']})" if effect.get("at") else ""
    parts = [str(effect.get("cause", "unknown"))]
    parts += [f"{effect['error']}{at}"] if effect.get("error") else []
    parts += [f"no proof unless it is declared: raises=({effect['raised']},)"] if effect.get("raised") else []
    parts += [str(effect["refused"])] if effect.get("refused") else []
    if effect.get("verify_error"):
        parts.append(f"verify failed: {effect['verify_error']}")
    elif effect.get("verify"):
        parts.append(f"verify said {effect['verify']}")
    return "; ".join(parts)


def ways_to_settle(run_id: str, key: str) -> tuple[str, str, str]:
    """The commands that say what became of a call."""
    verdicts = (("--happened", "RESULT"), ("--not-happened",), ("--fail", "MESSAGE"))
    first, second, third = (hint("resolve", run_id, key, options=each) for each in verdicts)
    return first, second, third


def settlement_text(note: Mapping[str, Any]) -> str:
    """`in doubt (crash) → landed, says verify`"""
    cause = (note.get("evidence") or {}).get("cause", "unknown")
    verdict, by = str(note.get("verdict")), str(note.get("by"))
    given = note.get("given") or {}
    said = f"in doubt ({cause}) → {ruling_text({'verdict': verdict, 'by': by, 'actor': given.get('actor')})}"
    if verdict == "refused":
        return said
    return f"{said}: {given['note']}" if given.get("note") else said


def ruling_text(ruling: Mapping[str, Any]) -> str:
    """Of what a receipt says of it: `it happened, says verify`."""
    verdict, by = str(ruling.get("verdict")), str(ruling.get("by"))
    who = {"person": ruling.get("actor") or "a person", "on_doubt": "its rule"}.get(by, by)
    if verdict == "refused":
        return f"the result that {who} gave does not fit"
    return f"{_VERDICTS.get(verdict, verdict)}, says {who}"


async def all_doubts(store: Store) -> list[tuple[RunRow, DoubtInfo]]:
    """The effects of all runs that a person must settle, newest runs first."""
    return [(row, doubt) async for row in _runs_in_doubt(store) for doubt in await doubts_of(store, row.id)]


async def doubts_of(store: Store, run_id: RunId, *, is_woken: bool = False) -> list[DoubtInfo]:
    """The effects of a run that a person must settle; none if there is no such run (any more)."""
    row = await store.run(run_id)
    if row is None or not _may_doubt(row, is_woken=is_woken):
        return []
    if row.cut is not None and (loaded := await store.load_many([run_id])):
        now, records = loaded[0].row, loaded[0].records  # nothing is open in the turns before
        found = in_doubt_of(now, records, is_woken=is_woken)
        return [
            replace(each, args=await stored_text(store, run_id, each.args) if each.args else None) for each in found
        ]
    outline = await store.surveys.outline(run_id)  # however much its calls returned
    if outline is None:
        return []
    records = [_told(record) for record in outline.records]
    found = in_doubt_of(outline.row, records, is_woken=is_woken)
    return [replace(doubt, args=await _args(store, run_id, outline.records, key=doubt.key)) for doubt in found]


def _told(record: Record) -> Record:
    """A failed attempt that said too much for an outline: it has ended all the same."""
    return record._replace(payload=_UNTOLD) if record.kind == Kind.attempt and record.payload is None else record


async def _args(store: Store, run_id: RunId, outline: Sequence[Record], *, key: str) -> str | None:
    """What a call was begun with last: an intent repeats its arguments only if they are others."""
    for intent in reversed([record for record in outline if record.key == key and record.kind == Kind.intent]):
        record = await store.surveys.record(run_id, intent.seq)
        if record is not None and record.args is not None:
            return await stored_text(store, run_id, record.args)
    return None


async def _runs_in_doubt(store: Store) -> AsyncIterator[RunRow]:
    """The runs that may have one; their journals tell."""
    async for row in every_run(store, RunFilter(status=_STOPPED | _GOING)):
        if row.status in _STOPPED or row.summary.get("held"):
            yield row
