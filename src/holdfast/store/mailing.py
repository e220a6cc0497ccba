"""Mail and the conditions under which a run gets it: what a store decides before it writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model import Mail, QuestionState, RunRow, Wake


class WakeError(Exception):
    """A wake function has a bug. No error of the run or the store, so it is never passed over in silence."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Mail with the conditions under which it is accepted; see `Store.send`."""

    mail: Mail
    wake: Wake
    expected: int | None = None
    decides: tuple[QuestionState, str] | None = None


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
