"""All that a run has put out and that lasts: record, files, workspaces, plan, messages, and what is left of streams.

Each kind has a function here that lists it; `LISTERS` has all of them, one line each. Nothing half-made is listed: a
file or message is, once the outcome of the call that put it out is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from holdfast.base.data import data
from holdfast.errors import CorruptJournal, UsageError
from holdfast.history.lookup import row_of
from holdfast.history.plans import plan_of, todo_text
from holdfast.history.streams import partials_of
from holdfast.history.values import plain_text
from holdfast.history.words import count
from holdfast.journal.files import state_of
from holdfast.journal.integrity import is_sound
from holdfast.journal.messages import CALLS, KnownMessages, messages_in
from holdfast.journal.trees import tree_state
from holdfast.model import STREAMS, Kind, Message, NoteKind, Record, RunId, RunRow, ThreadId
from holdfast.model.files import FileRef, FileState
from holdfast.model.plans import PLAN
from holdfast.store.contract import Store

RECORD = "record"
WORKSPACE = "workspace"
TODO = "plan"
MESSAGE = "message"
PARTIAL = "partial"
#: What no code puts out by `hf.artifact`.
OWN_KINDS = frozenset({RECORD, WORKSPACE, TODO, MESSAGE, PARTIAL})
_PAGE: Final = 2000
_SAYING: Final = (f"{CALLS}append", f"{CALLS}summarise")


@data
class Output:
    """One thing that a run has put out, in one version."""

    name: str
    kind: str  #: what the code says; `record`, `workspace` and the like are what every run may have
    version: int
    at: datetime | None  #: when it was put out last
    media_type: str = ""
    file: FileRef | None = None  #: where its bytes are
    text: str | None = None  #: what it says, if that is stored elsewhere than in files
    ref: str = ""  #: what it refers to
    key: str = ""  #: the call that put it out
    state: FileState = FileState.stored
    detail: str = ""  #: for people

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        plain = asdict(replace(self, file=None, text=None))
        del plain["file"], plain["text"]
        plain["at"] = None if self.at is None else self.at.isoformat()
        plain["state"] = self.state.value
        plain["sha256"], plain["size"] = self.identity
        return plain

    @property
    def identity(self) -> tuple[str, int | None]:
        """The sha256 of its bytes and how many they are; of what has none, nothing."""
        if self.file is not None:
            return self.file.sha256, self.file.size
        data = self.data
        return ("", None) if data is None else (sha256(data).hexdigest(), len(data))

    @property
    def data(self) -> bytes | None:
        """The bytes of what is stored elsewhere than in files."""
        return None if self.text is None else self.text.encode("utf-8", "surrogatepass")


class Subject:
    """A run, for those who list what it has put out."""

    def __init__(self, store: Store, row: RunRow) -> None:
        self.store = store
        self.row = row
        self._records: list[Record] | None = None

    async def records(self) -> list[Record]:
        """Those that say something of plans, threads and streams: a run may have many more."""
        if self._records is None:
            self._records = []
            streaming: set[str] = set()
            after = 0
            while page := await self.store.records(self.row.id, after=after, limit=_PAGE):
                self._records += [_thin(each) for each in page if _is_told(each, streaming)]
                after = page[-1].seq
        return self._records


def _thin(record: Record) -> Record:
    """Without the state of a turn."""
    return record._replace(args=None) if record.kind == Kind.checkpoint else record


def _is_told(record: Record, streaming: set[str]) -> bool:
    if record.kind == Kind.noted and record.name == NoteKind.stream:
        streaming.add(record.key)
    return (
        record.key in streaming
        or record.name == PLAN
        or record.name.startswith(CALLS)
        or (
            record.kind == Kind.checkpoint and '"plan"' in (record.payload or "")
        )  # only those that say something of it
    )


#: Tells what of its kind a run has put out, in order.
Lister = Callable[[Subject], Awaitable[list[Output]]]


async def outputs_of(store: Store, run_id: str, *, check: bool = True, only: tuple[Lister, ...] = ()) -> list[Output]:
    """Everything durable that a run has put out. `check`: whether the stored bytes still are what they were; `only`:
    what these list."""
    row = await row_of(store, RunId(run_id))
    subject = Subject(store, row)
    found = [output for lister in only or LISTERS for output in await lister(subject)]
    if not check:
        return found
    states: dict[FileRef, FileState] = {}
    checked = []
    for output in found:
        if output.file is not None:
            state = state_of if output.kind != WORKSPACE else tree_state
            output = replace(output, state=await state(store, row.id, output.file, known=states))
        checked.append(output)
    return checked


def named(outputs: list[Output], name: str, *, run_id: str, version: int | None = None) -> Output:
    """The output of this name; of several versions the one that was put out last, unless one is named."""
    fitting = [each for each in outputs if each.name == name and version in (None, each.version)]
    if not fitting:
        known = ", ".join(sorted({each.name for each in outputs})) or "nothing"
        which = name if version is None else f"{name} in version {version}"
        raise UsageError(f"Run {run_id} has put out no {which}; it has {known}.")
    return max(fitting, key=lambda each: (each.at is not None, each.at or 0, each.version))


# what is listed


async def record_of(subject: Subject) -> list[Output]:
    """The journal itself."""
    row = subject.row
    detail = f"{count(row.head_seq, 'record')}, the last one is {row.head_hash.hex()}"
    return [Output(name="journal", kind=RECORD, version=row.head_seq, at=_time(row.updated_at), detail=detail)]


async def artifacts_of(subject: Subject) -> list[Output]:
    """Files and references, each version once, in the order in which they were put out last."""
    latest: dict[tuple[str, int], Output] = {}
    for note in await subject.store.notes(subject.row.id, NoteKind.artifact):
        output = _read(_artifact, subject.row, note)
        latest.pop((output.name, output.version), None)
        latest[output.name, output.version] = output
    return list(latest.values())


async def workspaces_of(subject: Subject) -> list[Output]:
    """What bodies left in workspaces, each version."""
    notes = await subject.store.notes(subject.row.id, NoteKind.workspace)
    return [_read(_workspace, subject.row, note) for note in notes]


async def plans_of(subject: Subject) -> list[Output]:
    """The plan as it is now, as `todo.md`; its version is how often the run has changed it or looked at it."""
    records = await subject.records()
    plan = await plan_of(subject.store, subject.row.id, records=records)
    if plan is None:
        return []
    calls = [each for each in records if each.name == PLAN and each.kind == Kind.done]
    done = sum(item.done for item in plan.items)
    return [
        Output(
            name="todo.md",
            kind=TODO,
            version=len(calls) or 1,
            at=_time(calls[-1].at if calls else subject.row.created_at),
            media_type="text/markdown",
            text=todo_text(subject.row.id, plan.items),
            key=calls[-1].key if calls else "",
            detail=f"{done} of {count(len(plan.items), 'item')} done",
        )
    ]


async def messages_of(subject: Subject) -> list[Output]:
    """What the run said in threads, message by message. What a fork has copied was said by the original."""
    said = [each for each in await subject.records() if each.name in _SAYING]
    keys = {each.seq: each.key for each in said}
    found: list[Output] = []
    for thread_id, calls in messages_in(subject.row, said).items():
        for known in sorted(calls, key=lambda each: each.first):
            found += await _said(subject, thread_id, known, key=keys[known.seq])
    return found


async def _said(subject: Subject, thread_id: ThreadId, known: KnownMessages, *, key: str) -> list[Output]:
    stored = await subject.store.messages(
        thread_id, after=known.first - 1, upto=known.last, limit=known.last - known.first + 1
    )
    there = {message.number: message for message in stored}
    return [
        _message(thread_id, number, there.get(number), key=key)
        for number in range(known.first, known.last + 1)
        if number not in there or there[number].author == subject.row.id
    ]


def _message(thread_id: ThreadId, number: int, message: Message | None, *, key: str) -> Output:
    state, covers = FileState.missing, None
    if message is not None:
        state, covers = FileState.stored if is_sound(message) else FileState.damaged, message.covers
    return Output(
        name=f"{thread_id}/{number}",
        kind=MESSAGE,
        version=1,
        at=None if message is None else _time(message.at),
        media_type="application/json",
        text=None if message is None or state is not FileState.stored else plain_text(message.body),
        key=key,
        state=state,
        detail=f"message {number} of thread {thread_id}" + ("" if covers is None else f", a summary up to {covers}"),
    )


async def partials_left_by(subject: Subject) -> list[Output]:
    """What bodies had written to streams when they were cut off, if nobody has tried again."""
    if STREAMS not in subject.row.summary:
        return []
    records = await subject.records()
    last = {each.key: each.at for each in records}
    return [
        Output(
            name=partial.name,
            kind=PARTIAL,
            version=number,
            at=_time(last[key]),
            media_type="text/plain",
            text=partial.text,
            key=key,
            detail=f"cut off in attempt {partial.attempt}: {partial.reason.value}",
        )
        for number, (key, partial) in enumerate(partials_of(subject.row, records), start=1)
    ]


#: One line for each kind of output.
LISTERS: tuple[Lister, ...] = (
    record_of,
    artifacts_of,
    workspaces_of,
    plans_of,
    messages_of,
    partials_left_by,
)
#: What is in files.
FILES: tuple[Lister, ...] = (artifacts_of, workspaces_of)


def _read(read: Callable[[Record], Output], row: RunRow, note: Record) -> Output:
    try:
        return read(note)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptJournal(
            f"Record {note.seq} of run {row.id} cannot be read: {error!r}.", run_id=row.id, seq=note.seq
        ) from error


def _artifact(note: Record) -> Output:
    said = json.loads(note.payload or "{}")
    return Output(
        name=said["name"],
        kind=said["kind"],
        version=said["version"],
        at=_time(note.at),
        media_type=said.get("media_type", ""),
        file=FileRef.of(said) if "sha256" in said else None,
        ref=said.get("ref", ""),
        key=note.key,
        detail=f"put there by {said['by']}" if "by" in said else "",
    )


def _workspace(note: Record) -> Output:
    said = json.loads(note.payload or "{}")
    return Output(
        name=said["name"],
        kind=WORKSPACE,
        version=said["version"],
        at=_time(note.at),
        file=FileRef.of(said),
        key=note.key,
        detail=f"{count(said['files'], 'file')}, {said['bytes']:,} bytes",
    )


def _time(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)
