"""Mail: everything that is sent to a run."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from holdfast.base.data import brisk
from holdfast.model.acts import Act
from holdfast.model.questions import QuestionState
from holdfast.model.runs import RunId, RunRow


class MailKind(StrEnum):
    """What is sent to a run."""

    resolve = "resolve"
    answer = "answer"
    signal = "signal"
    child = "child"
    cancel = "cancel"
    pause = "pause"
    resume = "resume"
    interrupt = "interrupt"
    budget = "budget"
    plan = "plan"

    @classmethod
    def of(cls, kind: str) -> MailKind | None:
        """None: one that this version does not know."""
        return _KINDS.get(kind)


_KINDS = {each.value: each for each in MailKind}


@brisk
class Mail:
    """Something sent to a run from outside: consumed by its owner through a record.

    kind       key             body
    resolve    call            a person's verdict on an effect in doubt
    answer     call            {"value"} or {"declined": true}, and "by", "note", "at"
    signal     name of it      {"value", "by"}
    child      child's run id  {"status"}: a child run has ended
    cancel     ""              {"by", "note"}
    pause      ""              {"by", "note"}
    resume     ""              {"by", "note"}
    interrupt  ""              {"value", "by"}
    budget     ""              {"limit", "by", "note"}: what it may use from now on
    plan       ""              {"ops", "by", "note"}: a person's changes to its plan
    """

    run_id: RunId
    number: int
    kind: str  #: a MailKind; any text, if a later version sent it
    key: str
    body: str  #: JSON text
    at: int
    digest: str
    dedup: str | None = None  #: a second mail with the same one is the first


#: What becomes of an unowned run that mail comes for: its new row, or None to leave it. Called inside the transaction
#: with the row as it is then; raises a HoldfastError to refuse the mail.
Wake = Callable[[RunRow], RunRow | None]


@brisk
class Outgoing:
    """Mail with the conditions under which it is accepted; `Store.send` says what they mean."""

    mail: Mail
    wake: Wake
    expected: int | None = None
    decides: tuple[QuestionState, str] | None = None
    act: Act | None = None  #: kept in the same commit, if it is accepted


class KnownMail(NamedTuple):
    """What was accepted under a dedup id."""

    number: int
    kind: str
    key: str
    body: str  #: empty once the run was pruned: what was said is not known any more


@brisk
class Sent:
    """What became of mail: its number, and whether it is new (else its dedup id was known)."""

    number: int  #: 0: it was not accepted, because a condition did not hold
    is_new: bool
    known: KnownMail | None = None  #: what has its dedup id, if it is not new
