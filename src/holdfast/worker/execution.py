"""One execution of one run: from its claim to its end, its parking, or its loss to another worker."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.base import faults
from holdfast.base.clock import now_us, ready_us
from holdfast.base.telemetry import warn
from holdfast.codec import decode_input, encode_error
from holdfast.control import control, letters
from holdfast.errors import CorruptJournal, HoldfastError, StoreError, Undecodable
from holdfast.journal.integrity import check_mail
from holdfast.journal.mismatches import mismatch
from holdfast.journal.stillness import Quiet
from holdfast.model import Applied, Kind, Mail, Record, RunRow, Status
from holdfast.running.context import RunContext
from holdfast.running.host import Host
from holdfast.running.raising import is_from_outside, raised
from holdfast.running.scopes import Scope, enter, outside
from holdfast.verbs.child import Agent
from holdfast.verbs.timer import timeout
from holdfast.worker.asides import Asides
from holdfast.worker.backwards import Pasts, look_back
from holdfast.worker.cancelling import Cancelling
from holdfast.worker.endings import first_line, keys_of, superseded
from holdfast.worker.keeping import Keeping
from holdfast.worker.starting import origin_of

_PARK_GRACE_S = 0.02
SHORT_WAIT_US = 1_000_000  # not worth leaving memory for
_LONGEST_LOOK_S = 1.0
_LOOK_TURNS = 4  # from a callback to what the code does about it
_ENDING_POLL_S, _BODY_POLL_S = 0.1, 0.01
_TEAR_DOWN_S = 5.0


class WorkerHost(Host, Protocol):
    """What an execution needs from its process, besides what its run needs."""

    pasts: Pasts

    async def cancel_children(self, run: RunContext) -> None: ...


class Execution:
    """Drives a run that this process owns."""

    def __init__(
        self,
        host: WorkerHost,
        agent: Agent[..., Any],
        row: RunRow,
        records: list[Record],
        *,
        blobs: dict[str, bytes],
        mail: Sequence[Mail] = (),
        claim_note: str | None,
        reopen: tuple[str, str] | None,
        refuse: dict[str, Any] | None,
    ) -> None:
        self._host = host
        self._agent = agent
        self._records = records
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.row = row
        self.outcome: str | None = None  #: how the run ended, as stored
        self.ended: tuple[Any, BaseException | None] = (None, None)  #: what the agent returned or raised
        self.error: BaseException | None = None  #: why this execution ended without deciding the run
        self._waiters: list[asyncio.Future[None]] = []
        self._refuse = refuse
        self._early_mail = mail
        self.seen_mail = 0
        self._reading: asyncio.Task[None] | None = None
        self._look_later: asyncio.TimerHandle | None = None
        self._looked_at = (-1, 0.0)
        self._parking: asyncio.Task[None] | None = None
        self._has_summed_up = False
        self._pause_note: dict[str, str] = {}
        reopening = ""
        if reopen is not None:
            reopening = json.dumps({"superseded": superseded(records), "note": reopen[1]})
            reopened = Record(
                0, row.epoch, row.generation, "", Kind.reopened, reopen[0], 1, 0, now_us(), 0, "", None, reopening, b""
            )
            records = [*records, reopened]
        self.run = RunContext(
            host, row, records, blobs=blobs, code=agent._code, on_stop=self._stop, on_wait=self._on_wait
        )
        self._root = Scope(self.run, "")
        self._cancelling = Cancelling(self.run)
        self._asides = Asides(self.run, agent)
        self._keeping = Keeping(self.run)
        self._is_resumed = False
        if claim_note is not None:
            note = json.loads(claim_note)
            self._is_resumed = not note.get("woken")
            self.run.journal.add(Kind.claimed, "", row.owner or "", payload=claim_note)
            self.run.replay.claims.append((row.epoch, now_us(), note["proof"]))
        if reopen is not None:
            self.run.journal.add(Kind.reopened, "", reopen[0], payload=reopening)

    async def wait_ended(self) -> None:
        """Return when this execution is over."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def begin(self, on_end: Callable[[], None]) -> None:
        """Execute in the background."""
        self._task = asyncio.Task(self._go(on_end), loop=self._loop, context=outside())

    async def _go(self, on_end: Callable[[], None]) -> None:
        try:
            await self._drive()
            await look_back(self._host.store, self.run.journal, self._host.pasts)
        except Exception as error:  # whoever waits for the run must hear of it
            self.error = error
            warn("run.stopped", run=self.run.id, error=f"{type(error).__name__}: {error}")
            await self._give_up(error)
        finally:
            if self._look_later is not None:
                self._look_later.cancel()
            self._cancelling.close()
            self.run.stop()
            on_end()
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._root.task = None
            self.run.let_go()

    async def _give_up(self, error: Exception) -> None:
        """Something here is wrong, not the run: leave it so that it can be taken up again."""
        why = "handed over" if isinstance(error, StoreError) else "internal error"  # a store will be back
        self.run.stop_reason = {"why": why, "detail": f"{type(error).__name__}: {error}"}
        try:
            if isinstance(error, CorruptJournal):
                warn("run.quarantined", run=self.run.id, error=str(error))
                await self._host.store.quarantine(self.run.id, str(error))
            elif not self.run.journal.lost:
                await self._park()
        except StoreError as again:
            warn("run.not_released", run=self.run.id, error=str(again))

    async def _drive(self) -> None:
        run = self.run
        if self._refuse is not None or self._stopped.done():
            run.stop_reason = self._refuse or run.stop_reason
            await self._park()
            return
        self._take_mail(self._early_mail)
        while run.paused and run.replay.cancel is None:
            if await self._park_paused():
                return
            await self.read_mail()
        context = contextvars.copy_context()
        context.run(enter, self._root)
        root = asyncio.Task(self._main_line(), loop=self._loop, context=context)
        self._root.task = root
        run.tasks[root] = self._root
        run.stillness.loosen(self._root)
        self._cancelling.begin(root)
        self._asides.begin()
        error = await self._stopped
        if self._parking is not None:
            await asyncio.wait({self._parking})
        if self.row.status is not Status.running:
            await self._tear_down()  # parked
        elif run.journal.lost:
            self.error = error
            await look_back(self._host.store, self.run.journal, self._host.pasts)
            await self._tear_down()
        elif run.stop_reason is not None and run.stop_reason["why"] == "cancelled":
            await self._end_cancelled(None)
        elif root.done() and run.stop_reason is None:
            await self._finish(root)
        else:
            await self._park()

    async def _main_line(self) -> None:
        """Run the agent. How it ended is kept, and not the task's own end: SystemExit would end the loop."""
        self.run.ambient = sys.exception()
        try:
            try:
                self.ended = (await self._main(), None)
            except asyncio.CancelledError as error:
                if self.run.dead or self.run.cancelled:
                    raise
                self.ended = (None, error)  # nobody told it to stop
            except BaseException as error:
                self.ended = (None, error)
                if is_from_outside(error):
                    raise
            finally:
                while self.run.asides and not self.run.dead:  # a handler's reply is not cut off by the end of the run
                    await self.run.pass_gate(self._root)
        finally:
            if not self._stopped.done():
                self._stopped.set_result(None)  # heard in the next turn, when this task is done

    async def _main(self) -> Any:
        created = self._records[0]
        try:
            defaults, outside = origin_of(created)
            args, kwargs = decode_input(self._agent.fn, self.run.text(created.args), defaults, outside=outside)
        except Undecodable as error:
            await self.run.block({"why": "input does not fit", "asked": self._agent.name, "detail": str(error)})
            raise
        if self._agent._timeout_s is None:
            return await self._agent.fn(*args, **kwargs)
        async with timeout(self._agent._timeout_s):
            return await self._agent.fn(*args, **kwargs)

    def _stop(self, error: BaseException | None) -> None:
        """The run was lost, or cannot go on with this code."""
        self.run.die()
        if not self._stopped.done():
            self._stopped.set_result(error)

    # how it ends

    async def _finish(self, root: asyncio.Task[Any]) -> None:
        run, journal = self.run, self.run.journal
        await self._end_branches(root)
        if self._parking is not None:
            await asyncio.wait({self._parking})
        if self.row.status is not Status.running:
            await self._tear_down()  # parked: a branch that cleans up waits for something
            return
        if run.stop_reason is not None or journal.lost:
            await self._park()
            return
        value, error = self.ended[0], self.ended[1] or run.forgotten
        if run.replay.cancel is not None:
            await self._end_cancelled(error)
            return
        left = run.without_settled(run.replay.open_intents())
        if left:
            asked = run.replay.attempted.get("", [])
            run.stop_reason = mismatch(asked="the end of the run", where="", recorded=left, attempted=asked)
            await self._park()
            return
        if run.intents:
            effects = ", ".join(sorted(run.intents))
            detail = f"The agent ended, and it is not known what became of {effects}."
            run.stop_reason = {"why": "effects left open", "detail": detail}
            await self._park()
            return
        if error is None:
            await self._end(*self._returned(value))
            return
        journal.summary["now"] = first_line(error)
        await self._end(Status.failed, encode_error(raised(error)), json.dumps(sorted(keys_of(error))))

    async def _end_cancelled(self, error: BaseException | None) -> None:
        """The run was told to stop, and has: whatever it returned, it was cancelled. Its children follow."""
        run = self.run
        if run.journal.lost:
            await self._tear_down()
            return
        await self._host.cancel_children(run)
        await control.withdraw_questions(self._host.store, run.id)
        if error is not None:
            run.journal.summary["now"] = f"cleaning up failed: {first_line(error)}"
        if run.dead:  # its code did not end by itself
            await self._let_effects_end()
        unasked = {entry.key for entry in run.without_settled(run.replay.open_intents()) if entry.intent is not None}
        if left := run.intents | run.left_in_doubt | unasked:
            run.journal.add(Kind.noted, "", "left in doubt", payload=json.dumps({"effects": sorted(left)}))
        await self._end(Status.cancelled, None if error is None else encode_error(raised(error)), None)
        if run.tasks:
            await self._tear_down()

    async def _end(self, status: Status, payload: str | None, keys: str | None) -> None:
        run, journal = self.run, self.run.journal
        self._sum_up()
        if any(entry.name == "hf:ask" and entry.outcome is None for entry in run.replay.entries.values()):
            await control.withdraw_questions(self._host.store, run.id)
        unread = sorted(name for name, waiting in run.signals.items() if waiting)
        if unread:
            journal.add(Kind.noted, "", "unread", payload=json.dumps({"signals": unread}))
        for shown in ("progress", "cancelling", "held"):
            journal.summary.pop(shown, None)
        journal.add(Kind.finished, "", status, payload=payload, args=keys, soon=False)
        faults.point("finish.before")
        tell = None
        if self.row.parent_id is not None:
            tell = letters.child_ended(self.row.parent_id, run.id, status)
        if await journal.finish(status, tell=tell, inline=run.host.is_alone):
            self.row, self.outcome = journal.row, payload
        faults.point("finish.after")

    def _returned(self, value: Any) -> tuple[Status, str | None, str | None]:
        try:
            payload = self._agent.coder.dumps(value, what=f"the result of {self._agent.name}")
            self.run.journal.check_size(payload, f"the result of {self._agent.name}")
            return Status.done, payload, None
        except HoldfastError as error:
            return Status.failed, encode_error(error), "[]"

    async def _end_branches(self, root: asyncio.Task[Any]) -> None:
        """Tasks that outlive the agent are cancelled, as `asyncio.run` does; effects among them end first."""
        self.run.tasks.pop(root, None)
        self.run.ending = True
        for task in list(self.run.tasks):
            task.cancel()
        self._on_wait()  # what goes on may be waiting already
        while self.run.tasks and not self.run.dead:
            await asyncio.wait(list(self.run.tasks), timeout=_ENDING_POLL_S)
            await asyncio.sleep(0)

    async def _park(self) -> None:
        """Something keeps the run from going on here: write what is known, give it up, and leave memory."""
        run = self.run
        run.die()
        run.parking = True
        await self._let_effects_end()
        self._sum_up()
        reason = run.stop_reason or {"why": "lost"}
        status = Status.queued if reason["why"] == "handed over" else Status.blocked
        if run.paused and status is Status.blocked:
            reason["paused"] = True
        if status is Status.blocked:
            is_given_up = await self._block({**reason, "source": self._agent._source, "executed": run.receipt.executed})
        else:
            is_given_up = run.paused and await self._park_paused()
        if not is_given_up and await run.journal.finish(Status.queued, reason, wake_at=ready_us()):
            self.row = run.journal.row
        await self._tear_down()

    async def _block(self, reason: dict[str, Any]) -> bool:
        """Give a run up that needs a fix; False: a verdict has come meanwhile, which has it tried again."""
        journal, seen = self.run.journal, self.seen_mail
        while True:
            applied = await journal.park(Status.blocked, reason, wake_at=None, mail=seen, drops_open=True)
            if applied is not Applied.unread:
                if applied is Applied.committed:
                    self.row = journal.row
                return True
            more = await self._host.store.mail(self.run.id, after=seen)
            if any(mail.kind == "resolve" for mail in more):
                return False
            seen = max((mail.number for mail in more), default=seen)

    async def _park_paused(self) -> bool:
        """Give a run up that was paused, and is not to go on before somebody says so; False: there is mail to read."""
        run = self.run
        if run.replay.cancel is not None:
            return False
        reason = {"why": "paused", "was": Status.queued, "mail": self.seen_mail, "cleanup": self._has_cleanup}
        applied = await run.journal.park(
            Status.paused, {**reason, **self._pause_note}, wake_at=None, mail=self.seen_mail
        )
        if applied is Applied.committed:
            self.row = run.journal.row
        return applied is not Applied.unread

    async def _let_effects_end(self) -> None:
        """An effect under way is not cut off, if it ends soon."""
        give_up = self._loop.time() + self._host.settings.drain_s
        while self.run.acting and self._loop.time() < give_up:  # noqa: ASYNC110 - seldom, and short
            await asyncio.sleep(_BODY_POLL_S)
        while self.run.ticks.has_ready:
            self.run.ticks.deliver_ready()  # recorded, though nobody will act on it here

    def _sum_up(self) -> None:
        """Note what this execution did not have to do again, if the journal had anything to answer."""
        if self._is_resumed and not self._has_summed_up:
            self._has_summed_up = True
            if not self.run.replay.has_answers:
                return
            self.run.journal.add(Kind.noted, "", "resumed", payload=self.run.receipt.text, soon=False)

    async def _tear_down(self) -> None:
        tasks = set(self.run.tasks)
        self.run.stop()
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=_TEAR_DOWN_S)
        for task in tasks - pending:
            if not task.cancelled():
                task.exception()
        if pending:
            warn("run.branches_linger", run=self.run.id, tasks=len(pending))
            for task in pending:  # its code does not let itself be ended; at least the process shall not wait for it
                asyncio.tasks._unregister_task(task)

    async def hand_over(self, drain_s: float = 0.0) -> None:
        """The process is closing: let another one go on, as soon as no body is under way or `drain_s` have passed.

        A `def` body is waited for in any case; its thread cannot be stopped.
        """
        run = self.run
        run.draining = True
        run.shut_gate()
        give_up = self._loop.time() + drain_s
        while self._goes_on and (run.threads or (run.bodies and self._loop.time() < give_up)):  # noqa: ASYNC110
            await asyncio.sleep(_BODY_POLL_S)
        if self._parking is not None:
            await asyncio.wait({self._parking})
        if self._goes_on:
            # An effect that is cut off here may have happened.
            run.stop_reason = {"why": "handed over", "cleanup": bool(run.sagas and run.intents) or self._has_cleanup}
            self._stop(None)
        await asyncio.wait({self._task})

    @property
    def _goes_on(self) -> bool:
        """Does code of the run still execute: the agent, or branches that clean up after its end?"""
        return not self._stopped.done() or (self.run.ending and bool(self.run.tasks) and not self.run.dead)

    def lose(self) -> None:
        """Somebody else has the run now."""
        if not self.run.journal.lost:
            self.run.journal.oust()
            self._stop(None)

    # waiting without a process

    @property
    def is_idle(self) -> bool:
        """Does nothing happen here but waiting?"""
        run = self.run
        if run.bodies or run.ticks.has_work or self._reading or self._asides.has_news or self._cancelling.is_under_way:
            return False
        return run.is_waiting and run.quiet() is not Quiet.busy

    def _on_wait(self) -> None:
        if (later := self._look_later) is not None and later.when() > self._loop.time() + _PARK_GRACE_S:
            later.cancel()  # it was going to look without haste
            later = None
        if later is None and self._goes_on:
            self._looked_at = (self.run.ticks.activity, self._loop.time())
            self._look_in(_PARK_GRACE_S)

    def _look_in(self, delay_s: float) -> None:
        due = self._loop.time() + delay_s
        self._look_later = self._loop.call_at(due, self._look, due)

    def _look(self, due: float, turns: int = _LOOK_TURNS) -> None:
        """Leave memory, if nothing happened for a while and nothing is about to.

        A timer of the code's own may have been due in the same turn of the loop: what it sets off comes first.
        """
        if turns:
            self._loop.call_soon(self._look, due, turns - 1)
            return
        self._look_later = None
        run = self.run
        if run.dead or self._parking is not None or self._root.task is None or not (run.waits or run.paused):
            return
        if run.ticks.activity != self._looked_at[0] or not self.is_idle:
            self._on_wait()
            return
        idle_s = self._loop.time() - self._looked_at[1]
        if not self._keeping.is_kept(due, idle_s):
            wake_at = run.next_due_us()
            if run.paused or wake_at is None or wake_at - now_us() > SHORT_WAIT_US:
                run.parking = run.ticks.stopped = True  # from here on nothing arrives, and nothing expires
                self._keeping.leaves()
                self._parking = asyncio.Task(self._park_waiting(), loop=self._loop, context=outside())
                return
        self._look_in(min(max(_PARK_GRACE_S, idle_s / 4), _LONGEST_LOOK_S))

    async def _park_waiting(self) -> None:
        """Give the run up until what it waits for comes, unless it has come already."""
        run = self.run
        self._sum_up()
        status, reason, wake_at = self._why_waiting()
        faults.point("park.before")
        try:
            applied = await run.journal.park(status, reason, wake_at=wake_at, mail=self.seen_mail)
        except StoreError as error:
            self._stop(error)
            return
        finally:
            self._parking = None
        faults.point("park.after")
        if applied is Applied.committed:
            self.row = run.journal.row
            self._stop(None)
        elif applied is Applied.unread and not run.dead:  # whether or not the agent has ended
            run.thaw()
            self.mail_came()
            self._on_wait()

    @property
    def _has_cleanup(self) -> bool:
        """Is there something to undo, should the run be cancelled? While its past is not replayed, there may be."""
        replay = self.run.replay
        if replay.cancel is not None:
            return True  # that is what it is doing
        is_known = self._root.task is not None and not replay.has_unclaimed
        may_have = not is_known and any(entry.is_effect for entry in replay.entries.values())
        return may_have or any(saga.keys for saga in self.run.sagas)

    def _why_waiting(self) -> tuple[Status, dict[str, Any], int | None]:
        """The status, what is waited for, and when to wake up at the latest."""
        run = self.run
        waits = [
            {"kind": wait.kind, "key": wait.key, "due": wait.due_us, **wait.shown}
            for wait in sorted(run.waits.values(), key=lambda each: each.key)
        ]
        due = run.next_due_us()
        why = letters.why_waiting(waits)
        status = {"doubt": Status.in_doubt, "timer": Status.sleeping}.get(why, Status.waiting)
        reason: dict[str, Any] = {
            "why": "in doubt" if why == "doubt" else why,
            "waits": waits,
            "due": due,
            "mail": self.seen_mail,
            "cleanup": self._has_cleanup,
        }
        if run.paused:
            is_idle = run.waits and not run.kept_back and not self._keeping.has_own
            was = status if is_idle else Status.queued
            return Status.paused, {**reason, "why": "paused", "was": was, "wake_at": due, **self._pause_note}, None
        if run.kept_back and run.draining:  # not everything waits: a call could go on, elsewhere
            return Status.queued, {"why": "handed over", "cleanup": self._has_cleanup}, ready_us()
        return status, reason, due

    # what comes from outside

    def mail_came(self) -> None:
        """There is mail that this execution has not seen."""
        if self._reading is None and not self.run.dead:
            self._reading = asyncio.Task(self._read(), loop=self._loop, context=outside())

    def deliver(self, mail: Mail) -> None:
        """Mail for this run was committed by this process: if it is the next one, nobody has to look for it."""
        if mail.number > self.seen_mail + 1 or self._root.task is None:
            self.mail_came()
        else:
            self._take_mail((mail,))

    async def _read(self) -> None:
        try:
            await self.read_mail()
        except StoreError as error:  # this execution is over, and so is the store
            warn("mail.not_read", run=self.run.id, error=str(error))
        except CorruptJournal as error:
            self.run.stop_reason = {"why": "mail unreadable", "detail": str(error)}
            self._stop(None)
        finally:
            self._reading = None

    async def read_mail(self) -> None:
        self._take_mail(await self.run.patiently(lambda: self._host.store.mail(self.run.id, after=self.seen_mail)))

    def _take_mail(self, mails: Sequence[Mail]) -> None:
        run = self.run
        if run.parking or run.dead:
            return
        for mail in mails:
            if mail.number <= self.seen_mail:
                continue
            check_mail(mail)
            self.seen_mail = mail.number
            if mail.number in run.replay.consumed_mail:
                run.decided_signals[mail.number] = mail
                continue
            body = {**json.loads(mail.body), "mail": mail.number, "at": mail.at}
            match mail.kind:
                case "resolve":
                    run.settle_by(mail.key, body)
                case "answer":
                    run.answer_by(mail.key, body)
                case "signal":
                    run.signal(mail)
                case "child":
                    run.child_ended(mail.key)
                case "cancel":
                    self._cancelling.ask(body)
                case "pause" | "resume":
                    self._set_paused(mail.kind == "pause", body)
                case "interrupt":
                    self._asides.add(body)

    def _set_paused(self, on: bool, body: dict[str, Any]) -> None:
        """At the next durable boundary the run stops, and its timers with it; or it goes on."""
        run = self.run
        note = {"on": on, "by": body["by"], "note": body["note"], "mail": body["mail"]}
        if run.replay.cancel is not None:  # it can only end: nothing holds up its clean-up
            run.journal.add(Kind.noted, "", "unheeded", payload=json.dumps(note))
            return
        run.journal.add(Kind.noted, "", "paused", payload=json.dumps(note))
        run.paused = on
        self._pause_note = {"by": body["by"], "note": body["note"]}
        if on:
            run.shut_gate()
            self._on_wait()
        else:
            run.open_gate()
