"""What bodies say while they work: the events of streams, as notes in the journal of their run.

So they are fenced, ordered and hashed as every record is, and go wherever the journal goes. A body writes into memory.
What has come together is noted and appended every 50 ms, sooner if it is much, and not before the last such append is
on disk: a disk that is full makes larger groups, and loses nothing. The outcome of a call and the `end` of what it
wrote are one append, because the journal tells of each record before it takes it (`told`).

A *part* is what one attempt of a call writes to one stream. One that was cut off is taken back by a `reset`: when the
call begins again, or with its outcome. What it had is kept as long as the call is open, for the attempt that follows.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.base import faults
from holdfast.base.data import mutable
from holdfast.codec.fastjson import encode
from holdfast.errors import UsageError
from holdfast.journal.journal import Journal
from holdfast.model import STREAMS, CutReason, Kind, NoteKind, Partial, Record

_GROUP_S = 0.05
_GROUP_CHARS = 64 * 1024
_MOST_NAMES = 100  # the row has a number for each
_ENDS = frozenset({Kind.done, Kind.unstored, Kind.failed, Kind.cancelled})


@mutable
class CutPart:
    """A part that has not come to its end, as far as the journal knows."""

    name: str
    key: str
    attempt: int
    chunks: list[str]
    reason: CutReason
    is_reset: bool = False  #: readers were told
    is_followed: bool = False  #: by another attempt
    is_over: bool = False  #: its call has its outcome

    def partial(self) -> Partial:
        return Partial("".join(self.chunks), tuple(self.chunks), self.attempt, self.reason, self.name)


def cuts_in(records: Iterable[Record]) -> dict[str, dict[str, CutPart]]:
    """The parts that were cut off, by call and stream: the last of each that had any text. One that ended has none."""
    cuts: dict[str, dict[str, CutPart]] = {}
    for record in records:
        if record.kind == Kind.noted and record.name == NoteKind.stream:
            _take(cuts.setdefault(record.key, {}), record)
        elif (own := cuts.get(record.key)) and record.kind != Kind.noted:
            for cut in own.values():
                if not cut.is_reset and (reason := reason_in(record.kind, record.payload)) is not None:
                    cut.reason = reason
                cut.is_followed = cut.is_followed or cut.is_over  # the run was opened again
                cut.is_over = record.kind in _ENDS
    return {key: own for key, own in cuts.items() if own}


def _take(own: dict[str, CutPart], record: Record) -> None:
    said = json.loads(record.payload or "{}")
    name = said["stream"]
    cut = own.get(name)
    if "text" in said:
        if cut is None or cut.is_reset:
            cut = own[name] = CutPart(name, record.key, record.attempt, [], CutReason.crash)
        cut.chunks += said["text"]
    elif "end" in said:
        own.pop(name, None)
    elif cut is not None:
        cut.reason, cut.is_reset = CutReason(said["reset"]), True
        cut.is_followed = said.get("again", False)


def reason_in(kind: str, payload: str | None) -> CutReason | None:
    """Why an attempt was cut off, by what was recorded of it then; None: the record says nothing of that."""
    match kind:
        case Kind.cancelled:
            return CutReason.cancelled
        case Kind.attempt | Kind.failed:
            said = _object(payload)
            return _reason_of(said.get("error", {}) if kind == Kind.attempt else said)
        case Kind.settled:
            cause = _object(payload).get("evidence", {}).get("cause")
            return {"timeout": CutReason.timeout, "exception": CutReason.error}.get(cause, CutReason.crash)
        case _:
            return None


def _object(payload: str | None) -> dict[str, Any]:
    """What a payload says; nothing if it is large, and lies elsewhere."""
    return json.loads(payload) if payload and payload[0] == "{" else {}


def _reason_of(error: Mapping[str, Any]) -> CutReason:
    name = str(error.get("type", "")).rpartition(".")[2]
    if name in ("TimeoutError", "LateThread"):
        return CutReason.timeout
    return CutReason.cancelled if name == "CancelledError" else CutReason.error


class StreamPart:
    """What one attempt writes to one stream. `write` may be called by any thread."""

    __slots__ = ("_log", "attempt", "chunks", "is_over", "key", "name", "pending", "reason", "size")

    def __init__(self, log: StreamLog, name: str, *, key: str, attempt: int) -> None:
        self._log = log
        self.name = name
        self.key = key
        self.attempt = attempt
        self.pending: deque[str] = deque()  #: not noted yet
        self.size = 0  #: of that, in characters, about
        self.chunks: list[str] = []  #: noted
        self.reason: CutReason | None = None  #: it was cut off
        self.is_over = False

    def write(self, chunk: str) -> None:
        if self.is_over:
            raise UsageError(
                f"Attempt {self.attempt} of {self.key} is over: nothing more can be written to its stream "
                f"{self.name!r}. Write before the body returns, and let no thread or task outlive it."
            )
        self.pending.append(chunk)
        self.size += len(chunk)
        self._log.stir(self.size)

    def stop(self, reason: CutReason | None) -> None:
        """The attempt is over: well, or cut off."""
        self.is_over, self.reason = True, self.reason or reason


class StreamLog:
    """The streams of one execution. Lives on the event loop's thread, but for `part` and `stir`."""

    def __init__(
        self, journal: Journal, cuts: dict[str, dict[str, CutPart]], *, loop: asyncio.AbstractEventLoop, thread: int
    ) -> None:
        self._journal = journal
        self._loop = loop
        self._thread = thread  # of the loop
        self._cuts = cuts
        self._parts: dict[str, dict[str, StreamPart]] = {}  # of calls that are open, in this execution
        self._timer: asyncio.TimerHandle | None = None
        self._flushed_seq = 0

    def part(self, name: str, key: str, attempt: int) -> StreamPart:
        """Where an attempt writes."""
        own = self._parts.setdefault(key, {})
        if name not in own:
            names = {name, *self._journal.summary.get(STREAMS, {})}.union(*list(self._parts.values()))
            if len(names) > _MOST_NAMES:
                raise UsageError(
                    f"Run {self._journal.row.id} has {_MOST_NAMES} streams; {name!r} would be one more. Write to a "
                    "few, under fixed names: the events say which call they are of."
                )
        return own.get(name) or own.setdefault(name, StreamPart(self, name, key=key, attempt=attempt))

    def partial(self, key: str, name: str | None = None) -> Partial | None:
        """What a former attempt of a call had; without a name of `output`, or else of what it wrote to first."""
        own = {each: cut for each, cut in self._cuts.get(key, {}).items() if cut.chunks}
        if name is None and own:
            name = "output" if "output" in own else next(iter(own))
        cut = own.get(name) if name is not None else None
        return None if cut is None else cut.partial()

    # the journal tells

    def begun(self, key: str) -> None:
        """An attempt begins: what former ones wrote is taken back."""
        for part in self._parts.pop(key, {}).values():
            self._cut(part, CutReason.error)
        for cut in self._cuts.get(key, {}).values():
            if not cut.is_reset:
                faults.point("stream.before_reset")
                self._note(cut, {"reset": cut.reason, "again": True})
                cut.is_reset = cut.is_followed = True

    def told(self, kind: str, key: str, payload: str | None) -> None:
        """A record of a call is about to be added."""
        if kind == Kind.intent:
            self.begun(key)
        elif kind in _ENDS:
            self._end(key, kind, payload)
        elif key in self._parts and (reason := reason_in(kind, payload)) is not None:
            for part in self._parts[key].values():
                self._drain(part)
                part.stop(reason)

    def _end(self, key: str, kind: str, payload: str | None) -> None:
        reason = reason_in(kind, payload)
        parts = list(self._parts.pop(key, {}).values())
        for part in parts:
            self._drain(part)
        for part in parts:
            if part.reason is None and reason is None:
                part.stop(None)
                if part.chunks or part.name in self._cuts.get(key, {}):  # else nobody has heard of it
                    self._note(part, {"end": True})
                self._cuts.get(key, {}).pop(part.name, None)
            else:
                self._cut(part, reason or CutReason.error)
        for cut in self._cuts.get(key, {}).values():
            if not cut.is_reset:
                self._note(cut, {"reset": cut.reason})
                cut.is_reset = True
        if reason is None:
            self._cuts.pop(key, None)

    def _cut(self, part: StreamPart, reason: CutReason) -> None:
        self._drain(part)
        part.stop(reason)
        if part.chunks:
            own = self._cuts.setdefault(part.key, {})
            own[part.name] = CutPart(part.name, part.key, part.attempt, part.chunks, part.reason or reason)

    # from memory to the journal

    def stir(self, size: int) -> None:
        """A part has something that is not noted; about so many characters."""
        if self._timer is not None and size < _GROUP_CHARS:
            return
        if threading.get_ident() == self._thread:
            self._soon()
        else:
            self._loop.call_soon_threadsafe(self._soon)

    def _soon(self) -> None:
        is_much = any(part.size >= _GROUP_CHARS for own in list(self._parts.values()) for part in list(own.values()))
        if is_much and self._journal.durable_seq >= self._flushed_seq:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(_GROUP_S, self._flush)

    def _flush(self) -> None:
        """Have all that was written appended, if the last that was is on disk."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        journal = self._journal
        if journal.lost:
            return
        parts = [part for own in list(self._parts.values()) for part in list(own.values()) if part.pending]
        if not parts:
            return
        if journal.durable_seq < self._flushed_seq:
            self._timer = self._loop.call_later(_GROUP_S, self._flush)
            return
        for part in parts:
            self._drain(part)
        faults.point("stream.before_append")
        self._flushed_seq = journal.flush(urgent=False)

    def _drain(self, part: StreamPart) -> None:
        """Note what a part has, in pieces that are not too large."""
        pending = part.pending
        while pending:
            chunks: list[str] = []
            size = 0
            while pending and size < _GROUP_CHARS:
                chunks.append(chunk := pending.popleft())
                size += len(chunk)
            part.size = max(0, part.size - size)
            part.chunks += chunks
            self._note(part, {"text": chunks}, count=len(chunks))

    def _note(self, of: StreamPart | CutPart, said: Mapping[str, Any], *, count: int = 1) -> None:
        journal, name = self._journal, of.name
        known = journal.summary.get(STREAMS, {})
        last = known.get(name, 0) + count
        journal.summary[STREAMS] = {**known, name: last}  # another object: the rows before keep theirs
        payload = encode({"stream": name, "last": last, **said})
        journal.add(Kind.noted, of.key, NoteKind.stream, attempt=of.attempt, payload=payload, soon=False)
