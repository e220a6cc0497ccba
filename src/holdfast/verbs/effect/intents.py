"""Intents of effects: what one says, and what is known of an attempt that left nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from holdfast.base.clock import now_us
from holdfast.journal.recovery import PROVEN, Doubt
from holdfast.model import Record
from holdfast.running.scopes import Scope

if TYPE_CHECKING:
    from holdfast.running.context import RunContext


class Intended(Protocol):
    """One call of an effect."""

    scope: Scope
    idempotency_key: str


def intent_text(call: Intended, undoes: str | None, *, has_undo: bool) -> str:
    """What an intent says besides what every record does: enough to see from it who is to undo whom."""
    if not has_undo and undoes is None:
        return f'{{"idempotency_key":"{call.idempotency_key}"}}'
    said = {"idempotency_key": call.idempotency_key}
    if undoes is not None:
        said["undoes"] = undoes
    else:
        said["saga"] = call.scope.saga.key if call.scope.saga is not None else ""
    return json.dumps(said)


def doubt_of(run: RunContext, intent: Record) -> Doubt:
    """What is known about an attempt that was cut off: nobody works at it once the claim after it was proven."""
    for epoch, at, proof in run.replay.claims:
        if epoch > intent.epoch:
            return Doubt("crash", is_over=proof in PROVEN, since_us=at)
    return Doubt("crash", is_over=False, since_us=now_us())
