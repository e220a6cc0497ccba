"""What people do to runs from outside; the same for app, command line and HTTP.

A run that somebody owns gets mail, which its owner acts on. One that nobody owns is changed at once, by the same rules:
pausing and cancelling are appended to its journal, everything else is mail that makes it claimable.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.base.clock import now_us, ready_us
from holdfast.base.hints import hint
from holdfast.base.ids import new_uuid
from holdfast.codec import is_same
from holdfast.codec.schema import problems_outside
from holdfast.control.letters import (
    STOPPED,
    UNSEEN,
    WAITING,
    Unowned,
    child_ended,
    kept,
    letter,
    post,
    waking,
    why_waiting,
)
from holdfast.errors import (
    AlreadyDecided,
    AmbiguousId,
    ConflictingSend,
    CorruptJournal,
    QuestionChanged,
    RunFinished,
    RunNotFound,
    UsageError,
)
from holdfast.journal.integrity import check_row, record_hash, seal_row
from holdfast.journal.replay import Replay
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.model import (
    UNBEGUN,
    Append,
    Definition,
    Kind,
    Known,
    QuestionRow,
    QuestionState,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    WorkerId,
)
from holdfast.store.contract import Store

#: The kind of definitions that say what is to be done once a transaction of the user's own is committed.
OUTBOX = "outbox"
#: How dedup ids begin that are not the user's.
_OWN = "hf:"


def actor(by: str | None) -> str:
    """Who acts: as told, else the user of this process."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


async def find(store: Store, given: str) -> RunRow:
    """The run that an id, a token (`run@thread`), a unique prefix of an id, or `@last` names."""
    if given == "@last":
        newest = await store.runs(RunFilter(limit=1))
        if not newest:
            raise RunNotFound(f"There are no runs in {store.url} yet.")
        return newest[0]
    wanted, _, thread_id = given.partition("@")
    row = await store.run(RunId(wanted)) if wanted else None
    if row is None and wanted:
        fitting = await store.runs(RunFilter(id_prefix=wanted, limit=6))
        if len(fitting) > 1:
            shown = ", ".join(r.id for r in fitting[:5])
            raise AmbiguousId(
                f"{wanted!r} fits several runs: {shown}{' …' if len(fitting) > 5 else ''}. Give more of the id."
            )
        row = fitting[0] if fitting else None
    if row is None:
        raise RunNotFound(f"There is no run {wanted!r} in {store.url}. `holdfast runs` lists what there is.")
    if thread_id and row.thread_id != thread_id:
        raise RunNotFound(f"Run {row.id} belongs to thread {row.thread_id}, not {thread_id!r}.")
    return row


# mail


class Takes(NamedTuple):
    """What an agent declares: its signals with their schemas; one that declares none takes any."""

    agent: str
    signals: Mapping[str, Any]


async def send(
    store: Store,
    run_id: RunId,
    name: str,
    value: str,
    *,
    dedup: str | None,
    by: str | None,
    takes: Takes | None = None,
) -> bool:
    """Send a signal; `value` is JSON text. False: it was sent before, under the same dedup id.

    UsageError if the run's agent declares its signals, and this is none of them or has another shape. ConflictingSend
    if something else was sent under that id. `takes`: what it declares, if that is known without asking.
    """
    refuse_dedup(dedup)
    _refuse_signal(run_id, takes or await _takes(store, await _existing(store, run_id)), name, value)
    sent = await post(store, run_id, "signal", name, {"value": value, "by": actor(by)}, dedup=dedup)
    if sent.known is not None and not _is_signal(sent.known, name, value):
        raise ConflictingSend(
            f"Something else was sent to run {run_id} with dedup={dedup!r} before ({sent.known.kind} "
            f"{sent.known.key!r}, number {sent.known.number}); nothing was sent. Use another id for another message.",
            known=str(sent.known.number),
        )
    return sent.is_new


def refuse_dedup(dedup: str | None) -> None:
    """Refuse what cannot be a dedup id that a user gives."""
    if dedup is not None and (not isinstance(dedup, str) or not dedup or dedup.startswith(_OWN)):
        raise UsageError(
            f"dedup= takes text that is the same whenever the message is the same, not beginning with {_OWN!r}; "
            f"got {dedup!r}."
        )


def _is_signal(known: Known, name: str, value: str) -> bool:
    """Is it this signal that was accepted? Of a run that was pruned nobody knows."""
    if not known.body:
        return True
    return (known.kind, known.key) == ("signal", name) and is_same(json.loads(known.body)["value"], value)


async def send_later(
    store: Store, transaction: Any, run_id: RunId, name: str, value: str, *, dedup: str | None, by: str | None
) -> None:
    """Send a signal once a transaction of the user's own is committed. The run may be started by the same one."""
    refuse_dedup(dedup)
    row = await store.run(run_id)
    if row is not None:
        _refuse_signal(run_id, await _takes(store, row), name, value)
    send = {"run": run_id, "name": name, "value": value, "dedup": dedup, "by": actor(by)}
    await later(store, transaction, {"send": send})


async def later(store: Store, transaction: Any, what: dict[str, Any]) -> None:
    """Have a worker do something once a transaction of the user's own is committed; nothing, if it never is."""
    await store.define([Definition(OUTBOX, f"o_{new_uuid().hex}", json.dumps(what), 1, ready_us())], within=transaction)


async def _takes(store: Store, row: RunRow) -> Takes:
    return Takes(row.agent, (await definition(store, row.agent)).get("signals") or {})


def _refuse_signal(run_id: RunId, takes: Takes, name: str, value: str) -> None:
    agent, signals = takes
    if signals:
        if name not in signals:
            raise UsageError(f"Run {run_id} ({agent}) takes no signal {name!r}; it takes {', '.join(signals)}.")
        refuse_misfit(signals[name], value, f"signal {name!r} of {agent}")


async def definition(store: Store, agent: str) -> dict[str, Any]:
    """What workers have said of an agent: its signals, whether it handles interrupts, its queue."""
    found = await store.definitions("agent", names=[agent])
    body: dict[str, Any] = json.loads(found[0].body) if found else {}
    return body


def refuse_misfit(schema: dict[str, Any] | None, value: str, what: str) -> None:
    """Refuse a value of the wrong shape to its sender."""
    found = problems_outside(schema, value)
    if found:
        raise UsageError(f"The value does not fit {what}: {'; '.join(found[:5])}.")


async def interrupt(store: Store, run_id: RunId, value: str, *, by: str | None, dedup: str | None = None) -> int:
    """Send an interrupt; the number of its mail."""
    row = await _existing(store, run_id)
    if not (await definition(store, row.agent)).get("interrupts"):
        raise UsageError(
            f"{row.agent} does not handle interrupts: declare a handler with @{row.agent}.on_interrupt, and have a "
            "worker with that code take it up."
        )
    return (await post(store, run_id, "interrupt", "", {"value": value, "by": actor(by)}, dedup=dedup)).number


async def _existing(store: Store, run_id: RunId) -> RunRow:
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_elsewhere(row)
    return row


# questions


async def decide(
    store: Store,
    row: QuestionRow,
    state: QuestionState,
    value: str | None,
    *,
    by: str | None,
    note: str,
    dedup: str | None = None,
) -> None:
    """Answer or decline a question, as it was shown. The first decision counts."""
    body = {"value": value, "declined": state is QuestionState.declined, "by": actor(by), "note": note}
    mail = letter(row.run_id, "answer", row.key, body, dedup=dedup)
    try:
        if (await store.send(mail, wake=waking("answer", row.key), decides=(state, row.shown))).number:
            return
    except RunFinished:  # then nobody waits for it any more
        await store.close_question(row.run_id, row.key, QuestionState.withdrawn, now_us())
    now = next((q for q in await store.questions(run_id=row.run_id, only_open=False) if q.key == row.key), None)
    if now is None or now.state is QuestionState.open:
        raise QuestionChanged(
            f"Question {row.id} of run {row.run_id} shows something else now; nothing was decided. Look at it again "
            f"with `{hint('questions', row.id)}`."
        )
    who = f" by {now.decided_by}" if now.decided_by else ""
    raise AlreadyDecided(
        f"Question {row.id} of run {row.run_id} was {now.state}{who}; nothing was changed.",
        state=now.state,
        by=now.decided_by,
    )


async def withdraw_questions(store: Store, run_id: RunId) -> None:
    """Nobody waits for the answers any more."""
    for question in await store.questions(run_id=run_id):
        await store.close_question(run_id, question.key, QuestionState.withdrawn, now_us())


# pause, resume, cancel


def _act(by: str | None, note: str, own_id: str) -> dict[str, str]:
    """Who does something, and why; `own_id` names the act of a run that does it to another."""
    return {"by": actor(by), "note": note, **({"id": own_id} if own_id else {})}


async def was_done(store: Store, run_id: RunId, own_id: str) -> bool:
    """Did a run that was cut off act on this one before? Its id is in the mail, or in the journal."""
    if any(own_id in mail.body for mail in await store.mail(run_id, after=0)):
        return True
    return any(r.kind == Kind.noted and own_id in (r.payload or "") for r in await store.records(run_id))


async def pause(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> Status:
    """Stop a run at its next durable boundary: `paused`, or what it is if it has ended, or is blocked anyway."""
    act = _act(by, note, own_id)
    while True:
        row = await _existing(store, run_id)
        if row.status.is_final or row.status in STOPPED:
            return row.status
        if row.summary.get("cancelling"):  # it can only end
            return Status.cancelled
        if row.mail and await _is_told_to_stop(store, row):
            return Status.cancelled
        dead = await store.dead_workers() if row.owner is not None else {}
        if row.owner is not None and row.owner not in dead:
            try:
                await post(store, run_id, "pause", "", act)
            except Unowned:
                continue
            except RunFinished as finished:
                return Status(finished.status)
            return Status.paused
        told = {"by": act["by"], "note": note}
        reason = {**(row.reason or {}), "why": "paused", "was": row.status, "wake_at": row.wake_at, **told}
        if row.status is Status.running:
            reason |= {"was": Status.queued, "cleanup": True}  # nobody can tell what it was in the middle of
        reason.setdefault("mail", row.mail)
        noted = [(Kind.noted, "paused", {"on": True, **act, **seized(row, dead)})]
        if await amend(
            store, row, noted, status=Status.paused, reason=reason, wake_at=None, seize=row.owner is not None
        ):
            return Status.paused


async def _is_told_to_stop(store: Store, row: RunRow) -> bool:
    """Was it cancelled, and nobody has read that yet?"""
    told = [mail for mail in await store.mail(row.id, after=0) if mail.kind == "cancel"]
    if not told:
        return False
    replay = await _replayed(store, row)
    return replay is None or any(mail.number not in replay.consumed_mail for mail in told)


async def _replayed(store: Store, row: RunRow) -> Replay | None:
    """What the journal of a run says of its calls; None if it is damaged, which is for `verify` to report."""
    loaded = await store.load(row.id)
    try:
        return None if loaded is None else Replay(loaded[1], generation=row.generation, code="")
    except (ValueError, KeyError, TypeError):
        return None


def seized(row: RunRow, dead: Mapping[WorkerId, str]) -> dict[str, str]:
    """What is known of an owner that a run is taken from: whether it can still act decides what a cut-off effect is."""
    return {} if row.owner is None else {"seized": dead.get(row.owner, "")}


async def go_on(
    store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "", requeues: bool = True
) -> None:
    """Have a run go on: paused, it goes on; blocked, any worker tries it again, unless the caller does (`requeues`).

    One that waits is replayed, since the code may be another by now. A run that has ended is left alone.
    """
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    if row.status is Status.quarantined:
        raise CorruptJournal((row.reason or {}).get("detail", f"Run {run_id} is quarantined."), run_id=run_id)
    refuse_empty(row)
    refuse_elsewhere(row)
    if row.status.is_final:
        return
    is_stopped = row.owner is None and row.status is not Status.paused
    if row.status not in WAITING or row.owner is not None:  # it is paused, or may be about to be
        await resume(store, run_id, by=by, note=note, own_id="" if is_stopped else own_id)
    if requeues and is_stopped:
        await requeue(store, run_id, by=by, note=note, own_id=own_id)


async def resume(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> bool:
    """Have a paused run go on; False if it is not paused. One that is about to be paused will not be."""
    act = _act(by, note, own_id)
    while True:
        row = await _existing(store, run_id)
        if row.owner is not None or row.status in UNSEEN:
            try:
                if any(mail.kind == "pause" for mail in await store.mail(run_id, after=0)):
                    await post(store, run_id, "resume", "", act)
            except Unowned:
                continue
            except RunFinished:
                pass
            return False
        if row.status is not Status.paused:
            return False
        reason = dict(row.reason or {})
        was, wake_at = Status(reason.get("was", Status.queued)), reason.get("wake_at")
        if was not in WAITING or row.mail > reason.get("mail", 0):
            was, wake_at = Status.queued, ready_us()
            reason = kept(reason) or {}
        for gone in ("was", "wake_at", "by", "note"):
            reason.pop(gone, None)
        if was in WAITING:
            why = why_waiting(reason.get("waits", []))
            reason["why"] = "in doubt" if why == "doubt" else why
        noted = [(Kind.noted, "paused", {"on": False, **act})]
        if await amend(store, row, noted, status=was, reason=reason or None, wake_at=wake_at):
            store.ring()
            return True


async def requeue(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> None:
    """Have any worker try a run again that is blocked, or whose time has not come."""
    act = _act(by, note, own_id)
    while True:
        row = await _existing(store, run_id)
        if row.owner is not None or row.status.is_final:
            return
        if row.status is Status.queued and row.wake_at is not None and row.wake_at <= now_us():
            return
        noted: list[tuple[Kind, str, Any]] = [(Kind.noted, "requeued", act)]
        if (row.reason or {}).get("paused"):  # it was paused when it was blocked; it is to go on now
            noted.append((Kind.noted, "paused", {"on": False, **act}))
        if await amend(
            store,
            row,
            noted,
            status=Status.queued,
            reason=kept(row.reason),
            wake_at=ready_us(),
        ):
            store.ring()
            return


async def reopen(store: Store, row: RunRow, superseded: Sequence[int], *, by: str, note: str) -> bool:
    """Have any worker try a run again that failed or was cancelled; False if it was changed in between.

    `superseded`: the numbers of the outcomes that ended it, which count no more.
    """
    opened = [(Kind.reopened, by, {"superseded": list(superseded), "note": note})]
    if await amend(store, row, opened, status=Status.queued, reason=None, wake_at=ready_us()) is None:
        return False
    store.ring()
    return True


async def block(store: Store, row: RunRow, reason: dict[str, Any]) -> bool:
    """Keep a run from being executed, whoever has it, until a person acts; False if it was changed in between."""
    if row.status is Status.paused:
        reason = {**reason, "paused": True}
    taken = seized(row, await store.dead_workers()) if row.owner is not None else {}
    noted = [(Kind.noted, "blocked", {"why": reason["why"], "detail": reason["detail"], **taken})]
    changed = await amend(store, row, noted, status=Status.blocked, reason=reason, wake_at=None, seize=bool(taken))
    return changed is not None


async def give_back(store: Store, row: RunRow) -> bool:
    """Have a run go on with whoever has room, which its owner has and does not execute; False: it was changed."""
    if row.status is not Status.running:
        return False
    noted = [(Kind.noted, "requeued", {"by": row.owner, "note": "its owner did not execute it"})]
    changed = await amend(store, row, noted, status=Status.queued, reason=None, wake_at=ready_us(), seize=True)
    if changed is not None:
        store.ring()
    return changed is not None


async def cancel(
    store: Store, run_id: RunId, *, by: str | None, note: str, kill: bool = False, own_id: str = ""
) -> Status | None:
    """Have a run cancelled: how it ended, or None if its owner was told and has not answered yet.

    One that nobody has, and that has nothing to undo, is cancelled at once; so is any run with `kill`, whose owner is
    fenced and hears of it with its next write. Its children follow.
    """
    act = _act(by, note, own_id)
    while True:
        row = await _existing(store, run_id)
        if row.status.is_final:
            if row.status is Status.cancelled:  # whoever cancelled it may have died before the rest followed
                await withdraw_questions(store, run_id)
                await _cancel_children(store, run_id, note=note, kill=kill)
            return row.status
        dead = await store.dead_workers() if row.owner is not None else {}
        is_free = row.owner is None or row.owner in dead
        cleans_up = row.owner is not None or bool((row.reason or {}).get("cleanup"))
        if not kill and (not is_free or (cleans_up and row.status is not Status.paused)):
            try:
                await post(store, run_id, "cancel", "", act, dedup=f"{_OWN}cancel:{row.epoch}")
            except Unowned:
                continue
            except RunFinished as finished:
                return Status(finished.status)
            return None
        if not kill and cleans_up:  # paused with something to undo: it goes on, to be cancelled, in one commit
            told = [(Kind.noted, "cancel", act)]
            if await amend(
                store, row, told, status=Status.queued, reason=kept(row.reason), wake_at=ready_us(), cancels=True
            ):
                store.ring()
                return None
            continue
        records: list[tuple[Kind, str, dict[str, Any] | None]] = [(Kind.noted, "cancel", {**act, **seized(row, dead)})]
        if doubts := await _open_effects(store, row):  # nobody is asked about them any more
            records.append((Kind.noted, "left in doubt", {"effects": doubts}))
        records.append((Kind.finished, Status.cancelled, None))
        if await amend(
            store, row, records, status=Status.cancelled, reason=None, wake_at=None, seize=row.owner is not None
        ):
            await withdraw_questions(store, run_id)
            await _cancel_children(store, run_id, note=note, kill=kill)
            return Status.cancelled


async def _open_effects(store: Store, row: RunRow) -> list[str]:
    """The effects of a run of which it is not known whether they happened."""
    replay = await _replayed(store, row)
    entries = replay.entries.values() if replay is not None else ()
    return sorted(entry.key for entry in entries if entry.intent is not None and entry.outcome is None)


async def _cancel_children(store: Store, run_id: RunId, *, note: str, kill: bool) -> None:
    for child in await unfinished_children(store, run_id):
        await cancel(store, child, by=f"run {run_id}", note=note, kill=kill)


async def unfinished_children(store: Store, run_id: RunId) -> list[RunId]:
    found: list[RunId] = []
    last: RunId | None = None
    while page := await store.runs(RunFilter(parent_id=run_id, before_id=last, limit=200)):
        found += [row.id for row in page if not row.status.is_final]
        last = page[-1].id
    return found


async def amend(
    store: Store,
    row: RunRow,
    notes: Sequence[tuple[Kind, str, dict[str, Any] | None]],
    *,
    status: Status,
    reason: dict[str, Any] | None,
    wake_at: int | None,
    updated_at: int | None = None,
    seize: bool = False,
    cancels: bool = False,
) -> RunRow | None:
    """Append to the journal of a run that nobody has, with a new status; None if it was changed in between.

    `seize`: also if somebody has it; a note says what is known of them (`seized`).
    """
    check_row(row)
    at, epoch = now_us(), row.epoch + 1
    records: list[Record] = []
    seq, previous = row.head_seq, row.head_hash
    for kind, name, note in notes:
        seq += 1
        payload = None if note is None else json.dumps(note)
        previous = record_hash(previous, seq, epoch, row.generation, "", kind, name, 1, 0, at, 0, "", None, payload)
        records.append(Record(seq, epoch, row.generation, "", kind, name, 1, 0, at, 0, "", None, payload, previous))
    tell = child_ended(row.parent_id, row.id, status) if status.is_final and row.parent_id is not None else None
    summary = row.summary
    if status.is_final:
        summary = {k: v for k, v in row.summary.items() if k not in ("progress", "held", "cancelling")}
    elif cancels:
        summary = {**row.summary, "cancelling": True}
    if notes and row.head_seq <= 1 and not status.is_final:
        summary = {**summary, UNBEGUN: True}
    changed = replace(
        row,
        status=status,
        reason=reason,
        wake_at=wake_at,
        epoch=epoch,
        head_seq=seq,
        head_hash=previous,
        updated_at=at if updated_at is None else updated_at,
        owner=None,
        claims=0,
        summary=summary,
    )
    append = Append(seal_row(changed), row.head_seq, row.head_hash, tuple(records), mail=row.mail, tell=tell)
    return append.row if await store.amend(append, seize=seize) else None
