"""Mail for runs: how it is made, and what it does to a run that nobody owns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.clock import now_us, ready_us
from holdfast.errors import CorruptJournal, HoldfastError, RunFinished
from holdfast.journal.integrity import check_row, mail_digest, seal_row
from holdfast.journal.tombstones import refuse_elsewhere
from holdfast.model import Letter, Mail, RunId, RunRow, Sent, Status, Wake
from holdfast.store.contract import Store

WAITING = frozenset({Status.waiting, Status.sleeping, Status.in_doubt})
STOPPED = frozenset({Status.paused, Status.blocked, Status.quarantined})
#: States in which a run that nobody owns may have mail that nobody has read.
UNSEEN = frozenset({Status.queued, Status.blocked})
_HANDLED_BY_OWNER = frozenset({"cancel", "interrupt", "answer"})


def letter(run_id: RunId, kind: str, key: str, body: dict[str, Any], *, dedup: str | None = None) -> Mail:
    """Mail that fits its digest."""
    at, text = now_us(), json.dumps(body)
    return Mail(run_id, 0, kind, key, text, at, mail_digest(run_id, kind, key, text, at), dedup)


class Unowned(HoldfastError):
    """The run was given up between the look and the act: look again."""


def waking(kind: str, key: str) -> Wake:
    """What mail does to a run that nobody owns: if it is what the run waits for, the run becomes claimable."""

    def wake(row: RunRow) -> RunRow | None:
        refuse_elsewhere(row)
        if row.status.is_final:
            raise RunFinished(f"Run {row.id} is {row.status}; nothing can be sent to it any more.", status=row.status)
        if row.status is Status.quarantined:
            raise CorruptJournal(f"Run {row.id} is quarantined; nothing can be sent to it.", run_id=row.id)
        is_written_at_once = kind == "pause" or (kind == "resume" and row.status not in UNSEEN)
        if row.owner is None and (is_written_at_once or (kind == "cancel" and row.status in STOPPED)):
            raise Unowned
        if not _is_awaited(row, kind, key):
            return None
        check_row(row)
        at = now_us()
        return seal_row(replace(row, status=Status.queued, reason=kept(row.reason), wake_at=ready_us(), updated_at=at))

    return wake


def kept(reason: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What of a wait is still to be known once the run is queued: whether it has something to undo."""
    return {"cleanup": True} if (reason or {}).get("cleanup") else None


def why_waiting(waits: Sequence[Mapping[str, Any]]) -> str:
    """What a run waits for, in a word: the first that applies."""
    kinds = {wait["kind"] for wait in waits}
    return next((kind for kind in ("doubt", "question", "signal", "child") if kind in kinds), "timer")


def _is_awaited(row: RunRow, kind: str, key: str) -> bool:
    if row.owner is not None:
        return False
    if row.status is Status.blocked:
        return kind == "resolve"
    if row.status not in WAITING:
        return False
    if kind in _HANDLED_BY_OWNER:
        return True
    wanted = {"resolve": ("doubt", "key"), "signal": ("signal", "name"), "child": ("child", "child")}.get(kind)
    waits = (row.reason or {}).get("waits", [])
    return wanted is not None and any(w["kind"] == wanted[0] and w.get(wanted[1]) == key for w in waits)


def child_ended(parent_id: RunId, child_id: RunId, status: Status) -> Letter:
    """What a run tells its parent with its last commit."""
    mail = letter(parent_id, "child", child_id, {"status": status, "by": child_id, "note": ""})
    return Letter(mail, waking("child", child_id))


async def post(
    store: Store, run_id: RunId, kind: str, key: str, body: dict[str, Any], *, dedup: str | None = None
) -> Sent:
    """Send mail to a run."""
    return await store.send(letter(run_id, kind, key, body, dedup=dedup), wake=waking(kind, key))
