"""Where a run stands, and which status may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """Where a run stands."""

    queued = "queued"  #: claimable now, nobody has it
    running = "running"  #: a worker has it
    sleeping = "sleeping"  #: waits for a time
    waiting = "waiting"  #: waits for a signal, a person or a child
    paused = "paused"  #: a person stopped it
    in_doubt = "in_doubt"  #: an effect may or may not have happened; a person must say
    blocked = "blocked"  #: needs a fix; the reason says which
    quarantined = "quarantined"  #: its stored data failed verification
    done = "done"  #: returned
    failed = "failed"  #: raised
    cancelled = "cancelled"  #: cancelled

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset({Status.done, Status.failed, Status.cancelled})
UNFINISHED = frozenset(Status) - FINAL

_PARKED = frozenset({Status.queued, Status.sleeping, Status.waiting, Status.paused, Status.in_doubt, Status.blocked})

#: What waits is woken up, or a person acts on it; it is blocked while it is moved to another store.
_LEFT = frozenset({Status.running, Status.queued, Status.paused, Status.blocked, Status.cancelled, Status.quarantined})

#: From each status, the ones it may become. Final ones are left by an explicit retry only.
TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.queued: frozenset({Status.running, Status.paused, Status.cancelled, Status.blocked, Status.quarantined}),
    Status.running: _PARKED | FINAL | {Status.running, Status.quarantined},
    Status.sleeping: _LEFT,
    Status.waiting: _LEFT,
    Status.paused: _PARKED | {Status.running, Status.cancelled, Status.quarantined},
    Status.in_doubt: _LEFT,
    Status.blocked: (_PARKED - {Status.blocked}) | {Status.running, Status.cancelled, Status.quarantined},
    Status.quarantined: frozenset({Status.queued}),
    Status.done: frozenset(),
    Status.failed: frozenset({Status.running, Status.queued}),
    Status.cancelled: frozenset({Status.running, Status.queued}),
}


def following(status: Status, to: Status) -> Status:
    """`to`, if a run may become that; it may also stay what it is. Whoever writes a new status asks here.

    Example: `replace(row, status=following(row.status, Status.queued))`
    """
    if to not in TRANSITIONS[status] and to is not status:
        raise AssertionError(f"a run that is {status} does not become {to}")
    return to
