"""Mail inside a transaction: who gets it, under which number, and what becomes of a run that nobody owns.

However much mail there is, they take a handful of statements: all rows are read at once, the decisions are made
here, and what changed is written at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.model import Mail, Outgoing, QuestionState, Sent
from holdfast.store import rows
from holdfast.store.carrier import AcceptedMail
from holdfast.store.mailing import MailBatch, WakeError, decider
from holdfast.store.sqlite.apply import Transaction


def accept_mail(
    transaction: Transaction, outgoing: Sequence[Outgoing], *, again: bool = False
) -> list[Sent | Exception]:
    """Accept or refuse each, in order. One that is refused has changed nothing."""
    runs = transaction.runs_of([each.mail.run_id for each in outgoing])
    known = transaction.known_mail(
        [(each.mail.run_id, each.mail.dedup) for each in outgoing if each.mail.dedup is not None]
    )

    def decide(mail: Mail, state: QuestionState, shown: str) -> bool:
        by, note = decider(mail)
        return transaction.decide_question(mail.run_id, mail.key, state, at=mail.at, by=by, note=note, shown=shown)

    batch = MailBatch(runs, known, decide)
    outcomes: list[Sent | Exception] = []
    for each in outgoing:
        try:
            sent = transaction.find_mail(each.mail) if again else None
            if sent is not None:
                transaction.accepted.append(AcceptedMail(each.mail, None))
            outcomes.append(sent or batch.accept(each))
        except (HoldfastError, WakeError) as refused:
            outcomes.append(refused)
    transaction.write("insert_mail", batch.mail)
    transaction.write("count_mail", [(row.id, row.mail) for row in batch.counted])
    transaction.write("wake_runs", [rows.wake_parameters(row) for row in batch.woken])
    for act in batch.acts:
        transaction.add_act(act)
    transaction.accepted += batch.accepted
    return outcomes


def accept_with_appends(transaction: Transaction, outgoing: Sequence[Outgoing]) -> None:
    """Accept what goes with appends. A run that is gone or refuses it misses it."""
    for outcome in accept_mail(transaction, outgoing):
        if isinstance(outcome, Exception) and not isinstance(outcome, HoldfastError):
            raise outcome
