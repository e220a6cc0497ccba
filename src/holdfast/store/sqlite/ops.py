"""Writes that wait for the one writer of a SQLite store, and telling their callers how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.model import Append, Outgoing, Sent, WorkerId
from holdfast.store.contract import Acknowledge
from holdfast.store.sqlite.apply import Transaction


@dataclass(slots=True, eq=False)
class AppendOp:
    append: Append
    acknowledge: Acknowledge


@dataclass(slots=True, eq=False)
class CallOp:
    """Any other write: `work(transaction, again)`; `points` are its crash points before and after the commit.

    `again`: an earlier commit of the same write may have succeeded. `rings`: if it does something, others must hear.
    """

    work: Callable[[Transaction, bool], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    points: tuple[str, str]
    rings: bool


@dataclass(slots=True, eq=False)
class CreateOp(CallOp):
    """A new run; several are stored by the same few statements."""

    append: Append
    owner: WorkerId | None


@dataclass(slots=True, eq=False)
class SendOp(CallOp):
    """Mail; several are stored by the same few statements."""

    outgoing: Outgoing


Op = AppendOp | CallOp
Outcomes = list[tuple[Op, Any]]


def has_news(outcomes: Outcomes) -> bool:
    """Whether somebody else has something to do now, mail apart."""
    for op, outcome in outcomes:
        if isinstance(op, AppendOp):
            if op.append.release and op.append.row.wake_at is not None:
                return True
        elif isinstance(outcome, Sent):
            continue
        elif op.rings and outcome and not isinstance(outcome, BaseException):
            return True
    return False


def acknowledge_all(loop: asyncio.AbstractEventLoop, outcomes: Outcomes) -> None:
    for op, outcome in outcomes:
        try:
            if isinstance(op, AppendOp):
                op.acknowledge(outcome)
            elif not op.future.done():
                if isinstance(outcome, BaseException):
                    op.future.set_exception(outcome)
                else:
                    op.future.set_result(outcome)
        except Exception as error:  # one callback's bug must not keep the news from the others
            loop.call_exception_handler({"message": "an acknowledgement raised", "exception": error})
