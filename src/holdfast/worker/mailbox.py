"""The mail of a run that executes here: read from the first number that was not seen, and given to whom it concerns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, assert_never

from holdfast.base import faults
from holdfast.base.telemetry import warn
from holdfast.errors import CorruptJournal, StoreError
from holdfast.journal.integrity import check_mail
from holdfast.model import Mail, MailKind
from holdfast.model.budgets import Budget
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.context import RunContext
from holdfast.running.current import outside
from holdfast.worker.cancelling import Cancelling
from holdfast.worker.interrupts import Interrupts
from holdfast.worker.pausing import Pausing

_SAID = frozenset({"by", "note", "mail"})


class Mailbox:
    """Of one execution."""

    def __init__(self, run: RunContext, *, cancelling: Cancelling, interrupts: Interrupts, pausing: Pausing) -> None:
        self._run = run
        self._cancelling = cancelling
        self._interrupts = interrupts
        self._pausing = pausing
        self._reading: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None

    @property
    def seen(self) -> int:
        """The number of the last mail that was read."""
        return self._run.inbox.seen

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def begin(self, mails: Sequence[Mail]) -> None:
        """Take what was loaded with the run: all that a resume has to know."""
        self.take(mails)
        cut = self._run.journal.row.cut
        if cut is not None:
            self._run.inbox.read_up_to(max(self.seen, cut.mail))
        elif (copied := self._run.copied) is not None:  # a fork goes on behind what the original had
            self._run.inbox.read_up_to(max(self.seen, copied.origin.mail))

    def came(self) -> None:
        """There is mail that this execution has not seen."""
        if self._reading is None and not self._run.life.dead:
            self._reading = asyncio.Task(self._read(), loop=self._run.life.loop, context=outside())

    async def _read(self) -> None:
        run = self._run
        try:
            await self.read()
        except StoreError as error:  # this execution is over, and so is the store
            warn("mail.not_read", run=run.id, error=str(error))
        except CorruptJournal as error:
            run.life.leave(Blocked(Trouble(Cause.mail, detail=str(error))))
            run.life.stop()
        finally:
            self._reading = None

    async def read(self) -> None:
        """Look for mail, and take it."""
        run = self._run
        self.take(await run.patiently(lambda: run.host.store.mail(run.id, after=self.seen)))

    def take(self, mails: Sequence[Mail]) -> None:
        run = self._run
        if run.life.parking or run.life.dead:
            return
        for mail in mails:
            if mail.number <= self.seen:
                continue
            check_mail(mail)
            run.inbox.read_up_to(mail.number)
            if run.replay.is_consumed(mail.number):
                run.inbox.keep_decided(mail)
                continue
            body = {**json.loads(mail.body), "mail": mail.number, "at": mail.at}
            match kind := MailKind.of(mail.kind):
                case MailKind.resolve:
                    run.inbox.resolved(mail.key, body)
                case MailKind.answer:
                    run.inbox.answered(mail.key, body)
                case MailKind.signal:
                    run.inbox.signalled(mail)
                case MailKind.child:
                    run.inbox.child_ended(mail.key)
                case MailKind.cancel:
                    self._cancelling.ask(body)
                case MailKind.pause | MailKind.resume:
                    self._pausing.ask(kind is MailKind.pause, body)
                case MailKind.interrupt:
                    self._interrupts.add(body)
                case MailKind.budget:
                    self._limit(body)
                case MailKind.plan:
                    run.inbox.planned(mail)
                case None:  # a later version sent it
                    pass
                case _:
                    assert_never(kind)

    def _limit(self, body: dict[str, Any]) -> None:
        """Somebody said what the run may use from now on."""
        if (limit := Budget.read(body.get("limit"))) is not None:
            said = {name: value for name, value in body.items() if name in _SAID}
            run = self._run
            run.limit_spending(limit, said)
            self._waking = asyncio.Task(self._wake_family(), loop=run.life.loop, context=outside())

    async def _wake_family(self) -> None:
        """Once it is on disk, those that waited for it go on."""
        run = self._run
        try:
            await run.journal.barrier()
            if not run.journal.lost:
                faults.point("budget.raised")
                await run.host.wake_family(run.id)
        except StoreError as error:
            warn("budget.nobody_woken", run=run.id, error=str(error))
