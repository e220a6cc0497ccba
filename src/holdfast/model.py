"""The data everything speaks of: runs, records, workers, mail. Frozen, without behaviour of its own.

What the kinds of records hold (`payload` is JSON text of the codec; `args` likewise):

kind       name            payload
created    agent           {"thread", "version", "code", "parent", "tags", "defaults", "holdfast"}; `args` is the input,
                           `defaults` names the arguments in it that were not given
claimed    worker id       {"pid", "host", "boot", "python", "code", "source", "holdfast", "proof", "lost"}: who took
                           the run; `lost` is the worker that died, `proof` how that is known, "renewed" when it was
                           last heard of, µs; "by" and "note" if a person had it resumed; "woken" if nothing was cut
                           off: what it waited for has come
started    call            {"due": µs} for waits with a time, else null: the call began, its outcome is not known yet
decided    wait            {"mail", "value"} or {"expired"}: how a wait ends; the code learns it at the outcome's tick
attempt    call            {"error", "retry_at", "postponed"}: an attempt failed and another follows
intent     effect          {"idempotency_key"}: from here on the effect may have happened; "saga" names the block of one
                           that can be undone ("" for none), "undoes" is the idempotency key of what an undo takes back
child      agent           {"run", "defaults"}: a child run with this id is being started, with `args`
settled    effect          {"verdict", "by", "evidence", "attempt", "given"}: how an effect in doubt was settled;
                           `given` is what a person said: {"verdict", "value"|"error", "actor", "note", "mail"} or null
done       call            the value
failed     call            the exception
unstored   effect          {"repr", "error"}: it happened, its result could not be stored
cancelled  call            null: the code cancelled the call
noted      what            {...}: usage, progress, held, unstable arguments, what a resume saved, what the code waits
                           for by itself; answers no call.
                           `paused` {"on", "by", "note", "mail"} and `cancel` {"by", "note", "mail"} are the flags;
                           they, `blocked` and `moved` {"to"} say "seized" if the run was taken from a worker: the
                           proof that it was dead, or ""
patched    patch id        null
finished   done|failed|…   the value or the exception that the run ended with
reopened   who             {"superseded": [seq], "note"}: retry; those records count no longer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, NamedTuple, NewType

from holdfast.data import brisk, data

#: Bytes; no stored value has more, so that reading a damaged one takes no more memory than that.
LARGEST_BLOB: Final = 1 << 30

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


class Kind(StrEnum):
    """What a record says; the module docstring has the payloads."""

    created = "created"
    claimed = "claimed"
    started = "started"
    decided = "decided"
    attempt = "attempt"
    intent = "intent"
    child = "child"
    settled = "settled"
    done = "done"
    failed = "failed"
    unstored = "unstored"
    cancelled = "cancelled"
    noted = "noted"
    patched = "patched"
    finished = "finished"
    reopened = "reopened"


#: Kinds that end a call.
OUTCOMES = frozenset({Kind.done, Kind.failed, Kind.unstored, Kind.cancelled})


class Record(NamedTuple):
    """One line of a run's journal, as stored. Times and durations are in microseconds.

    A named tuple, because a resume builds thousands: a frozen dataclass takes four times as long.
    """

    seq: int
    epoch: int
    generation: int
    key: str
    kind: str
    name: str
    attempt: int
    tick: int
    at: int
    took: int
    args_digest: str
    args: str | None
    payload: str | None
    hash: bytes


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


@brisk
class Append:
    """Records for one run, to be committed where epoch and head still match, together with the row's new state.

    `row` is the run as it stands after the append: its epoch is the fencing token and must equal the stored one;
    `base_seq` and `base_hash` must equal the stored head, `row.owner` the stored owner. `release` gives up ownership.
    `mail`, if given, must equal the stored mail counter: what the run has not seen keeps it from parking.
    `tell` is sent in the same commit, to another run.
    """

    row: RunRow
    base_seq: int
    base_hash: bytes
    records: tuple[Record, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()  #: (digest, the value's JSON text in UTF-8)
    release: bool = False
    mail: int | None = None
    tell: Letter | None = None


class Applied(StrEnum):
    """What became of an append."""

    committed = "committed"
    fenced = "fenced"  #: another epoch owns the run
    diverged = "diverged"  #: own epoch, but the head is neither the base nor this append's own
    unread = "unread"  #: mail has come that the run has not seen; nothing was changed


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


@brisk
class Landing:
    """One attempt of a call whose changes are made in the database of the store. Of all attempts one can land."""

    run_id: RunId
    key: str  #: the call's idempotency key
    attempt: int


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


class QuestionState(StrEnum):
    """Where a question stands; only an open one can be decided, once."""

    open = "open"
    answered = "answered"
    declined = "declined"
    expired = "expired"
    withdrawn = "withdrawn"  #: the code stopped waiting for it


@data
class QuestionRow:
    """A question that a run asks. `shown` is the digest of what a person sees; an answer names the one it is for."""

    id: str
    run_id: RunId
    key: str
    body: str  #: JSON text: {"prompt", "show", "kind", "options", "schema", "draft", "agent", "thread"}
    shown: str
    asked_at: int
    due_at: int | None
    state: QuestionState
    decided_at: int | None
    decided_by: str | None
    note: str
    digest: str


@data
class Definition:
    """Something that workers share by name: an agent, a queue, a schedule, a trigger, an event, a retention.

    Written by compare-and-set: `revision` is one more than that of the row it replaces, 1 for a new one.
    """

    kind: str
    name: str
    body: str  #: JSON text
    revision: int
    due_at: int | None = None  #: when somebody has to look at it, µs


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


class Loaded(NamedTuple):
    """A run with its journal and its mail, of one moment."""

    row: RunRow
    records: list[Record]
    mail: list[Mail]


@data
class Whole:
    """All of a run, of one moment: what is taken from one store to another."""

    row: RunRow
    records: tuple[Record, ...]
    blobs: Mapping[str, bytes]  #: by digest, the value's JSON text in UTF-8
    mail: tuple[Mail, ...]
    questions: tuple[QuestionRow, ...]
    landed: tuple[tuple[str, int, str | None, int], ...] = ()  #: what it did to the user's own tables: a call's
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


class Privacy(StrEnum):
    """Who can read along between this process and the server of a store, or the pooler in front of it."""

    verified = "verified"  #: nobody: encrypted, and the server has shown that it is the one that was meant
    unverified = "unverified"  #: whoever puts themselves in the server's place
    local = "local"  #: nobody: it does not leave this machine
    clear = "clear"  #: whoever is on the way


@data
class SchemaStep:
    """A migration, and when it was applied, if it was."""

    number: int
    name: str
    applied_at: int | None


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
