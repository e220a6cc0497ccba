"""Writes that wait for the writer of a PostgreSQL store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.model import Append, Applied, Fence, Outgoing, WorkerId
from holdfast.store.contract import Acknowledge
from holdfast.store.postgres.mail import MailingAppend


@dataclass(slots=True, eq=False)
class AppendOp:
    append: Append
    acknowledge: Acknowledge


@dataclass(slots=True, eq=False)
class CreateOp:
    append: Append
    owner: WorkerId | None
    fence: Fence | None
    future: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class MailOp:
    """Mail, or an amendment that may send mail to another run."""

    write: Outgoing | MailingAppend
    future: asyncio.Future[Any]
    points: tuple[str, str]


@dataclass(slots=True, eq=False)
class CallOp:
    """Any other write: `work(connection, again)`; `points` are its crash points before and after the commit."""

    work: Callable[[Any, bool], Awaitable[Any]]
    future: asyncio.Future[Any]
    points: tuple[str, str]


Op = AppendOp | CreateOp | MailOp | CallOp
Outcomes = list[tuple[Op, Any]]


def has_news(outcomes: Outcomes) -> bool:
    """Whether somebody else has something to do now, mail apart."""
    for op, outcome in outcomes:
        if isinstance(outcome, BaseException):
            continue
        if isinstance(op, CreateOp):
            if op.owner is None:
                return True
            continue
        released: Append | None = None
        if isinstance(op, AppendOp) and op.append.release:
            released = op.append
        elif isinstance(op, MailOp) and isinstance(op.write, MailingAppend):
            released = op.write.append
        if released is not None and released.row.wake_at is not None and outcome is Applied.committed:
            return True
    return False
