"""New runs: what is stored of one when it is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from holdfast.base.clock import now_us, ready_us
from holdfast.base.data import brisk
from holdfast.base.ids import new_run_ids
from holdfast.codec import Input
from holdfast.codec.fastjson import decode, encode
from holdfast.control.filters import as_tags
from holdfast.errors import ConflictingStart, UsageError
from holdfast.journal.blobs import spilled, stored_text
from holdfast.journal.chain import draft, first_hash, linked, seal_row
from holdfast.model import (
    SCHEDULED_AT,
    TAGS,
    UNBEGUN,
    Append,
    Kind,
    NoteKind,
    Record,
    RunId,
    RunRow,
    Status,
    ThreadId,
    WorkerId,
    checked_id,
)
from holdfast.model.budgets import BUDGETS
from holdfast.model.reasons import Paused
from holdfast.store.contract import Store
from holdfast.verbs.agent import Call
from holdfast.version import VERSION

DEFAULT_QUEUE = "default"
_MOST_TAGS = 50


@brisk
class QueuePlace:
    """Where a new run waits for its turn, and from when it may have it."""

    queue: str | None = None
    queue_key: str = ""
    priority: int = 0
    wake_at: int = 0  #: µs
    is_paused: bool = False


ANYWHERE: Final = QueuePlace()


@brisk
class NewRun:
    """A run that is about to be stored."""

    agent: str
    args_text: str
    args_digest: str
    run_id: str | None = None
    thread_id: str | None = None
    parent_id: RunId | None = None
    version: str | None = None
    code: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    place: QueuePlace = ANYWHERE
    args_given: str = ""  #: digest of the arguments that were given
    defaults: Sequence[str] = ()  #: the others, which are what they are by default
    outside: str | None = None  #: the argument that came from outside, as plain JSON
    scheduled_at: int | None = None  #: the time of a schedule that it is the run of, µs
    budgets: tuple[str, ...] = ()  #: the runs that it comes of whose budgets bind it

    @classmethod
    def of(
        cls,
        call: Call[Any],
        *,
        run_id: str | None,
        thread_id: str | None,
        parent_id: RunId | None,
        tags: Mapping[str, str],
        place: QueuePlace | None,
        budgets: tuple[str, ...] = (),
    ) -> NewRun:
        agent, given = call.agent, call.input
        place = place or ANYWHERE
        if place.queue is None and agent.queue is not None:
            place = QueuePlace(agent.queue, place.queue_key, place.priority, place.wake_at, place.is_paused)
        return cls(
            agent.name,
            given.text,
            given.digest,
            run_id,
            thread_id,
            parent_id,
            agent.version,
            agent._code,
            tags,
            place,
            given.given,
            given.defaults,
            budgets=budgets,
        )

    def append(self, inline_limit: int, *, claim: tuple[WorkerId, str] | None = None) -> Append:
        """The row and the first records. With `claim` (who, with which note) it is owned from the start."""
        new_id, new_thread, nonce = new_run_ids()
        run_id = RunId(checked_id(self.run_id, "id") if self.run_id is not None else new_id)
        thread = ThreadId(checked_id(self.thread_id, "thread_id") if self.thread_id is not None else new_thread)
        at, place = now_us(), self.place
        base = first_hash(run_id, nonce)
        created = encode(
            {
                "thread": thread,
                "version": self.version,
                "code": self.code,
                "parent": self.parent_id,
                "tags": checked_tags(self.tags) if self.tags else {},
                "defaults": list(self.defaults),
                **({} if self.outside is None else {"outside": self.outside}),
                **({BUDGETS: list(self.budgets)} if self.budgets else {}),
                "holdfast": VERSION,
            }
        )
        blobs: tuple[tuple[str, bytes], ...] = ()
        args_text = self.args_text
        if len(args_text) > inline_limit:
            args_text, blob = spilled(args_text)
            blobs = (blob,)
        said = [draft(Kind.created, self.agent, at=at, args_digest=self.args_digest, args=args_text, payload=created)]
        if claim is not None:
            said.append(draft(Kind.claimed, claim[0], at=at, payload=claim[1]))
        elif place.is_paused:
            note = encode({"on": True, "by": "start", "note": ""})
            said.append(draft(Kind.noted, NoteKind.paused, at=at, payload=note))
        records = linked(said, epoch=1, turn=0, head_seq=0, head_hash=base)
        is_owned = claim is not None
        row = RunRow(
            id=run_id,
            thread_id=thread,
            agent=self.agent,
            nonce=nonce,
            parent_id=self.parent_id,
            queue=DEFAULT_QUEUE if place.queue is None else checked_id(place.queue, "queue"),
            queue_key=checked_key(place.queue_key),
            priority=checked_priority(place.priority),
            created_at=at,
            updated_at=at,
            status=Status.running if is_owned else Status.paused if place.is_paused else Status.queued,
            reason=Paused(Status.queued, "start") if place.is_paused else None,
            wake_at=None if is_owned or place.is_paused else place.wake_at or ready_us(),
            turn=0,
            epoch=1,
            head_seq=len(records),
            head_hash=records[-1].hash,
            input_digest=self.args_digest,
            summary=self._summary(),
            owner=claim[0] if claim is not None else None,
            claims=int(is_owned),
            mail=0,
            digest="",
        )
        return Append(seal_row(row), 0, base, records, blobs)

    def _summary(self) -> dict[str, Any]:
        """What the row says of it from the start, and for good: lists read rows, and no journals."""
        summary: dict[str, Any] = {UNBEGUN: True} if self.place.is_paused else {}
        if self.tags:
            summary[TAGS] = dict(self.tags)
        if self.scheduled_at is not None:
            summary[SCHEDULED_AT] = self.scheduled_at
        if self.budgets:
            summary[BUDGETS] = list(self.budgets)
        return summary


async def check_same_start(store: Store, row: RunRow, new: NewRun) -> None:
    """A second start with the same id must mean the same run: of this agent, with these arguments.

    They are the same if all of them are, or if those given are: a deploy in between may have changed a default.
    """
    if row.agent != new.agent:
        raise ConflictingStart(f"Run {row.id} exists and is of agent {row.agent!r}, not {new.agent!r}. Use another id.")
    if row.input_digest in (new.args_digest, new.args_given):
        return
    created = next(iter(await store.records(row.id, limit=1)), None)
    if created is not None and (defaults := origin_of(created)[0]):
        text = await stored_text(store, row.id, created.args)
        if Input.read(text, defaults).given == new.args_given:
            return
    raise ConflictingStart(
        f"Run {row.id} ({new.agent}) exists with other arguments. Use another id, or the same arguments."
    )


def origin_of(created: Record) -> tuple[tuple[str, ...], str | None]:
    """The arguments of a run that were not given when it was started, and the one that came from outside."""
    payload = created.payload or "{}"
    if '"defaults":[]' in payload and '"outside"' not in payload:  # most are so: no text in it has such quotes
        return (), None
    said = decode(payload)
    return tuple(said.get("defaults", ())), said.get("outside")


def checked_key(value: str) -> str:
    if not isinstance(value, str) or len(value) > 200 or (value and not value.isprintable()):
        raise UsageError(f"queue_key= takes at most 200 printable characters; got {value!r}.")
    return value


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    if len(as_tags(tags)) > _MOST_TAGS:
        raise UsageError(f"tags= takes at most {_MOST_TAGS}; got {len(tags)}.")
    for name in tags:
        if not name or "=" in name:
            raise UsageError(f"tags= takes names without '='; got {name!r}.")
    return dict(tags)


def checked_priority(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise UsageError(f"priority= takes a whole number of 32 bits; got {value!r}.")
    return value
