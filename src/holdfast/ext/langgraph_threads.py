"""The documents of threads: what the saver stores, and how it changes.

A thread has a head, notes and blobs. `["ns"]` notes the latest checkpoint of a namespace, `["ns", id]` what a
checkpoint is, `["ns", id, 0]` and so on what its tasks wrote; values are blobs, by digest. The head has the number of
the thread's generation. Every change advances it, with all that belongs to the change, in one transaction. What is
deleted is left behind: the rest moves to the next generation, so that no writer counts on a blob that somebody removes.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.errors import StoreCorrupt
from holdfast.ext.generations import remove_before
from holdfast.ext.langgraph_values import digests

if TYPE_CHECKING:
    from holdfast.app.extensions import Extension

T = TypeVar("T")

_HEADS: Final = "threads"
_WRITES: Final = 32  # documents of writes that are asked for at a time
_KEPT: Final = 256  # threads of which something is remembered

Documents = dict[str, tuple[str, int]]
#: Of each checkpoint, the newest first, what it is and then each of its writes.
Notes = Sequence[list[Any]]


@dataclass
class Thread:
    """A thread as of one revision of its head, and what has been found out about it."""

    id: str
    revision: int = 0
    generation: int = 0
    count: int = 0  # of checkpoints so far: each has its number
    latest: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)

    def space(self, sort: str, generation: int | None = None) -> str:
        return f"{sort}{self.generation if generation is None else generation}:{self.id}"


class Gone(Exception):
    """A blob is not there: it was removed with its generation, or is lost."""


def key(*parts: Any) -> str:
    return json.dumps(parts)


def refs(notes: Sequence[Any]) -> Sequence[Any]:
    """What a checkpoint and its writes refer to."""
    about, *writes = notes
    return [*about["channels"].values(), *(ref for each in writes for _, _, ref in each["writes"])]


def remember(known: OrderedDict[str, T], name: str, value: T) -> T:
    """Keep something for the threads that were used last."""
    known[name] = value
    if len(known) > _KEPT:
        known.popitem(last=False)
    return value


class Threads:
    """The threads of one extension."""

    def __init__(self, documents: Extension) -> None:
        self.documents = documents
        self._known: OrderedDict[str, Thread] = OrderedDict()
        self._locks: OrderedDict[str, asyncio.Lock] = OrderedDict()

    # reading

    async def ids(self) -> list[str]:
        return [each.key for each in await self.documents.read(_HEADS)]

    async def head(self, thread_id: str) -> Thread:
        head = await self.documents.get(_HEADS, thread_id)
        return Thread(thread_id) if head is None else Thread(thread_id, head.revision, *json.loads(head.text))

    async def has_moved(self, thread: Thread) -> bool:
        """Has somebody left this generation behind while it was read?"""
        return thread.revision > 0 and (await self.head(thread.id)).generation != thread.generation

    async def missed(self, thread: Thread, gone: Gone) -> None:
        if not await self.has_moved(thread):
            raise StoreCorrupt(f"Thread {thread.id} of LangGraph: blob {gone} of a checkpoint is not there.") from gone

    async def latest(self, thread: Thread, ns: str) -> tuple[str | None, int]:
        """The id of the latest checkpoint, and the revision of the note that says so."""
        if ns not in thread.latest:
            note = await self.documents.get(thread.space("c"), key(ns)) if thread.revision else None
            thread.latest[ns] = (None, 0) if note is None else (json.loads(note.text), note.revision)
        return thread.latest[ns]

    async def notes(self, thread: Thread, ns: str, checkpoint_id: str) -> tuple[list[Any], int]:
        """Those of one checkpoint, nothing if it is not there; and how many writes there are."""
        found: dict[str, Any] = {}
        count, first, is_more = 0, key(ns, checkpoint_id), thread.revision > 0
        while is_more:
            keys = [key(ns, checkpoint_id, count + at) for at in range(_WRITES)]
            documents = await self.documents.read(thread.space("c"), [first, *keys])
            found |= {each.key: json.loads(each.text) for each in documents}
            count += sum(each in found for each in keys)
            is_more = keys[-1] in found
        writes = [found[key(ns, checkpoint_id, number)] for number in range(count)]
        return ([found[first], *writes] if first in found else []), count

    async def all_notes(self, thread_id: str) -> tuple[Thread, Notes, int]:
        """The thread, what is noted of its checkpoints, and of how many documents that was made."""
        while True:
            thread = await self.head(thread_id)
            documents = await self.documents.read(thread.space("c")) if thread.revision else []
            if documents or not await self.has_moved(thread):
                break
        found = {tuple(json.loads(each.key)): json.loads(each.text) for each in documents}
        firsts = {place: [note] for place, note in found.items() if len(place) == 2}
        for place in sorted(place for place in found if len(place) == 3 and place[:2] in firsts):
            firsts[place[:2]].append(found[place])
        return thread, sorted(firsts.values(), key=lambda notes: notes[0]["seq"], reverse=True), len(documents)

    async def blobs(self, thread: Thread, wanted: Iterable[Any]) -> dict[str, str]:
        """All that references need: what they name, and what the groups among that name."""
        blobs: dict[str, str] = {}
        names = {each for ref in wanted for each in digests(ref, {})}
        while new := names - blobs.keys():
            blobs |= {each.key: each.text for each in await self.documents.read(thread.space("b"), sorted(new))}
            if lost := new - blobs.keys():
                raise Gone(min(lost))
            names |= {each for digest in new for each in digests(digest, blobs)}
        return blobs

    # writing

    async def advance(
        self, thread_id: str, notes: Callable[[Thread], Awaitable[Documents]], blobs: Mapping[str, str]
    ) -> None:
        """Store notes and blobs with the next revision of the head; again if another process was first."""
        async with self._lock(thread_id):
            while True:
                thread = self._known.pop(thread_id, None) or await self.head(thread_id)
                documents = await notes(thread)
                new = {digest: (text, 0) for digest, text in blobs.items() if digest not in thread.blobs}
                others = {thread.space("c"): documents, thread.space("b"): new}
                if await self._move(thread, others):
                    thread.blobs.update(new)
                    remember(self._known, thread_id, thread)
                    return

    async def keep(self, thread_id: str, choose: Callable[[Notes], Notes], copied: str | None = None) -> None:
        """Move what is chosen of a thread to its next generation, with a copy of another; remove the rest."""
        async with self._lock(thread_id):
            while True:
                self._known.pop(thread_id, None)
                thread, notes, count = await self.all_notes(thread_id)
                kept, stored, source = choose(notes), await self._stored(thread), thread
                if copied is not None:
                    source, also, _ = await self.all_notes(copied)
                    kept, stored = [*also, *kept], {**stored, **await self._stored(source)}
                elif kept == notes and (kept or not count):
                    return
                names = {each for notes in kept for ref in refs(notes) for each in digests(ref, stored)}
                if lost := names - stored.keys():
                    await self.missed(source, Gone(min(lost)))
                    continue
                thread.generation, thread.count = thread.generation + 1, len(kept)
                blobs = {name: (stored[name], 0) for name in names}
                if await self._move(thread, {thread.space("c"): _moved(kept), thread.space("b"): blobs}):
                    break
            spaces = [partial(thread.space, sort) for sort in "cb"]
            await remove_before(self.documents, thread.generation, *spaces)

    async def _stored(self, thread: Thread) -> dict[str, str]:
        documents = await self.documents.read(thread.space("b")) if thread.revision else []
        return {each.key: each.text for each in documents}

    async def _move(self, thread: Thread, others: Mapping[str, Documents]) -> bool:
        head, revision = json.dumps([thread.generation, thread.count]), thread.revision
        thread.revision += 1
        return await self.documents.advance(_HEADS, thread.id, head, revision=revision, others=others)

    def _lock(self, thread_id: str) -> asyncio.Lock:
        """So that a process does not fight with itself; another one is fought by revisions."""
        return self._locks.get(thread_id) or remember(self._locks, thread_id, asyncio.Lock())


def _moved(kept: Notes) -> Documents:
    """The notes with which a generation begins."""
    documents: Documents = {}
    for number, (about, *writes) in enumerate(reversed(kept)):
        ns, of = about["ns"], about["id"]
        documents[key(ns)] = (json.dumps(of), 0)
        documents[key(ns, of)] = (json.dumps({**about, "seq": number}), 0)
        documents |= {key(ns, of, at): (json.dumps(each), 0) for at, each in enumerate(writes)}
    return documents
