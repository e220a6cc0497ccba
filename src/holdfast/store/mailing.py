"""Mail and the conditions under which a run gets it: what a store decides before it writes, the same in every store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.errors import HoldfastError, RunNotFound
from holdfast.model import Act, KnownMail, Mail, Outgoing, QuestionState, RunId, RunRow, Sent, Wake
from holdfast.store import rows
from holdfast.store.carrier import AcceptedMail


class WakeError(Exception):
    """A wake function has a bug. No error of the run or the store, so it is never passed over in silence."""


def wake_row(wake: Wake, row: RunRow) -> RunRow | None:
    """What a wake function makes of a run; None if it leaves it, or if somebody owns it."""
    try:
        woken = wake(row)
    except HoldfastError:
        raise
    except Exception as error:
        raise WakeError(f"what mail does to run {row.id} could not be decided: {error!r}") from error
    if woken is None or row.owner is not None:
        return None
    unchanged = (row.id, row.epoch, row.head_seq, row.head_hash)
    if (woken.id, woken.epoch, woken.head_seq, woken.head_hash) != unchanged:
        raise WakeError(f"mail must not change the epoch or the head of run {row.id}")
    return woken


def decider(mail: Mail) -> tuple[str | None, str]:
    """Who answers a question with this mail, and the note."""
    try:
        value: Any = json.loads(mail.body)
    except ValueError:
        value = None
    body = value if isinstance(value, dict) else {}
    return body.get("by"), body.get("note") or ""


class MailBatch:
    """The runs that mail comes for, as they are in one transaction, and what of them is to be written."""

    def __init__(
        self,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], KnownMail],
        decide: Callable[[Mail, QuestionState, str], bool],
    ) -> None:
        self._runs = runs
        self._known = known  # by dedup id
        self._decide = decide  # the question that mail is for, if it is open and shows that
        self._counted: set[RunId] = set()
        self._woken: set[RunId] = set()
        self.mail: list[rows.Values] = []  #: to be inserted
        self.accepted: list[AcceptedMail] = []  #: the same, and who had the runs
        self.acts: list[Act] = []  #: what people did with it

    def accept(self, outgoing: Outgoing) -> Sent:
        """Accept mail; raises why it is refused. What is refused has changed nothing."""
        mail = outgoing.mail
        row = self._runs.get(mail.run_id)
        if row is None:
            raise RunNotFound(f"There is no run {mail.run_id} in this store.")
        if mail.dedup is not None and (known := self._known.get((mail.run_id, mail.dedup))) is not None:
            return Sent(known.number, is_new=False, known=known)
        if isinstance(row, HoldfastError):
            raise row
        woken = wake_row(outgoing.wake, row)
        if outgoing.expected is not None and row.mail != outgoing.expected:
            return Sent(0, is_new=False)
        if outgoing.decides is not None and not self._decide(mail, *outgoing.decides):
            return Sent(0, is_new=False)
        number = row.mail + 1
        self.mail.append(rows.mail_parameters(mail, number))
        self.accepted.append(AcceptedMail(replace(mail, number=number), row.owner))
        if outgoing.act is not None:
            self.acts.append(outgoing.act)
        if mail.dedup is not None:
            self._known[mail.run_id, mail.dedup] = KnownMail(number, mail.kind, mail.key, mail.body)
        if woken is not None and row.owner is None:
            self._woken.add(row.id)
            row = woken
        self._counted.add(row.id)
        self._runs[row.id] = replace(row, mail=number, owner=None) if row.owner is None else replace(row, mail=number)
        return Sent(number, is_new=True)

    @property
    def counted(self) -> list[RunRow]:
        """Runs of which only the number of the last mail changes."""
        return [row for run_id in self._counted - self._woken if isinstance(row := self._runs[run_id], RunRow)]

    @property
    def woken(self) -> list[RunRow]:
        """Runs that get a new row."""
        return [row for run_id in self._woken if isinstance(row := self._runs[run_id], RunRow)]
