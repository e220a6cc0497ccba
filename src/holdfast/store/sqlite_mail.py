"""Mail inside a transaction: who gets it, under which number, and what becomes of a run that nobody owns.

However many letters there are, they take a handful of statements: all rows are read at once, the decisions are made
here, and what changed is written at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import HoldfastError, RunNotFound
from holdfast.model import Letter, Mail, QuestionState, RunId, RunRow, Sent, Wake
from holdfast.store import sqlite_rows as rows
from holdfast.store.sqlite_apply import Transaction


class WakeError(Exception):
    """A wake function has a bug. No error of the run or the store, so it is never passed over in silence."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Mail with the conditions under which it is accepted; see `Store.send`."""

    mail: Mail
    wake: Wake
    expected: int | None = None
    decides: tuple[QuestionState, str] | None = None


def deliver(transaction: Transaction, deliveries: Sequence[Delivery], *, again: bool = False) -> list[Sent | Exception]:
    """Accept or refuse each, in order. One that is refused has changed nothing."""
    runs = transaction.runs_of([delivery.mail.run_id for delivery in deliveries])
    known = transaction.known_mail(
        [(each.mail.run_id, each.mail.dedup) for each in deliveries if each.mail.dedup is not None]
    )
    mailbag = _Mailbag(transaction, runs, known)
    outcomes: list[Sent | Exception] = []
    for delivery in deliveries:
        try:
            sent = transaction.find_mail(delivery.mail) if again else None
            outcomes.append(sent or mailbag.accept(delivery))
        except (HoldfastError, WakeError) as refused:
            outcomes.append(refused)
    mailbag.write()
    return outcomes


def tell(transaction: Transaction, *letters: Letter) -> None:
    """Send what goes with an append. A run that is gone or refuses it misses it."""
    for outcome in deliver(transaction, [Delivery(letter.mail, letter.wake) for letter in letters]):
        if isinstance(outcome, Exception) and not isinstance(outcome, HoldfastError):
            raise outcome


class _Mailbag:
    def __init__(
        self,
        transaction: Transaction,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], int],
    ) -> None:
        self._transaction = transaction
        self._runs = runs
        self._known = known
        self._mail: list[rows.Values] = []
        self._counted: set[RunId] = set()
        self._woken: set[RunId] = set()

    def accept(self, delivery: Delivery) -> Sent:
        mail = delivery.mail
        row = self._runs.get(mail.run_id)
        if row is None:
            raise RunNotFound(f"There is no run {mail.run_id} in this store.")
        if mail.dedup is not None and (number := self._known.get((mail.run_id, mail.dedup))) is not None:
            return Sent(number, is_new=False)
        if isinstance(row, HoldfastError):
            raise row
        woken = _wake(delivery.wake, row)
        if delivery.expected is not None and row.mail != delivery.expected:
            return Sent(0, is_new=False)
        if delivery.decides is not None:
            state, shown = delivery.decides
            body = _object(mail.body)
            if not self._transaction.decide_question(
                mail.run_id, mail.key, state, at=mail.at, by=body.get("by"), note=body.get("note") or "", shown=shown
            ):
                return Sent(0, is_new=False)
        number = row.mail + 1
        self._mail.append(rows.mail_parameters(mail, number))
        if mail.dedup is not None:
            self._known[mail.run_id, mail.dedup] = number
        if woken is not None and row.owner is None:
            self._woken.add(row.id)
            row = woken
        self._counted.add(row.id)
        self._runs[row.id] = replace(row, mail=number, owner=None) if row.owner is None else replace(row, mail=number)
        return Sent(number, is_new=True)

    def write(self) -> None:
        counted = [row for run_id in self._counted - self._woken if isinstance(row := self._runs[run_id], RunRow)]
        woken = [row for run_id in self._woken if isinstance(row := self._runs[run_id], RunRow)]
        write = self._transaction.write
        write("insert_mail", self._mail)
        write("count_mail", [(row.id, row.mail) for row in counted])
        write("wake_runs", [rows.wake_parameters(row) for row in woken])


def _wake(wake: Wake, row: RunRow) -> RunRow | None:
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


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
