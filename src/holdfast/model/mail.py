"""Mail: everything that is sent to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.base.data import brisk
from holdfast.model.runs import RunId, RunRow


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
    """

    run_id: RunId
    number: int
    kind: str
    key: str
    body: str  #: JSON text
    at: int
    digest: str
    dedup: str | None = None  #: a second mail with the same one is the first


#: What becomes of an unowned run that mail comes for: its new row, or None to leave it. Called inside the transaction
#: with the row as it is then; raises a HoldfastError to refuse the mail.
Wake = Callable[[RunRow], RunRow | None]


@brisk
class Letter:
    """Mail to be sent together with something else."""

    mail: Mail
    wake: Wake


class Known(NamedTuple):
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
    known: Known | None = None  #: what has its dedup id, if it is not new
