"""Forks: a new run that begins with what another one had done by a point (`originals`).

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
from holdfast.control.originals import Original
from holdfast.control.remembering import remember
from holdfast.control.upkeep.filing import files_are_forked, fork_files
from holdfast.errors import ConflictingStart, UsageError
from holdfast.journal.blobs import blob_in, spilled, stored_blobs, stored_text, with_bases
from holdfast.journal.chain import Draft, draft, seal_row
from holdfast.journal.forks import FORKED, check_changes, drafts_of, forked_nonce, journal_of
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
from holdfast.store.contract import Store

_STATE = ""  #: instead of a call's key
_USED = ("input_tokens", "output_tokens", "cost")


@data
class Branching:
    """How a fork is to differ from the original."""

    state: str | None = None  #: another state, as JSON text
    results: Mapping[str, str] | None = None  #: other results, as JSON text, by the key of the call
    run_id: str | None = None
    thread_id: str | None = None  #: None: one of its own


async def fork(store: Store, original: Original, how: Branching, *, by: str | None, note: str) -> RunRow:
    """Make a fork, for whichever worker has room; its row. The same fork under the same id is made once."""
    check_wanted(original, how)
    row = original.row
    ids = _Ids.of(row, how)
    marks: dict[str, str] = {}
    has_files = False
    if await store.run(ids.run) is None:  # before anything names them there
        has_files = await fork_files(store, row.id, ids.run)
        marks = await remember(store, original, thread_id=ids.thread)
    new = await _new(store, original, how, ids=ids, marks=marks, by=actor(by), note=note)
    faults.point("fork.before_commit")
    act = act_on(by, note, "fork", target=row.id) if isinstance(by, Actor) else None
    stored = await store.put(new, act=act)
    faults.point("fork.after_commit")
    if has_files:
        await files_are_forked(store, ids.run)
    if stored.nonce != new.row.nonce:
        await _check_same(store, stored, new)
    return stored


def check_wanted(original: Original, how: Branching) -> None:
    """Raise UsageError for what a fork of this run cannot have."""
    run_id, part = original.row.id, original.part
    check_changes(run_id, part, list(how.results or {}))
    if how.state is not None and not part.turn:
        raise UsageError(
            f"Run {run_id}: at record {part.at} it is in no turn, and so has no state that a fork could begin with. "
            "Change what calls returned (results=, --result)."
        )


async def state_of(store: Store, original: Original) -> str:
    """The state that a fork begins with, as JSON text; UsageError if there is none."""
    run_id, part = original.row.id, original.part
    if part.checkpoint is None:
        raise UsageError(f"Run {run_id}: at record {part.at} it is in no turn, and so has no state.")
    return await stored_text(store, run_id, part.checkpoint.args)


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


async def _new(
    store: Store, original: Original, how: Branching, *, ids: _Ids, marks: Mapping[str, str], by: str, note: str
) -> Whole:
    """All of a fork; `marks` are what copied calls say that they read in the thread."""
    row, part, run_id, thread_id = original.row, original.part, ids.run, ids.thread
    nonce = forked_nonce(ids.nonce, row, part)
    given = {**(how.results or {}), **({} if how.state is None else {_STATE: how.state})}
    texts, blobs = _spilled(given)
    state = texts.pop(_STATE, None)
    created = _created(original, thread_id, changes=texts, state=state, by=by, note=note)
    prologue, rest = drafts_of(part, {**texts, **marks}, mail=row.mail, state=state)
    records, cut_at = journal_of(run_id, nonce, prologue=[created, *prologue], turn=part.turn, rest=rest, mail=row.mail)
    named = {name for r in records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}
    found = {**await stored_blobs(store, row.id, sorted(named)), **dict(blobs)}
    named = with_bases(found, named)
    kept = _keys_of(part.records)
    landed = () if not kept or (bare := await store.whole(row.id, bare=True)) is None else bare.landed
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
        summary=_summary(original) | ({} if cut_at is None else {CUT: cut_at.plain()}),
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
        landed=tuple(each for each in landed if each[0] in kept),
    )


def _created(
    original: Original, thread_id: ThreadId, *, changes: Mapping[str, str], state: str | None, by: str, note: str
) -> Draft:
    """The first record: the original's input, and where the run comes from."""
    row, part, first = original.row, original.part, original.created
    said = decode(first.payload or "{}")
    origin = {
        "run": row.id,
        "at": part.at,
        "asked": part.asked,
        "hash": original.last.hash.hex(),
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
        "code": original.code,
        "source": original.source,
        "parent": None,
        "tags": said.get("tags", {}),
        FORKED: origin,
        "holdfast": said.get("holdfast"),
    }
    return draft(
        Kind.created, first.name, at=now_us(), args_digest=first.args_digest, args=first.args, payload=encode(told)
    )


def _summary(original: Original) -> dict[str, Any]:
    """What the row says of the copied part: how much that was, what the code may ask for, and what binds it."""
    said, part = original.row.summary, original.part
    summary: dict[str, Any] = {name: said[name] for name in (TAGS, SCHEDULED_AT) if name in said}
    summary |= original.binds  # whichever turn left it
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
