"""Mail inside a transaction: who gets it, under which number, and what becomes of a run that nobody owns.

However many letters there are, they take a handful of statements: all rows are read at once, the decisions are made
here, and what changed is written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import HoldfastError, RunNotFound
from holdfast.model import Letter, RunId, RunRow, Sent
from holdfast.store import rows
from holdfast.store.mailing import Delivery, WakeError, decider, wake_row
from holdfast.store.sqlite_apply import Transaction


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
        woken = wake_row(delivery.wake, row)
        if delivery.expected is not None and row.mail != delivery.expected:
            return Sent(0, is_new=False)
        if delivery.decides is not None:
            state, shown = delivery.decides
            by, note = decider(mail)
            if not self._transaction.decide_question(
                mail.run_id, mail.key, state, at=mail.at, by=by, note=note, shown=shown
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
