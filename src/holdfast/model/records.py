"""Records: what a journal consists of, and how it is appended and read.

What the kinds of records hold (`payload` is JSON text of the codec; `args` likewise):

kind       name            payload
created    agent           {"thread", "version", "code", "parent", "tags", "defaults", "holdfast"}; `args` is the input,
                           `defaults` names the arguments in it that were not given; of a fork also "forked", where it
                           comes from, and "source"
claimed    worker id       {"pid", "host", "boot", "python", "code", "source", "holdfast", "proof", "lost"}: who took
                           the run; `lost` is the worker that died, `proof` how that is known, "renewed" when it was
                           last heard of, µs; "by" and "note" if a person had it resumed; "woken" if nothing was cut
                           off: what it waited for has come
started    call            {"due": µs} for waits with a time, else null: the call began, its outcome is not known yet
decided    wait            {"mail", "digest", "begins"} or {"expired"}: how a wait ends, and the beginning of what came;
                           the code learns it at the outcome's tick
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
noted      a NoteKind      {...}: usage, progress, held, unstable arguments, what a resume saved, what the code waits
                           for by itself; answers no call.
                           `stream` {"stream", "last"} and one of "text" (chunks), "reset" (why; "again": another
                           attempt follows) and "end": events of a stream up to number `last`, said by this call
                           `paused` {"on", "by", "note", "mail"} and `cancel` {"by", "note", "mail"} are the flags;
                           they, `blocked` and `moved` {"to"} say "seized" if the run was taken from a worker: the
                           proof that it was dead, or "".
                           `repaired` {"by", "note", "origin", "head", "found"} says who signed the records before it
                           anew, from which store, and what did not fit there; "seized" likewise
                           `budget` {"limit", "by", "note", "mail"} is what it may use from there on; `guarded`
                           {"changes", "asks", "accepted"} what guards found, whether the run waits for somebody to
                           accept it, and who did
patched    patch id        null
finished   done|failed|…   the value or the exception that the run ended with
reopened   who             {"superseded": [seq], "note"}: retry; those records count no longer
checkpoint hf:turn         what the past decides apart from the state (`journal/checkpoints.py`); its key is `@turn`,
                           `args` the state, `args_digest` the digest of the shape that the state's type had
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.base.data import brisk, data
from holdfast.model.mail import Mail, Outgoing
from holdfast.model.questions import QuestionRow
from holdfast.model.runs import RunId, RunRow

#: Bytes; no stored value has more, so that reading a damaged one takes no more memory than that.
LARGEST_BLOB: Final = 1 << 30


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
    checkpoint = "checkpoint"


#: Kinds that end a call.
OUTCOMES = frozenset({Kind.done, Kind.failed, Kind.unstored, Kind.cancelled})


class Record(NamedTuple):
    """One line of a run's journal, as stored. Times and durations are in microseconds.

    A named tuple, because a resume builds thousands: a frozen dataclass takes four times as long.
    """

    seq: int
    epoch: int
    turn: int  #: in which it was written
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
class Append:
    """Records for one run, to be committed where epoch and head still match, together with the row's new state.

    `row` is the run as it stands after the append: its epoch is the fencing token and must equal the stored one;
    `base_seq` and `base_hash` must equal the stored head, `row.owner` the stored owner. `release` gives up ownership.
    `mail`, if given, must equal the stored mail counter: what the run has not seen keeps it from parking.
    `outgoing` is sent in the same commit, to another run.
    """

    row: RunRow
    base_seq: int
    base_hash: bytes
    records: tuple[Record, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()  #: (digest, the value's JSON text in UTF-8)
    release: bool = False
    mail: int | None = None
    outgoing: Outgoing | None = None


class Applied(StrEnum):
    """What became of an append."""

    committed = "committed"
    fenced = "fenced"  #: another epoch owns the run
    diverged = "diverged"  #: own epoch, but the head is neither the base nor this append's own
    unread = "unread"  #: mail has come that the run has not seen; nothing was changed


@brisk
class Landing:
    """One attempt of a call whose changes are made in the database of the store. Of all attempts one can land."""

    run_id: RunId
    key: str  #: the call's idempotency key
    attempt: int


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
