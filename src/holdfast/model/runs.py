"""Runs: their rows, and who executes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple, NewType

from holdfast.base.data import brisk, data
from holdfast.errors import UsageError
from holdfast.model.cuts import Cut, cut_in
from holdfast.model.reasons import Reason
from holdfast.model.statuses import Status

RunId = NewType("RunId", str)

ThreadId = NewType("ThreadId", str)

WorkerId = NewType("WorkerId", str)


#: In the summary of a run that nobody has claimed, and that has more than its first record: a person acted on it.
UNBEGUN = "unbegun"

#: In the summary of a run that was started with tags, and of one that a schedule started: when it was due, µs.
TAGS, SCHEDULED_AT = "tags", "scheduled_at"


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
    reason: Reason | None  #: why blocked, quarantined, in doubt; what a waiting run waits for
    wake_at: int | None  #: from when an unowned run may be claimed, µs; None: not before somebody acts on it
    turn: int  #: of its loop; 0: it is before it, or has none
    epoch: int
    head_seq: int
    head_hash: bytes
    input_digest: str
    summary: Mapping[str, Any]  #: {"steps", "effects", "input_tokens", "output_tokens", "cost", "now", "progress", …}
    owner: WorkerId | None
    claims: int  #: claims since the last one that appended a record
    mail: int  #: number of the last mail accepted for this run
    digest: str

    @property
    def cut(self) -> Cut | None:
        """Where its journal is cut, if it has turns."""
        return cut_in(self.summary) if self.turn else None


class Proof(StrEnum):
    """How it is known that the worker which had a run does not work at it any more."""

    lock = "lock"  #: its lock is free, or its process is gone
    session = "session"  #: the server lost its session, and it did not come back
    boot = "boot"  #: its machine was restarted
    lease = "lease"  #: it did not renew its lease
    gone = "gone"  #: the store does not know it any more
    released = "released"  #: it gave the run back


@data
class Worker:
    """A process that executes runs. Lease time is the store's own clock (boot time for SQLite)."""

    id: WorkerId
    pid: int
    host: str
    boot_id: str
    started_at: int
    lease_until_ms: int
    told: str = "{}"  #: what it tells of itself, as JSON: kept as the definition of kind `worker` that has its id


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


def token_parts(token: str, verb: str) -> tuple[RunId, str]:
    """The run and the thread (or nothing) that a token names; UsageError if it is no text."""
    if not isinstance(token, str):
        raise UsageError(f"{verb} takes a token or an id, which are texts; got {token!r}.")
    run_id, _, thread_id = token.partition("@")
    return RunId(run_id), thread_id


def token_of(token: str | None, *, run_id: str | None, thread_id: str | None) -> str:
    """The token of a run that is named by it or by its ids."""
    given = token if token is not None else f"{run_id}@{thread_id}" if thread_id else run_id
    if not given:
        raise UsageError("resume() takes a token, or run_id=.")
    return given


def checked_id(value: str, what: str) -> str:
    """An id that was given, if it can be one; `what` names the argument."""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 200
        or not value.isprintable()
        or "@" in value
        or value != value.strip()
    ):
        raise UsageError(f"{what}= takes 1 to 200 printable characters without '@'; got {value!r}.")
    return value


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


class Removal(StrEnum):
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
    until: int | None = None  #: created before, µs
    id_prefix: str | None = None
    tags: tuple[tuple[str, str], ...] = ()  #: all of them; what few runs have goes first
    before_id: RunId | None = None  #: cursor: runs listed after this one (older)
    before_at: int | None = None  #: when that one was created, µs; without it, it must still be there
    limit: int = 50
    orphaned_from: frozenset[WorkerId] = field(default_factory=frozenset)  #: only runs owned by these workers
