"""How the writer applies a batch of writes in one transaction: from the fastest way to the surest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from holdfast.model import Applied, Outgoing
from holdfast.store.carrier import AcceptedMail
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.errors import SYSTEMIC, as_store_error
from holdfast.store.sqlite.mail import accept_mail, accept_with_appends
from holdfast.store.sqlite.ops import AppendOp, CreateOp, Op, Outcomes, SendOp


class Way(IntEnum):
    """How a batch is applied, from the fastest way to the surest."""

    quick = 0  #: as if everything matched
    sorted = 1  #: what does not match is found out first, and taken one by one
    careful = 2  #: each under a savepoint of its own


class _Mismatch(Exception):
    """What was assumed to match does not."""


def apply(transaction: Transaction, ops: Sequence[Op], *, way: Way, again: bool, path: str) -> Outcomes | None:
    """What becomes of each. None: this way does not do, and everything must be rolled back."""
    if way is Way.careful:
        return _carefully(transaction, ops, again=again, path=path)
    return _together(transaction, ops, is_sorted=way is Way.sorted, path=path)


def _together(transaction: Transaction, ops: Sequence[Op], *, is_sorted: bool, path: str) -> Outcomes | None:
    """All of a kind with a few statements. New runs first and mail last: nobody can tell, it is one commit."""
    outcomes: dict[Op, Any] = {}
    outgoing: list[Outgoing] = []
    round_: dict[str, AppendOp] = {}
    try:
        _create(transaction, [op for op in ops if isinstance(op, CreateOp)], outcomes, is_sorted=is_sorted)
        for op in ops:
            if isinstance(op, CreateOp | SendOp):
                continue
            if not isinstance(op, AppendOp) or op.append.row.id in round_:
                outgoing += _append(transaction, list(round_.values()), outcomes, is_sorted=is_sorted)
                round_ = {}
            if isinstance(op, AppendOp):
                round_[op.append.row.id] = op
            else:
                outcomes[op] = op.work(transaction, False)
        outgoing += _append(transaction, list(round_.values()), outcomes, is_sorted=is_sorted)
        if outgoing:
            accept_with_appends(transaction, outgoing)
        sends = [op for op in ops if isinstance(op, SendOp)]
        if sends:
            for op, sent in zip(sends, accept_mail(transaction, [op.outgoing for op in sends]), strict=True):
                outcomes[op] = as_store_error(sent, path) if isinstance(sent, Exception) else sent
    except SYSTEMIC:
        raise
    except Exception:
        return None  # one of them is at fault; the next way finds out which
    return [(op, outcomes[op]) for op in ops]


def _create(transaction: Transaction, ops: list[CreateOp], outcomes: dict[Op, Any], *, is_sorted: bool) -> None:
    existing = transaction.existing(op.append.row.id for op in ops) if is_sorted else set()
    new = [op for op in ops if op.append.row.id not in existing]
    if new and not transaction.create_all([(op.append, op.owner) for op in new]):
        raise _Mismatch
    for op in ops:
        is_new = op.append.row.id not in existing
        outcomes[op] = replace(op.append.row, owner=op.owner) if is_new else op.work(transaction, False)


def _append(
    transaction: Transaction, ops: list[AppendOp], outcomes: dict[Op, Any], *, is_sorted: bool
) -> list[Outgoing]:
    """Appends of different runs; the mail that goes with those that were applied."""
    if not ops:
        return []
    matching = transaction.appendable([op.append for op in ops]) if is_sorted else None
    fitting = ops if matching is None else [op for op in ops if op.append.row.id in matching]
    if fitting and not transaction.append_all([op.append for op in fitting]):
        raise _Mismatch
    outcomes |= dict.fromkeys(fitting, Applied.committed)
    for op in ops:
        if op not in outcomes:
            outcomes[op], _ = transaction.append_one(op.append, again=False)
    return [op.append.outgoing for op in fitting if op.append.outgoing is not None]


def _carefully(transaction: Transaction, ops: Sequence[Op], *, again: bool, path: str) -> Outcomes:
    execute, accepted = transaction.execute, transaction.accepted
    outcomes: Outcomes = []
    for op in ops:
        before = len(accepted)
        execute("SAVEPOINT one")
        try:
            if isinstance(op, AppendOp):
                applied, is_new = transaction.append_one(op.append, again=again)
                outgoing = op.append.outgoing
                if is_new and outgoing is not None:
                    accept_with_appends(transaction, [outgoing])
                elif outgoing is not None:
                    accepted.append(AcceptedMail(outgoing.mail, None))  # it may have been sent before
                outcomes.append((op, applied))
            else:
                outcomes.append((op, op.work(transaction, again)))
        except SYSTEMIC:
            raise
        except Exception as error:
            if not transaction.connection.in_transaction:
                raise  # SQLite rolled back everything, not only this one
            execute("ROLLBACK TO one")
            del accepted[before:]
            outcomes.append((op, as_store_error(error, path)))
        execute("RELEASE one")
    return outcomes
