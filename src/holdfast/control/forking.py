"""Forks: a new run that begins with what another one had done by a point.

It stands alone: everything that it takes is copied into it, and nothing of the original is changed. It has a nonce of
its own, so whatever it does from there on has other idempotency keys, children and questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base import faults
from holdfast.base.clock import now_us, ready_us
from holdfast.base.config import Settings
from holdfast.base.data import data
from holdfast.base.ids import new_run_ids
from holdfast.codec.fastjson import decode, encode
from holdfast.control.acting import act_on, actor, way
from holdfast.control.remembering import remember
from holdfast.control.upkeep.filing import files_are_forked, fork_files
from holdfast.errors import ConflictingStart, RunNotFound, UsageError
from holdfast.journal.blobs import blob_in, spilled, texts_of, values_in, with_bases
from holdfast.journal.blocks import source_in
from holdfast.journal.chain import Draft, draft, seal_row
from holdfast.journal.forks import (
    FORKED,
    ForkedPart,
    check_changes,
    code_at,
    cut,
    drafts_of,
    forked_nonce,
    head_of,
    journal_of,
)
from holdfast.journal.tombstones import refuse_empty
from holdfast.journal.trees import WORKSPACES, workspaces_in
from holdfast.journal.verification import check_whole
from holdfast.model import (
    CUT,
    SCHEDULED_AT,
    TAGS,
    UNBEGUN,
    Actor,
    Kind,
    NoteKind,
    Record,
    RunId,
    RunRow,
    Status,
    ThreadId,
    Whole,
    checked_id,
)
from holdfast.model.budgets import BUDGET
from holdfast.store.contract import Store

_STATE = ""  #: instead of a call's key
_USED = ("input_tokens", "output_tokens", "cost")


@data
class Branching:
    """How a fork is to differ from the original."""

    at: int | None = None  #: the record; None: the last one
    turn: int | None = None  #: instead of a record: the turn that it begins with
    state: str | None = None  #: another state, as JSON text
    results: Mapping[str, str] | None = None  #: other results, as JSON text, by the key of the call
    run_id: str | None = None
    thread_id: str | None = None  #: None: one of its own


async def forkable(store: Store, run_id: RunId) -> Whole:
    """All of a run, checked; raises what keeps it from being forked."""
    whole = await store.whole(run_id)
    if whole is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_empty(whole.row)
    check_whole(whole)
    return whole


async def fork(store: Store, whole: Whole, how: Branching, *, by: str | None, note: str) -> RunRow:
    """Make a fork, for whichever worker has room; its row. The same fork under the same id is made once."""
    part = part_for(whole, how)
    ids = _Ids.of(whole.row, how)
    marks: dict[str, str] = {}
    has_files = False
    if await store.run(ids.run) is None:  # before anything names them there
        has_files = await fork_files(store, whole.row.id, ids.run)
        marks = await remember(store, whole, part, thread_id=ids.thread)
    new = _new(whole, part, how, ids=ids, marks=marks, by=actor(by), note=note)
    faults.point("fork.before_commit")
    act = act_on(by, note, "fork", target=whole.row.id) if isinstance(by, Actor) else None
    stored = await store.put(new, act=act)
    faults.point("fork.after_commit")
    if has_files:
        await files_are_forked(store, ids.run)
    if stored.nonce != new.row.nonce:
        await _check_same(store, stored, new)
    return stored


def part_for(whole: Whole, how: Branching) -> ForkedPart:
    """What of a run a fork takes; UsageError for what it cannot have."""
    row, at = whole.row, how.at
    if how.turn is not None:
        at = head_of(row, whole.records, how.turn)
    part = cut(row, whole.records, at)
    check_changes(row.id, part, list(how.results or {}))
    if how.state is not None and not part.turn:
        raise UsageError(
            f"Run {row.id}: at record {part.at} it is in no turn, and so has no state that a fork could begin with. "
            "Change what calls returned (results=, --result)."
        )
    return part


def state_of(whole: Whole, part: ForkedPart) -> str:
    """The state that a fork begins with, as JSON text; UsageError if there is none."""
    head = part.checkpoint
    if head is None:
        raise UsageError(f"Run {whole.row.id}: at record {part.at} it is in no turn, and so has no state.")
    name = blob_in(head.args)
    return head.args or "null" if name is None else texts_of(whole.row.id, whole.blobs, [name])[name].decode()


async def _check_same(store: Store, stored: RunRow, new: Whole) -> None:
    """Raise unless what has the id is a fork of the same run, at the same point, with the same changes."""
    first = await store.records(stored.id, limit=1)
    has, wants = (_without_act(each[0]) if each else None for each in (first, new.records))
    if has is None or has != wants:
        raise ConflictingStart(
            f"Run {stored.id} ({stored.agent}) exists, and is not this fork. Use another id, or leave it out."
        )


def _without_act(created: Record) -> tuple[Any, ...] | None:
    said = decode(created.payload or "{}").get(FORKED)
    if not isinstance(said, dict):
        return None
    return said.get("run"), said.get("at"), said.get("changed"), said.get("state"), said.get("hash")


@data
class _Ids:
    """What a fork is known by."""

    run: RunId
    thread: ThreadId
    nonce: str

    @classmethod
    def of(cls, row: RunRow, how: Branching) -> _Ids:
        new_id, new_thread, own = new_run_ids()
        run_id = RunId(new_id if how.run_id is None else checked_id(how.run_id, "id"))
        if run_id == row.id:
            raise UsageError(f"A fork of {row.id} is another run; it needs an id of its own.")
        thread_id = ThreadId(new_thread if how.thread_id is None else checked_id(how.thread_id, "thread_id"))
        return cls(run_id, thread_id, own)


def _new(
    whole: Whole, part: ForkedPart, how: Branching, *, ids: _Ids, marks: Mapping[str, str], by: str, note: str
) -> Whole:
    """All of a fork; `marks` are what copied calls say that they read in the thread."""
    row, run_id, thread_id = whole.row, ids.run, ids.thread
    nonce = forked_nonce(ids.nonce, row, part)
    given = {**(how.results or {}), **({} if how.state is None else {_STATE: how.state})}
    texts, blobs = _spilled(given)
    state = texts.pop(_STATE, None)
    created = _created(whole, part, thread_id, changes=texts, state=state, by=by, note=note)
    prologue, rest = drafts_of(part, {**texts, **marks}, mail=row.mail, state=state)
    records, cut_at = journal_of(run_id, nonce, prologue=[created, *prologue], turn=part.turn, rest=rest, mail=row.mail)
    named = {name for r in records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}
    found = {**values_in(whole.mail, named), **whole.blobs, **dict(blobs)}
    named = with_bases(found, named)
    kept = _keys_of(part.records)
    at = now_us()
    new = RunRow(
        id=run_id,
        thread_id=thread_id,
        agent=row.agent,
        nonce=nonce,
        parent_id=None,
        queue=row.queue,
        queue_key=row.queue_key,
        priority=row.priority,
        created_at=at,
        updated_at=at,
        status=Status.queued,
        reason=None,
        wake_at=ready_us(),
        turn=part.turn,
        epoch=0,
        head_seq=len(records),
        head_hash=records[-1].hash,
        input_digest=row.input_digest,
        summary=_summary(whole, part) | ({} if cut_at is None else {CUT: cut_at.plain()}),
        owner=None,
        claims=0,
        mail=row.mail,  # the numbers go on: those that the copied part has consumed are not given out again
        digest="",
    )
    return Whole(
        row=seal_row(new),
        records=tuple(records),
        blobs={name: data for name, data in found.items() if name in named},
        mail=(),
        questions=(),
        landed=tuple(each for each in whole.landed if each[0] in kept),
    )


def _created(
    whole: Whole,
    part: ForkedPart,
    thread_id: ThreadId,
    *,
    changes: Mapping[str, str],
    state: str | None,
    by: str,
    note: str,
) -> Draft:
    """The first record: the original's input, and where the run comes from."""
    row, first = whole.row, whole.records[0]
    said = decode(first.payload or "{}")
    origin = {
        "run": row.id,
        "at": part.at,
        "asked": part.asked,
        "hash": whole.records[part.at - 1].hash.hex(),
        "by": by,
        **way(by),
        "note": note,
        "changed": dict(changes),
        **({} if state is None else {"state": state}),
        "mail": row.mail,
    }
    told = {
        **{name: said[name] for name in ("version", "defaults", "outside") if name in said},
        "thread": thread_id,
        "code": code_at(whole.records, part.at),
        "source": source_in(whole.records),
        "parent": None,
        "tags": said.get("tags", {}),
        FORKED: origin,
        "holdfast": said.get("holdfast"),
    }
    return draft(
        Kind.created, first.name, at=now_us(), args_digest=first.args_digest, args=first.args, payload=encode(told)
    )


def _summary(whole: Whole, part: ForkedPart) -> dict[str, Any]:
    """What the row says of the copied part: how much that was, what the code may ask for, and what binds it."""
    said = whole.row.summary
    summary: dict[str, Any] = {name: said[name] for name in (TAGS, SCHEDULED_AT) if name in said}
    summary |= _workspaces(whole, part) | _budget(whole, part)
    summary[UNBEGUN] = True
    effects = {r.key for r in part.records if r.kind == Kind.intent}
    children = {r.key for r in part.records if r.kind == Kind.child}
    ours = {r.key for r in part.records if r.name.startswith(("hf.", "hf:"))}
    steps = [key for key in part.ended if key not in effects | children | ours]
    counts: dict[str, Any] = {"steps": len(steps), "effects": sum(key in effects for key in part.ended)}
    for r in part.records:
        if r.kind == Kind.noted and r.name == NoteKind.usage:
            used = decode(r.payload or "{}")
            for name in _USED:
                counts[name] = counts.get(name, 0) + used.get(name, 0)
    return summary | {name: number for name, number in counts.items() if number}


def _workspaces(whole: Whole, part: ForkedPart) -> dict[str, Any]:
    """Which version its workspaces were at the point, whichever turn left it."""
    found = workspaces_in(r for r in whole.records if r.seq <= part.at)
    return {WORKSPACES: found} if found else {}


def _budget(whole: Whole, part: ForkedPart) -> dict[str, Any]:
    """The limits that it had at the point: they are the fork's own from there on."""
    said = [r for r in whole.records[: part.at] if r.kind == Kind.noted and r.name == NoteKind.budget]
    return {BUDGET: decode(said[-1].payload or "{}")["limit"]} if said else {}


def _spilled(results: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """What the records say of other results, and the blobs of the large ones."""
    limit = Settings().inline_limit
    texts: dict[str, str] = {}
    blobs: list[tuple[str, bytes]] = []
    for key, text in results.items():
        texts[key] = text
        if len(text) > limit:
            texts[key], blob = spilled(text)
            blobs.append(blob)
    return texts, blobs


def _keys_of(records: Sequence[Record]) -> set[str]:
    """The idempotency keys of the copied effects."""
    return {str(decode(r.payload or "{}").get("idempotency_key")) for r in records if r.kind == Kind.intent}
