"""Runs: where they stand, what may become of them, their rows, and who executes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple, NewType

from holdfast.base.data import brisk, data

RunId = NewType("RunId", str)

ThreadId = NewType("ThreadId", str)

WorkerId = NewType("WorkerId", str)


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

#: In the summary of a run that nobody has claimed, and that has more than its first record: a person acted on it.
UNBEGUN = "unbegun"

#: In the summary of a run that was started with tags, and of one that a schedule started: when it was due, µs.
TAGS, SCHEDULED_AT = "tags", "scheduled_at"

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


@brisk
class RunRow:
    """A run's row. `digest` covers what only the owner writes (journal.integrity computes and checks it);
    `owner`, `claims`, `mail` and `digest` itself are outside of it."""

    id: RunId
    thread_id: ThreadId
    agent: str
    nonce: str
    parent_id: RunId | None
    queue: str
    queue_key: str  #: runs of a queue are fair between keys; "" is a key as any other
    priority: int  #: higher goes first
    created_at: int
    updated_at: int
    status: Status
    reason: Mapping[str, Any] | None  #: why blocked, quarantined, in doubt; what a waiting run waits for
    wake_at: int | None  #: from when an unowned run may be claimed, µs; None: not before somebody acts on it
    generation: int
    epoch: int
    head_seq: int
    head_hash: bytes
    input_digest: str
    summary: Mapping[str, Any]  #: {"steps", "effects", "input_tokens", "output_tokens", "cost", "now", "progress", …}
    owner: WorkerId | None
    claims: int  #: claims since the last one that appended a record
    mail: int  #: number of the last mail accepted for this run
    digest: str


@data
class Worker:
    """A process that executes runs. Lease time is the store's own clock (boot time for SQLite)."""

    id: WorkerId
    pid: int
    host: str
    boot_id: str
    started_at: int
    lease_until_ms: int


@brisk
class Claim:
    """One run to be claimed: its new row (epoch risen, status running), and what must be stored for it."""

    row: RunRow
    expected_epoch: int
    expected_owner: WorkerId | None


@data
class Limit:
    """How many runs of a queue may be owned at once, by all workers together."""

    concurrency: int | None = None
    per_key: int | None = None


class Fence(NamedTuple):
    """Who does something for a run: it is refused if somebody else owns the run by then."""

    run_id: RunId
    epoch: int
    owner: WorkerId | None

    #: idempotency key, the attempt, its result, when


class Ended(NamedTuple):
    """A run that has ended, and whether nothing that lives may need it."""

    row: RunRow
    is_free: bool


class Pruned(StrEnum):
    """What became of a run whose contents were to be removed."""

    gone = "gone"  #: its tombstone is all there is
    partly = "partly"  #: it is a tombstone, and there is more to remove
    kept = "kept"  #: it is not as expected; nothing was changed


@data
class RunFilter:
    """Which runs to list; None means any."""

    status: frozenset[Status] | None = None
    agent: str | None = None
    thread_id: ThreadId | None = None
    parent_id: RunId | None = None
    queue: str | None = None
    since: int | None = None  #: created at or after, µs
    id_prefix: str | None = None
    tags: tuple[tuple[str, str], ...] = ()  #: all of them; what few runs have goes first
    before_id: RunId | None = None  #: cursor: runs listed after this one (older)
    limit: int = 50
    orphaned_from: frozenset[WorkerId] = field(default_factory=frozenset)  #: only runs owned by these workers
