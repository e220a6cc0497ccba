"""Mail for runs: how it is made, and what it does to a run that nobody owns."""

from __future__ import annotations

import json
from typing import Any, assert_never

from holdfast.base.clock import now_us, ready_us
from holdfast.control.acting import act_in
from holdfast.errors import CorruptJournal, HoldfastError, RunFinished
from holdfast.journal.chain import revised
from holdfast.journal.integrity import check_row, mail_digest
from holdfast.journal.tombstones import refuse_elsewhere
from holdfast.model import Mail, MailKind, Outgoing, RunId, RunRow, Sent, Status, WaitKind, Wake, following, reasons
from holdfast.model.reasons import Cleanup, Reason
from holdfast.store.contract import Store

#: How dedup ids begin that are not the user's.
OWN_IDS = "hf:"
WAITING = frozenset({Status.waiting, Status.sleeping, Status.in_doubt})
STOPPED = frozenset({Status.paused, Status.blocked, Status.quarantined})
#: States in which a run that nobody owns may have mail that nobody has read.
UNSEEN = frozenset({Status.queued, Status.blocked})


def mail_for(run_id: RunId, kind: MailKind, key: str, body: dict[str, Any], *, dedup: str | None = None) -> Mail:
    """Mail that fits its digest."""
    at, text = now_us(), json.dumps(body)
    return Mail(run_id, 0, kind, key, text, at, mail_digest(run_id, kind, key, text, at), dedup)


class Unowned(HoldfastError):
    """The run was given up between the look and the act: look again."""


def waking(kind: MailKind, key: str) -> Wake:
    """What mail does to a run that nobody owns: if it is what the run waits for, the run becomes claimable."""

    def wake(row: RunRow) -> RunRow | None:
        refuse_elsewhere(row)
        if row.status.is_final:
            raise RunFinished(f"Run {row.id} is {row.status}; nothing can be sent to it any more.", status=row.status)
        if row.status is Status.quarantined:
            raise CorruptJournal(f"Run {row.id} is quarantined; nothing can be sent to it.", run_id=row.id)
        is_written_at_once = kind in (MailKind.pause, MailKind.budget) or (
            kind is MailKind.resume and row.status not in UNSEEN
        )
        if row.owner is None and (is_written_at_once or (kind is MailKind.cancel and row.status in STOPPED)):
            raise Unowned
        if not _is_awaited(row, kind, key):
            return None
        check_row(row)
        status, at = following(row.status, Status.queued), now_us()
        return revised(row, status=status, reason=kept(row.reason), wake_at=ready_us(), updated_at=at)

    return wake


def kept(reason: Reason | None) -> Cleanup | None:
    """What of a wait is still to be known once the run is queued: whether it has something to undo."""
    return Cleanup() if reasons.cleans_up(reason) else None


def _is_awaited(row: RunRow, kind: MailKind, key: str) -> bool:
    if row.owner is not None:
        return False
    if row.status is Status.blocked:
        return kind is MailKind.resolve
    if row.status not in WAITING:
        return False
    waits = reasons.waits_of(row.reason)
    match kind:
        case MailKind.cancel | MailKind.interrupt | MailKind.answer:
            return True
        case MailKind.resolve:
            return any(wait.kind is WaitKind.doubt and wait.key == key for wait in waits)
        case MailKind.signal:
            return any(wait.kind is WaitKind.signal and wait.name == key for wait in waits)
        case MailKind.child:
            return any(wait.kind is WaitKind.child and wait.child == key for wait in waits)
        case MailKind.pause | MailKind.resume | MailKind.budget | MailKind.plan:
            return False
        case _:
            assert_never(kind)


def child_ended(parent_id: RunId, child_id: RunId, status: Status) -> Outgoing:
    """What a run tells its parent with its last commit."""
    mail = mail_for(parent_id, MailKind.child, child_id, {"status": status, "by": child_id, "note": ""})
    return Outgoing(mail, waking(MailKind.child, child_id))


async def send_mail(
    store: Store, run_id: RunId, kind: MailKind, key: str, body: dict[str, Any], *, dedup: str | None = None
) -> Sent:
    """Send mail to a run, and keep who did it if a person did."""
    act = act_in(body, kind.value, run_id, target=key)
    return await store.send(mail_for(run_id, kind, key, body, dedup=dedup), wake=waking(kind, key), act=act)
