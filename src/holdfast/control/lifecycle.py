"""Pausing, resuming, cancelling and retrying runs; the same for app, command line and HTTP.

A run that somebody owns gets mail, which its owner acts on. One that nobody owns is changed at once, by the same rules:
pausing and cancelling are appended to its journal, everything else is mail that makes it claimable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.base.clock import now_us, ready_us
from holdfast.control.acting import act_of, existing, way
from holdfast.control.amendments import amend, seized
from holdfast.control.budgets import change_budget, waiting_for_budget
from holdfast.control.mail import OWN_IDS, STOPPED, UNSEEN, WAITING, Unowned, kept, send_mail
from holdfast.control.questions import withdraw_questions
from holdfast.errors import CorruptJournal, RunFinished, RunNotFound
from holdfast.journal.replay import Replay
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.model import Kind, MailKind, NoteKind, RunFilter, RunId, RunRow, Status, reasons
from holdfast.model.budgets import Budget
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.reasons import Blocked, Paused, Stood, Waiting
from holdfast.store.contract import Store
from holdfast.store.runs import every_run


async def pause(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> Status:
    """Stop a run at its next durable boundary: `paused`, or what it is if it has ended, or is blocked anyway."""
    act = act_of(by, note, own_id)
    while True:
        row = await existing(store, run_id)
        if row.status.is_final or row.status in STOPPED:
            return row.status
        if row.summary.get("cancelling"):  # it can only end
            return Status.cancelled
        if row.mail and await _is_told_to_stop(store, row):
            return Status.cancelled
        dead = await store.dead_workers() if row.owner is not None else {}
        if row.owner is not None and row.owner not in dead:
            try:
                await send_mail(store, run_id, MailKind.pause, "", act)
            except Unowned:
                continue
            except RunFinished as finished:
                return Status(finished.status)
            return Status.paused
        is_cut_off = row.status is Status.running  # nobody can tell what it was in the middle of
        reason = Paused(
            Status.queued if is_cut_off else row.status,
            act["by"],
            note,
            Stood(row.reason, row.wake_at),
            mail=None if isinstance(row.reason, Waiting) else row.mail,
            cleanup=True if is_cut_off else None,
        )
        noted = [(Kind.noted, NoteKind.paused, {"on": True, **act, **seized(row, dead)})]
        if await amend(
            store, row, noted, status=Status.paused, reason=reason, wake_at=None, seize=row.owner is not None
        ):
            return Status.paused


async def _is_told_to_stop(store: Store, row: RunRow) -> bool:
    """Was it cancelled, and nobody has read that yet?"""
    told = [mail for mail in await store.mail(row.id, after=0) if mail.kind == MailKind.cancel]
    if not told:
        return False
    replay = await _replayed(store, row)
    return replay is None or any(mail.number not in replay.consumed_mail for mail in told)


async def _replayed(store: Store, row: RunRow) -> Replay | None:
    """What the journal of a run says of its calls; None if it is damaged, which is for `verify` to report."""
    loaded = await store.load(row.id)
    try:
        return None if loaded is None else Replay(loaded[1], turn=row.turn, code="")
    except (ValueError, KeyError, TypeError):
        return None


async def go_on(
    store: Store,
    run_id: RunId,
    *,
    by: str | None,
    note: str,
    own_id: str = "",
    requeues: bool = True,
    budget: Budget | None = None,
) -> None:
    """Have a run go on: paused, it goes on; blocked, any worker tries it again, unless the caller does (`requeues`).

    `budget`: what it may use from now on, with all that comes of it; what is blocked for that goes on too. One that
    waits is replayed, since the code may be another by now. A run that has ended is left alone.
    """
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    if row.status is Status.quarantined:
        raise CorruptJournal(reasons.detail_of(row.reason) or f"Run {run_id} is quarantined.", run_id=run_id)
    refuse_empty(row)
    refuse_elsewhere(row)
    if budget is not None and await change_budget(store, run_id, budget, by=by, note=note):
        await wake_family(store, run_id, by=by, note=note)
    if row.status.is_final:
        return
    is_stopped = row.owner is None and row.status is not Status.paused
    if row.status not in WAITING or row.owner is not None:  # it is paused, or may be about to be
        await resume(store, run_id, by=by, note=note, own_id="" if is_stopped else own_id)
    if requeues and is_stopped:
        await requeue(store, run_id, by=by, note=note, own_id=own_id)


async def resume(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> bool:
    """Have a paused run go on; False if it is not paused. One that is about to be paused will not be."""
    act = act_of(by, note, own_id)
    while True:
        row = await existing(store, run_id)
        if row.owner is not None or row.status in UNSEEN:
            try:
                if any(mail.kind == MailKind.pause for mail in await store.mail(run_id, after=0)):
                    await send_mail(store, run_id, MailKind.resume, "", act)
            except Unowned:
                continue
            except RunFinished:
                pass
            return False
        if row.status is not Status.paused:
            return False
        was, reason, wake_at = reasons.went_on(row.reason, row.mail)
        if was is Status.queued:
            wake_at = ready_us()
        noted = [(Kind.noted, NoteKind.paused, {"on": False, **act})]
        if await amend(store, row, noted, status=was, reason=reason, wake_at=wake_at):
            store.ring()
            return True


async def wake_family(store: Store, owner: RunId, *, by: str | None, note: str) -> list[RunId]:
    """Have those tried again that came of a run and are blocked because its budget was used up."""
    woken = [run_id async for run_id in waiting_for_budget(store, owner)]
    for run_id in woken:
        await requeue(store, run_id, by=by, note=note)
    return woken


async def requeue(store: Store, run_id: RunId, *, by: str | None, note: str, own_id: str = "") -> None:
    """Have any worker try a run again that is blocked, or whose time has not come."""
    act = act_of(by, note, own_id)
    while True:
        row = await existing(store, run_id)
        if row.owner is not None or row.status.is_final:
            return
        if row.status is Status.queued and row.wake_at is not None and row.wake_at <= now_us():
            return
        accepts = {"accepts": True} if reasons.is_changed_outside(row.reason) else {}
        noted: list[tuple[Kind, str, Any]] = [(Kind.noted, NoteKind.requeued, {**act, **accepts})]
        if reasons.blocked(row.reason).paused:  # it was paused when it was blocked; it is to go on now
            noted.append((Kind.noted, NoteKind.paused, {"on": False, **act}))
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


async def reopen(store: Store, row: RunRow, superseded: Sequence[int], *, by: str, note: str, own_id: str = "") -> bool:
    """Have any worker try a run again that failed or was cancelled; False if it was changed in between.

    `superseded`: the numbers of the outcomes that ended it, which count no more.
    """
    said = {"superseded": list(superseded), "note": note, **way(by), **({"id": own_id} if own_id else {})}
    opened = [(Kind.reopened, by, said)]
    if await amend(store, row, opened, status=Status.queued, reason=None, wake_at=ready_us()) is None:
        return False
    store.ring()
    return True


async def block(store: Store, row: RunRow, found: Diagnosis) -> bool:
    """Keep a run from being executed, whoever has it, until a person acts; False if it was changed in between."""
    reason = Blocked(found, paused=row.status is Status.paused)
    taken = seized(row, await store.dead_workers()) if row.owner is not None else {}
    noted = [(Kind.noted, NoteKind.blocked, {**reasons.summed_up(reason), **taken})]
    changed = await amend(store, row, noted, status=Status.blocked, reason=reason, wake_at=None, seize=bool(taken))
    return changed is not None


async def give_back(store: Store, row: RunRow) -> bool:
    """Have a run go on with whoever has room, which its owner has and does not execute; False: it was changed."""
    if row.status is not Status.running:
        return False
    noted = [(Kind.noted, NoteKind.requeued, {"by": row.owner, "note": "its owner did not execute it"})]
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
    act = act_of(by, note, own_id)
    while True:
        row = await existing(store, run_id)
        if row.status.is_final:
            if row.status is Status.cancelled:  # whoever cancelled it may have died before the rest followed
                await withdraw_questions(store, run_id)
                await _cancel_children(store, run_id, note=note, kill=kill)
            return row.status
        dead = await store.dead_workers() if row.owner is not None else {}
        is_free = row.owner is None or row.owner in dead
        cleans_up = row.owner is not None or reasons.cleans_up(row.reason)
        if not kill and (not is_free or (cleans_up and row.status is not Status.paused)):
            try:
                await send_mail(store, run_id, MailKind.cancel, "", act, dedup=f"{OWN_IDS}cancel:{row.epoch}")
            except Unowned:
                continue
            except RunFinished as finished:
                return Status(finished.status)
            return None
        if not kill and cleans_up:  # paused with something to undo: it goes on, to be cancelled, in one commit
            told = [(Kind.noted, NoteKind.cancel, act)]
            if await amend(
                store, row, told, status=Status.queued, reason=kept(row.reason), wake_at=ready_us(), cancels=True
            ):
                store.ring()
                return None
            continue
        records: list[tuple[Kind, str, dict[str, Any] | None]] = [
            (Kind.noted, NoteKind.cancel, {**act, **seized(row, dead)})
        ]
        if doubts := await _open_effects(store, row):  # nobody is asked about them any more
            records.append((Kind.noted, NoteKind.left_in_doubt, {"effects": doubts}))
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
    children = every_run(store, RunFilter(parent_id=run_id))
    return [row.id async for row in children if not row.status.is_final]
