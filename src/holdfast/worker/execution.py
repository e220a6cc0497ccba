"""One execution of one run: from its claim to its end, its parking, or its loss to another worker."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.base.clock import now_us
from holdfast.base.telemetry import warn
from holdfast.codec import said_by
from holdfast.journal.blobs import Texts
from holdfast.model import Kind, Mail, Record, RunRow
from holdfast.model.budgets import BUDGET
from holdfast.model.diagnoses import Cause
from holdfast.model.reasons import Blocked, HandedOver
from holdfast.running.context import RunContext
from holdfast.running.current import outside
from holdfast.running.raising import is_from_outside
from holdfast.running.scopes import Scope, enter
from holdfast.verbs.agent import Agent
from holdfast.worker.backwards import Pasts, look_back
from holdfast.worker.calling import call_agent
from holdfast.worker.cancelling import Cancelling
from holdfast.worker.endings import Ending, FamilyHost, superseded
from holdfast.worker.interrupts import Interrupts
from holdfast.worker.mailbox import Mailbox
from holdfast.worker.parking import Parking
from holdfast.worker.pausing import Pausing

#: Of a run that has made no call yet.
_UNBEGUN = frozenset({Kind.created, Kind.claimed, Kind.noted})
_ENDING_POLL_S, _BODY_POLL_S = 0.1, 0.01


class WorkerHost(FamilyHost, Protocol):
    """What an execution needs from its process, besides what its run needs."""

    pasts: Pasts


class Execution:
    """Drives a run that this process owns."""

    def __init__(
        self,
        host: WorkerHost,
        agent: Agent[..., Any],
        row: RunRow,
        records: list[Record],
        *,
        blobs: Texts,
        mail: Sequence[Mail] = (),
        claim_note: str | None,
        reopen: tuple[str, str] | None,
        refuse: Blocked | None,
    ) -> None:
        self._host = host
        self._agent = agent
        self._created = records[0]
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.ended: tuple[Any, BaseException | None] = (None, None)  #: what the agent returned or raised
        self.error: BaseException | None = None  #: why this execution ended without deciding the run
        self._waiters: list[asyncio.Future[None]] = []
        self._refuse = refuse
        self._early_mail = mail
        reopening = ""
        if reopen is not None:
            reopening = json.dumps({"superseded": superseded(records), "note": reopen[1]})
            reopened = Record(
                0, row.epoch, row.turn, "", Kind.reopened, reopen[0], 1, 0, now_us(), 0, "", None, reopening, b""
            )
            records = [*records, reopened]
        self.run = run = RunContext(
            host, row, records, blobs=blobs, code=agent._code, on_stop=self._stop, on_wait=self._on_wait
        )
        is_resumed = False
        if claim_note is not None:
            note = json.loads(claim_note)
            is_resumed = not note.get("woken")
            run.journal.add(Kind.claimed, "", row.owner or "", payload=claim_note)
            run.replay.claims.append((row.epoch, now_us(), note["proof"]))
            run.replay.outside.accept(note)
        if reopen is not None:
            run.journal.add(Kind.reopened, "", reopen[0], payload=reopening)
        if agent.budget is not None and BUDGET not in row.summary and all(r.kind in _UNBEGUN for r in records):
            run.limit_spending(agent.budget, {"by": "agent", "note": ""})
        if (cut := row.cut) is not None:
            run.replay.read_mail_up_to(cut.mail)
        self._root = Scope(run, "")
        run.turning.begin(self._root)
        self._cancelling = cancelling = Cancelling(run)
        self._interrupts = interrupts = Interrupts(run, agent)
        pausing = Pausing(run)
        self._mailbox = mailbox = Mailbox(run, cancelling=cancelling, interrupts=interrupts, pausing=pausing)
        self._ending = Ending(
            host,
            agent,
            run,
            row=row,
            is_resumed=is_resumed,
            mailbox=mailbox,
            cancelling=cancelling,
            pausing=pausing,
        )
        self._parking = Parking(
            run,
            ending=self._ending,
            mailbox=mailbox,
            cancelling=cancelling,
            interrupts=interrupts,
            pausing=pausing,
        )

    @property
    def row(self) -> RunRow:
        """As it was claimed, or as this execution has left it."""
        return self._ending.row

    @property
    def outcome(self) -> str | None:
        """How the run ended, as stored."""
        return self._ending.outcome

    @property
    def is_idle(self) -> bool:
        """Does nothing happen here but waiting?"""
        return self._parking.is_idle

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
            warn("run.stopped", run=self.run.id, error=said_by(error))
            await self._ending.give_up(error)
        finally:
            self._parking.close()
            self._cancelling.close()
            self.run.stop()
            on_end()
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._root.created(None)
            self.run.let_go()

    async def _drive(self) -> None:
        run, ending = self.run, self._ending
        if self._refuse is not None or self._stopped.done():
            run.life.leave(self._refuse or run.life.stop_reason)
            await ending.park()
            return
        self._mailbox.begin(self._early_mail)
        while run.gate.paused and run.replay.cancel is None:
            if await ending.park_paused():
                return
            await self._mailbox.read()
        root = self._start()
        error = await self._stopped
        await self._parking.wait()
        if ending.has_left:
            await ending.tear_down()  # parked
        elif run.journal.lost:
            self.error = error
            await look_back(self._host.store, run.journal, self._host.pasts)
            await ending.tear_down()
        elif isinstance(run.life.stop_reason, Blocked) and run.life.stop_reason.found.cause is Cause.cancelled:
            await ending.cancelled(None)
        elif root.done() and run.life.stop_reason is None:
            await self._finish(root)
        else:
            await ending.park()

    def _start(self) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(enter, self._root)
        root = asyncio.Task(self._main_line(), loop=self._loop, context=context)
        self._root.created(root)
        self.run.activity.add(root, self._root)
        self._cancelling.begin(root)
        self._interrupts.begin()
        return root

    async def _main_line(self) -> None:
        """Run the agent. How it ended is kept, and not the task's own end: SystemExit would end the loop."""
        self.run.life.begin()
        try:
            try:
                self.ended = (await call_agent(self.run, self._agent, self._created), None)
            except asyncio.CancelledError as error:
                if self.run.life.dead or self.run.life.cancelled:
                    raise
                self.ended = (None, error)  # nobody told it to stop
            except BaseException as error:
                self.ended = (None, error)
                if is_from_outside(error):
                    raise
            finally:
                # A handler's reply is not cut off by the end of the run.
                while self.run.gate.handlers and not self.run.life.dead:
                    await self.run.gate.pass_(self._root, begins=False)
        finally:
            self.run.life.returned()
            if not self._stopped.done():
                self._stopped.set_result(None)  # heard in the next turn, when this task is done

    def _stop(self, error: BaseException | None) -> None:
        """The run was lost, or cannot go on with this code."""
        self.run.die()
        if not self._stopped.done():
            self._stopped.set_result(error)

    def _on_wait(self) -> None:
        self._parking.look_soon()

    async def _finish(self, root: asyncio.Task[Any]) -> None:
        """The agent has ended. Tasks that outlive it are cancelled, as `asyncio.run` does; effects end first."""
        run = self.run
        run.activity.remove(root)
        run.life.end()
        for task in list(run.activity.tasks):
            task.cancel()
        self._parking.look_soon()  # what goes on may be waiting already
        while run.activity.tasks and not run.life.dead:
            await asyncio.wait(list(run.activity.tasks), timeout=_ENDING_POLL_S)
            await asyncio.sleep(0)
        await self._parking.wait()
        if self._ending.has_left:
            await self._ending.tear_down()  # parked: a branch that cleans up waits for something
        else:
            await self._ending.finish(*self.ended)

    async def hand_over(self, drain_s: float = 0.0) -> None:
        """The process is closing: let another one go on, as soon as no body is under way or `drain_s` have passed.

        A `def` body is waited for in any case; its thread cannot be stopped.
        """
        run, activity = self.run, self.run.activity
        run.gate.drain()
        give_up = self._loop.time() + drain_s
        while run.goes_on and (activity.threads or (activity.is_at_work and self._loop.time() < give_up)):  # noqa: ASYNC110
            await asyncio.sleep(_BODY_POLL_S)
        await self._parking.wait()
        if run.goes_on:
            # An effect that is cut off here may have happened.
            has_cleanup = bool(activity.sagas and activity.intents) or self._cancelling.has_cleanup
            run.life.leave(HandedOver(cleanup=has_cleanup))
            self._stop(None)
        await asyncio.wait({self._task})

    def lose(self) -> None:
        """Somebody else has the run now."""
        if not self.run.journal.lost:
            self.run.journal.oust()
            self._stop(None)

    # mail

    @property
    def seen_mail(self) -> int:
        """The number of the last mail that this execution has seen."""
        return self._mailbox.seen

    def mail_came(self) -> None:
        """There is mail that this execution has not seen."""
        self._mailbox.came()

    def deliver(self, mail: Mail) -> None:
        """Mail for this run was committed by this process: if it is the next one, nobody has to look for it."""
        if mail.number > self._mailbox.seen + 1 or self._root.task is None:
            self._mailbox.came()
        else:
            self._mailbox.take((mail,))

    async def read_mail(self) -> None:
        await self._mailbox.read()
