"""How an execution ends, and what that leaves: the run's own end, its cancellation, or its being given up."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from holdfast.base import faults
from holdfast.base.clock import ready_us
from holdfast.base.telemetry import warn
from holdfast.codec import encode_error, said_by
from holdfast.control import lifecycle
from holdfast.control.mail import child_ended
from holdfast.control.questions import withdraw_questions
from holdfast.errors import CorruptJournal, HoldfastError, StoreError, UsageError
from holdfast.journal.mismatches import mismatch
from holdfast.journal.replay import undo_key
from holdfast.model import Applied, Kind, MailKind, NoteKind, Record, RunId, RunRow, Status
from holdfast.model.diagnoses import Cause, OverBudget, Trouble
from holdfast.model.reasons import Blocked, HandedOver, Paused, Tried
from holdfast.running.context import RunContext
from holdfast.running.forgotten import told_of_returned
from holdfast.running.host import Host, Parent
from holdfast.running.leftovers import without_settled
from holdfast.running.raising import raised
from holdfast.verbs.agent import Agent
from holdfast.worker.cancelling import CANCEL, Cancelling
from holdfast.worker.mailbox import Mailbox
from holdfast.worker.pausing import Pausing

_BODY_POLL_S = 0.01
#: Mail that may let a blocked run go on.
_MENDING = frozenset({MailKind.resolve, MailKind.budget})
_TEAR_DOWN_S = 5.0


class FamilyHost(Host, Protocol):
    """What the end of a run needs from its process, besides what its run needs."""

    async def cancel_children(self, run: Parent) -> None: ...


class Ending:
    """Of one execution."""

    def __init__(
        self,
        host: FamilyHost,
        agent: Agent[..., Any],
        run: RunContext,
        *,
        row: RunRow,
        is_resumed: bool,
        mailbox: Mailbox,
        cancelling: Cancelling,
        pausing: Pausing,
    ) -> None:
        self._host = host
        self._agent = agent
        self._run = run
        self._mailbox = mailbox
        self._cancelling = cancelling
        self._pausing = pausing
        self._is_resumed = is_resumed
        self._has_summed_up = False
        self.row = row  #: as it was claimed, or as this execution has left it
        self.outcome: str | None = None  #: how the run ended, as stored

    @property
    def has_left(self) -> bool:
        """Was the run given up, or ended?"""
        return self.row.status is not Status.running

    def committed(self) -> None:
        """Its new status is on disk."""
        self.row = self._run.journal.row

    def sum_up(self) -> None:
        """Note what this execution did not have to do again, if the journal had anything to answer."""
        run = self._run
        if self._is_resumed and not self._has_summed_up:
            self._has_summed_up = True
            if run.replay.has_answers or run.receipt.replayed:
                run.journal.add(
                    Kind.noted, "", NoteKind.resumed, payload=run.receipt.text(run.activity.executed), soon=False
                )

    # the run is over

    async def finish(self, value: Any, error: BaseException | None) -> None:
        """The agent returned `value` or raised `error`, and none of its branches is left."""
        run, journal = self._run, self._run.journal
        if run.life.stop_reason is not None or journal.lost:
            await self.park()
            return
        error = error or run.life.forgotten
        if run.replay.cancel is not None:
            await self.cancelled(error)
            return
        left = without_settled(run, run.replay.open_intents())
        if left:
            asked = run.replay.attempted.get("", [])
            run.life.leave(mismatch(asked="the end of the run", where="", recorded=left, attempted=asked))
            await self.park()
            return
        if run.replay.is_closed and error is None:
            asked = run.replay.attempted.get("", [])
            detail = f"The run is in turn {run.replay.turn} of its loop, and the code has ended without coming to it."
            run.life.leave(mismatch(asked="the end of the run", where="", recorded=[], attempted=asked, detail=detail))
            await self.park()
            return
        if run.activity.intents:
            effects = ", ".join(sorted(run.activity.intents))
            detail = f"The agent ended, and it is not known what became of {effects}."
            run.life.leave(Blocked(Trouble(Cause.open_effects, detail=detail)))
            await self.park()
            return
        if error is None:
            await self._end(*self._returned(value))
            return
        journal.summary["now"] = first_line(error)
        await self._end(Status.failed, encode_error(raised(error)), json.dumps(sorted(keys_of(error))))

    async def cancelled(self, error: BaseException | None) -> None:
        """The run was told to stop, and has: whatever it returned, it was cancelled. Its children follow."""
        run = self._run
        if run.journal.lost:
            await self.tear_down()
            return
        await self._host.cancel_children(run)
        await withdraw_questions(self._host.store, run.id)
        if error is not None:
            run.journal.summary["now"] = f"cleaning up failed: {first_line(error)}"
        if run.life.dead:  # its code did not end by itself
            await self._let_effects_end()
        unasked = {entry.key for entry in without_settled(run, run.replay.open_intents()) if entry.intent is not None}
        if left := run.activity.intents | run.activity.left_in_doubt | unasked:
            run.journal.add(Kind.noted, "", NoteKind.left_in_doubt, payload=json.dumps({"effects": sorted(left)}))
        await self._end(Status.cancelled, None if error is None else encode_error(raised(error)), None)
        if run.activity.tasks:
            await self.tear_down()

    def _returned(self, value: Any) -> tuple[Status, str | None, str | None]:
        try:
            payload = self._agent.coder.dumps(value, what=f"the result of {self._agent.name}")
            self._run.journal.check_size(payload, f"the result of {self._agent.name}")
            return Status.done, payload, None
        except HoldfastError as error:
            forgotten = told_of_returned(self._run.id, value, self._agent.fn)
            return Status.failed, encode_error(UsageError(forgotten) if forgotten else error), "[]"

    async def _end(self, status: Status, payload: str | None, keys: str | None) -> None:
        run, journal = self._run, self._run.journal
        self.sum_up()
        if any(entry.name == "hf:ask" and entry.outcome is None for entry in run.replay.entries.values()):
            await withdraw_questions(self._host.store, run.id)
        if unread := run.inbox.unread:
            journal.add(Kind.noted, "", NoteKind.unread, payload=json.dumps({"signals": unread}))
        for shown in ("progress", "cancelling", "held"):
            journal.summary.pop(shown, None)
        journal.add(Kind.finished, "", status, payload=payload, args=keys, soon=False)
        faults.point("finish.before")
        outgoing = None
        if self.row.parent_id is not None:
            outgoing = child_ended(self.row.parent_id, run.id, status)
        if await journal.finish(status, outgoing=outgoing, inline=run.host.is_alone):
            self.outcome = payload
            self.committed()
        faults.point("finish.after")

    # the run is given up here

    async def give_up(self, error: Exception) -> None:
        """Something here is wrong, not the run: leave it so that it can be taken up again."""
        run = self._run
        detail = said_by(error)
        is_away = isinstance(error, StoreError)  # a store will be back
        run.life.leave(HandedOver(detail=detail) if is_away else Blocked(Trouble(Cause.internal, detail=detail)))
        try:
            if isinstance(error, CorruptJournal):
                warn("run.quarantined", run=run.id, error=str(error))
                await self._host.store.quarantine(run.id, str(error))
            elif not run.journal.lost:
                await self.park()
        except StoreError as again:
            warn("run.not_released", run=run.id, error=str(again))

    async def park(self) -> None:
        """Something keeps the run from going on here: write what is known, give it up, and leave memory."""
        run = self._run
        run.die()
        run.freeze()
        await self._let_effects_end()
        self.sum_up()
        reason = run.life.stop_reason or Blocked(Trouble(Cause.lost))
        if isinstance(reason, Blocked):
            reason = Blocked(reason.found, run.gate.paused)
            tried = Tried(self._agent._source, run.activity.executed)
            is_given_up = await self._block(Blocked(reason.found, run.gate.paused, tried))
            if is_given_up and isinstance(reason.found, OverBudget):
                await self._look_again(reason.found)
        else:
            is_given_up = run.gate.paused and await self.park_paused()
        if not is_given_up and await run.journal.finish(Status.queued, reason, wake_at=ready_us()):
            self.committed()
        await self.tear_down()

    async def _block(self, reason: Blocked) -> bool:
        """Give a run up that needs a fix; False: what may be one has come meanwhile, and it is tried again."""
        journal, seen = self._run.journal, self._mailbox.seen
        while True:
            applied = await journal.park(Status.blocked, reason, wake_at=None, mail=seen, drops_open=True)
            if applied is not Applied.unread:
                if applied is Applied.committed:
                    self.committed()
                return True
            more = await self._host.store.mail(self._run.id, after=seen)
            if any(mail.kind in _MENDING for mail in more):
                return False
            seen = max((mail.number for mail in more), default=seen)

    async def _look_again(self, found: OverBudget) -> None:
        """Was the budget of a run that this one came of raised just before it was blocked? Nobody else wakes it up."""
        store, run_id = self._host.store, self._run.id
        if self.has_left and found.owner != run_id:
            limit = (await store.family_use(RunId(found.owner), run_id)).limit
            if limit is None or getattr(limit, found.what, None) != found.limit:
                await lifecycle.requeue(store, run_id, by=f"run {found.owner}", note="budget raised")

    async def park_paused(self) -> bool:
        """Give a run up that was paused, and is not to go on before somebody says so; False: there is mail to read."""
        run, seen = self._run, self._mailbox.seen
        if run.replay.cancel is not None:
            return False
        has_cleanup = self._cancelling.has_cleanup
        reason = Paused(Status.queued, *self._pausing.told_by, mail=seen, cleanup=has_cleanup)
        applied = await run.journal.park(Status.paused, reason, wake_at=None, mail=seen)
        if applied is Applied.committed:
            self.committed()
        return applied is not Applied.unread

    # its code is over

    async def _let_effects_end(self) -> None:
        """An effect under way is not cut off, if it ends soon."""
        run = self._run
        give_up = run.life.loop.time() + self._host.settings.drain_s
        while run.activity.acting and run.life.loop.time() < give_up:  # noqa: ASYNC110 - seldom, and short
            await asyncio.sleep(_BODY_POLL_S)
        while run.ticks.has_ready:
            run.ticks.deliver_ready()  # recorded, though nobody will act on it here

    async def tear_down(self) -> None:
        """End what is left of it, whatever it does."""
        run = self._run
        tasks = set(run.activity.tasks)
        run.stop()
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=_TEAR_DOWN_S)
        for task in tasks - pending:
            if not task.cancelled():
                task.exception()
        if pending:
            warn("run.branches_linger", run=run.id, tasks=len(pending))
            for task in pending:  # its code does not let itself be ended; at least the process shall not wait for it
                asyncio.tasks._unregister_task(task)


# what ended a run: which calls failed, and what a retry does anew


def first_line(error: BaseException | None) -> str:
    """What a person sees of it first."""
    return "" if error is None else said_by(error).partition("\n")[0][:200]


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
