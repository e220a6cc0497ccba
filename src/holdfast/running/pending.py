"""A call that the code once cancelled, made again on replay.

It stays pending, never started, until the code cancels it again. What led to the cancellation stands in the journal
before it; so once all of that was delivered and the code has nothing to do, it has cancelled the call, or it will not:
it was changed in a way that its digest does not tell, or the run was opened again and what failed does not fail now.
Then the call is made, if it is safe to be. Two things are waited for besides: what the code waits for by itself (a
timer or something outside may lead to the cancellation, as it did), for as long as the call took then and some
patience; and for a child, whose run was really cancelled, whatever changed code does before it comes to that point.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from holdfast.base.telemetry import warn
from holdfast.journal.mismatches import mismatch
from holdfast.journal.replay import PATIENCE_S
from holdfast.journal.stillness import Quiet
from holdfast.model import Kind, NoteKind, Record
from holdfast.running.scopes import Scope, where

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext


async def until_cancelled(scope: Scope, entry: Entry) -> None:
    """Hold a call that the code once cancelled until the code cancels it again; return if it is to be made.

    Changed code may no longer cancel it: then it is made at once, unless it is a child.
    """
    run = scope.run
    if entry.code != run.replay.code and entry.child is None:
        return
    given_up: asyncio.Future[None] = run.life.loop.create_future()

    def give_up() -> None:
        if not given_up.done():
            given_up.set_result(None)

    scope.enter_call()
    run.ticks.await_cancel(entry, partial(_overdue, run), give_up)
    try:
        await given_up
    finally:
        scope.leave_call()
        run.ticks.cancelled(entry)
    assert entry.outcome is not None
    run.journal.add(Kind.noted, entry.key, NoteKind.not_cancelled, payload=json.dumps({"took": entry.outcome.took}))
    warn("run.not_cancelled_again", run=run.id, call=entry.key, where=where(scope))


async def block_child(scope: Scope, entry: Entry) -> None:
    """The code waits for a child that it had cancelled: its run was cancelled, and there is nothing to wait for."""
    run = scope.run
    attempted = run.replay.attempted.get(scope.path, [])
    detail = f"The code cancelled {entry.child} before, and now waits for it."
    await run.block(mismatch(asked=entry.key, where=where(scope), recorded=[entry], attempted=attempted, detail=detail))


def _overdue(run: RunContext, made: Mapping[Entry, float], as_of: float) -> set[Entry]:
    """The calls that nothing is left to cancel."""
    if run.life.dead or run.life.parking or run.gate.cancelling:
        return set()
    is_itself = run.activity.quiet() is not Quiet.settled or bool(run.activity.own_timers.pending(as_of))
    now = run.life.loop.time()
    found = set()
    for entry, since in made.items():
        outcome = entry.outcome
        if outcome is None or not run.ticks.has_delivered(outcome.tick):
            continue
        if is_itself and now < since + outcome.took / 1_000_000 + PATIENCE_S:
            continue
        if entry.code == run.replay.code or not _may_lead_there(run, outcome):
            found.add(entry)
    return found


def _may_lead_there(run: RunContext, cancelled: Record) -> bool:
    """Is something under way that was not yet when the call was cancelled, and that changed code may do before it?"""
    entries = run.replay.entries
    return run.activity.is_at_work or any(
        key not in entries or entries[key].seq > cancelled.seq for key in run.waits.under_way
    )
