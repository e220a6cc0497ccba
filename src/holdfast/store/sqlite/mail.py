"""Mail inside a transaction: who gets it, under which number, and what becomes of a run that nobody owns.

However many letters there are, they take a handful of statements: all rows are read at once, the decisions are made
here, and what changed is written at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.model import Known, Letter, Mail, QuestionState, RunId, RunRow, Sent
from holdfast.store import rows
from holdfast.store.carrier import Posted
from holdfast.store.mailing import Delivery, Mailbag, WakeError, decider
from holdfast.store.sqlite.apply import Transaction


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
            if sent is not None:
                transaction.posted.append(Posted(delivery.mail, None))
            outcomes.append(sent or mailbag.accept(delivery))
        except (HoldfastError, WakeError) as refused:
            outcomes.append(refused)
    mailbag.write()
    transaction.posted += mailbag.posted
    return outcomes


def tell(transaction: Transaction, *letters: Letter) -> None:
    """Send what goes with an append. A run that is gone or refuses it misses it."""
    for outcome in deliver(transaction, [Delivery(letter.mail, letter.wake) for letter in letters]):
        if isinstance(outcome, Exception) and not isinstance(outcome, HoldfastError):
            raise outcome


class _Mailbag(Mailbag):
    def __init__(
        self,
        transaction: Transaction,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], Known],
    ) -> None:
        super().__init__(runs, known)
        self._transaction = transaction

    def decide(self, mail: Mail, state: QuestionState, shown: str) -> bool:
        by, note = decider(mail)
        return self._transaction.decide_question(
            mail.run_id, mail.key, state, at=mail.at, by=by, note=note, shown=shown
        )

    def write(self) -> None:
        write = self._transaction.write
        write("insert_mail", self.mail)
        write("count_mail", [(row.id, row.mail) for row in self.counted])
        write("wake_runs", [rows.wake_parameters(row) for row in self.woken])
