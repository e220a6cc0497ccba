"""A checkpointer of LangGraph in the store of the runs, for graphs that keep threads of their own.

    async with hf.connect() as app:
        graph = builder.compile(checkpointer=Saver(app))

Every write of a thread advances its head, with all that belongs to it, in one transaction: a checkpoint is there whole
or not at all. A checkpoint follows the latest one of its namespace. Of two who have read the same, one is refused; who
goes back to an older checkpoint asked for it by its id, and may. What is deleted is left behind: the rest moves to the
next generation of the thread, with the head, and who writes on the old one is refused.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import Fenced, StoreCorrupt, UsageError
from holdfast.ext.langgraph_values import Writing, digests, read

if TYPE_CHECKING:
    from holdfast.app.app import Holdfast
    from holdfast.app.extensions import Extension

P = ParamSpec("P")
T = TypeVar("T")

_HEADS: Final = "threads"
#: In a config: the checkpoint was asked for by its id, so what follows it need not follow the latest.
_ASKED: Final = "__holdfast_asked"
_WRITES: Final = 32  # documents of writes that are asked for at a time
_KEPT: Final = 256  # threads of which something is remembered

Documents = dict[str, tuple[str, int]]
Notes = Sequence[list[Any]]  # of each checkpoint, what is noted of it, and each of its writes
Chosen = Callable[[Notes], Notes]


@dataclass
class _Thread:
    """A thread as of one revision of its head, and what has been found out about it."""

    id: str
    revision: int = 0
    generation: int = 0
    latest: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)

    def space(self, sort: str, generation: int | None = None) -> str:
        return f"{sort}{self.generation if generation is None else generation}:{self.id}"


def _key(*parts: Any) -> str:
    return json.dumps(parts)


def _blocking(call: Callable[Concatenate[Saver, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Saver, P], T]:
    @functools.wraps(call)
    def blocking(self: Saver, /, *args: P.args, **options: P.kwargs) -> T:
        return self._documents.from_thread(call(self, *args, **options))

    return blocking


class Saver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of graphs next to the runs. What a call has stored is on disk when it returns.

    Types of your own that are in a state are named in `allow`: nothing else is made from what is stored. Make it where
    the app is open; its plain methods are for other threads, on the app's own they raise.

    Example: `graph = builder.compile(checkpointer=Saver(app, allow=[Order]))`
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        name: str = "langgraph",
        allow: Iterable[type] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=tuple(allow) or None))
        self._documents: Extension = app.extension(name)
        self._threads: OrderedDict[str, _Thread] = OrderedDict()
        self._locks: OrderedDict[str, asyncio.Lock] = OrderedDict()
        self._seen_empty: OrderedDict[str, None] = OrderedDict()

    # reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, asked = _place(config)
        while True:
            thread = await self._head(thread_id)
            found = asked or (await self._latest(thread, ns))[0]
            if found is None:
                if not ns:
                    _remember(self._seen_empty, thread_id, None)
                return None
            notes, _ = await self._notes(thread, ns, found)
            try:
                return None if not notes else await self._tuple(thread, notes, is_asked=asked is not None)
            except KeyError as missing:
                await self._still(thread, missing)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        given: Mapping[str, Any] = (config or {}).get("configurable") or {}
        ids = (
            [str(given["thread_id"])]
            if "thread_id" in given
            else [each.key for each in await self._documents.read(_HEADS)]
        )
        until = before["configurable"].get("checkpoint_id") if before else None
        for thread in [await self._head(each) for each in ids]:
            notes = await self._all_notes(thread)
            end = next((each[0]["seq"] for each in notes if each[0]["id"] == until), None)
            for each in notes:
                about = each[0]
                if (
                    given.get("checkpoint_ns", about["ns"]) != about["ns"]
                    or (given.get("checkpoint_id") or about["id"]) != about["id"]
                    or (until is not None and not (about["seq"] < end if end is not None else about["id"] < until))
                ):
                    continue
                metadata = read(self.serde, about["metadata"], {})
                if any(metadata.get(name) != value for name, value in (filter or {}).items()):
                    continue
                if limit is not None:
                    if limit <= 0:
                        return
                    limit -= 1
                try:
                    yield await self._tuple(thread, each, is_asked=True)
                except KeyError as missing:
                    await self._still(thread, missing)

    async def _tuple(self, thread: _Thread, notes: list[Any], *, is_asked: bool) -> CheckpointTuple:
        about, *writes = notes
        blobs = await self._blobs(thread, _refs(notes))
        pending: dict[tuple[str, str, int], tuple[str, str, Any]] = {}
        for each in writes:
            for index, channel, ref in each["writes"]:
                place = (each["path"], each["task"], index)
                if index < 0 or place not in pending:  # of what a task wrote the first counts, of what it met the last
                    pending[place] = (each["task"], channel, read(self.serde, ref, blobs))
        checkpoint = read(self.serde, about["checkpoint"], {})
        checkpoint["channel_values"] = {name: read(self.serde, ref, blobs) for name, ref in about["channels"].items()}
        here = {"thread_id": thread.id, "checkpoint_ns": about["ns"], "checkpoint_id": about["id"]}
        return CheckpointTuple(
            config={"configurable": {**here, **({_ASKED: about["id"]} if is_asked else {})}},
            checkpoint=checkpoint,
            metadata=read(self.serde, about["metadata"], {}),
            parent_config={"configurable": {**here, "checkpoint_id": about["parent"]}} if about["parent"] else None,
            pending_writes=[pending[place] for place in sorted(pending)],
        )

    async def _head(self, thread_id: str) -> _Thread:
        head = await self._documents.get(_HEADS, thread_id)
        return _Thread(thread_id) if head is None else _Thread(thread_id, head.revision, json.loads(head.text))

    async def _latest(self, thread: _Thread, ns: str) -> tuple[str | None, int]:
        if ns not in thread.latest:
            note = await self._documents.get(thread.space("c"), _key(ns)) if thread.revision else None
            thread.latest[ns] = (None, 0) if note is None else (json.loads(note.text), note.revision)
        return thread.latest[ns]

    async def _notes(self, thread: _Thread, ns: str, checkpoint_id: str) -> tuple[list[Any], int]:
        """What is noted of a checkpoint, then each of its writes; nothing if it is not there. And how many writes."""
        found: dict[str, Any] = {}
        count, first = 0, _key(ns, checkpoint_id)
        while True:
            keys = [_key(ns, checkpoint_id, number) for number in range(count, count + _WRITES)]
            documents = await self._documents.read(thread.space("c"), [first, *keys])
            found |= {each.key: json.loads(each.text) for each in documents}
            missing = next((at for at, key in enumerate(keys) if key not in found), _WRITES)
            count += missing
            if missing < _WRITES:
                break
        writes = [found[_key(ns, checkpoint_id, number)] for number in range(count)]
        return ([found[first], *writes] if first in found else []), count

    async def _all_notes(self, thread: _Thread) -> Notes:
        """The same of all checkpoints of a thread, the newest first."""
        found = {tuple(json.loads(each.key)): json.loads(each.text) for each in await self._read(thread, "c")}
        firsts = {key: [note] for key, note in found.items() if len(key) == 2}
        for key in sorted(key for key in found if len(key) == 3 and key[:2] in firsts):
            firsts[key[:2]].append(found[key])
        return sorted(firsts.values(), key=lambda notes: notes[0]["seq"], reverse=True)

    async def _blobs(self, thread: _Thread, refs: Iterable[Any]) -> dict[str, str]:
        """All that references need: what they name, and what the groups among that name."""
        blobs: dict[str, str] = {}
        wanted = {each for ref in refs for each in digests(ref)}
        while new := wanted - blobs.keys():
            found = await self._documents.read(thread.space("b"), sorted(new))
            blobs |= {each.key: each.text for each in found}
            if lost := new - blobs.keys():
                raise KeyError(min(lost))
            wanted |= {each for digest in new for each in digests(digest, blobs)}
        return blobs

    async def _read(self, thread: _Thread, sort: str) -> list[Any]:
        return await self._documents.read(thread.space(sort)) if thread.revision else []

    async def _still(self, thread: _Thread, missing: KeyError) -> None:
        """Whoever deletes moves the thread on while it is read."""
        if (await self._head(thread.id)).generation == thread.generation:
            raise StoreCorrupt(
                f"Thread {thread.id} of LangGraph: blob {missing} of a checkpoint is not there."
            ) from missing

    # writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, ns, parent = _place(config)
        writing = Writing(self.serde)
        about = {
            "ns": ns,
            "id": checkpoint["id"],
            "parent": parent,
            "metadata": writing.pair(get_serializable_checkpoint_metadata(config, metadata)),
            "checkpoint": writing.pair({name: value for name, value in checkpoint.items() if name != "channel_values"}),
            "channels": {name: writing.refer(value) for name, value in checkpoint["channel_values"].items()},
        }

        async def notes(thread: _Thread) -> Documents:
            latest, revision = await self._latest(thread, ns)
            is_free = parent is not None and config["configurable"].get(_ASKED) == parent
            is_blind = parent is None and (ns != "" or thread_id not in self._seen_empty)
            if not (
                latest in (None, parent, checkpoint["id"]) or is_free or is_blind or metadata.get("source") == "fork"
            ):
                raise Fenced(
                    f"Thread {thread_id} of LangGraph has another writer: checkpoint {latest} was stored after "
                    f"{parent or 'the thread was found empty'}, which this one follows. Nothing is changed. Let one "
                    "invocation of a thread end before the next begins, or name the checkpoint_id to go on from."
                )
            is_again = latest == checkpoint["id"]
            known = await self._documents.get(thread.space("c"), _key(ns, checkpoint["id"])) if is_again else None
            there = known.revision if known is not None else 0
            thread.latest[ns] = (checkpoint["id"], revision + 1)
            return {
                _key(ns): (json.dumps(checkpoint["id"]), revision),
                _key(ns, checkpoint["id"]): (json.dumps({**about, "seq": [thread.generation, thread.revision]}), there),
            }

        await self._advance(thread_id, notes, writing)
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns, of = _place(config)
        if of is None:
            raise UsageError("Writes belong to a checkpoint: there is no checkpoint_id in the config.")
        writing = Writing(self.serde)
        stored = [[WRITES_IDX_MAP.get(name, at), name, writing.refer(value)] for at, (name, value) in enumerate(writes)]
        text = json.dumps({"task": task_id, "path": task_path, "writes": stored})

        async def notes(thread: _Thread) -> Documents:
            key = _key(ns, of)
            if key not in thread.writes:
                thread.writes[key] = (await self._notes(thread, ns, of))[1] if thread.revision else 0
            thread.writes[key] += 1
            return {_key(ns, of, thread.writes[key] - 1): (text, 0)}

        await self._advance(thread_id, notes, writing)

    async def _advance(self, thread_id: str, notes: Callable[[_Thread], Any], writing: Writing) -> None:
        """Store something with the next revision of the head; again if another process was first."""
        async with self._lock(thread_id):
            while True:
                thread = self._threads.pop(thread_id, None) or await self._head(thread_id)
                documents = await notes(thread)
                blobs = {key: (text, 0) for key, text in writing.blobs.items() if key not in thread.blobs}
                others = {thread.space("c"): documents, thread.space("b"): blobs}
                if await self._move(thread, thread.generation, others):
                    thread.blobs.update(blobs)
                    _remember(self._threads, thread_id, thread)
                    return

    async def _move(self, thread: _Thread, generation: int, others: Mapping[str, Documents]) -> bool:
        head, revision = json.dumps(generation), thread.revision
        thread.revision += 1
        return await self._documents.advance(_HEADS, thread.id, head, revision=revision, others=others)

    def _lock(self, thread_id: str) -> asyncio.Lock:
        return self._locks.get(thread_id) or _remember(self._locks, thread_id, asyncio.Lock())

    # deleting

    async def adelete_thread(self, thread_id: str) -> None:
        await self._keep(thread_id, lambda notes: [])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        gone = set(run_ids)

        def others(notes: Notes) -> Notes:
            return [each for each in notes if read(self.serde, each[0]["metadata"], {}).get("run_id") not in gone]

        for head in await self._documents.read(_HEADS) if gone else ():
            await self._keep(head.key, others)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"A thread is pruned by keep_latest or delete; got {strategy!r}.")
        for thread_id in thread_ids:
            await self._keep(thread_id, self._needed if strategy == "keep_latest" else lambda notes: [])

    def _needed(self, notes: Notes) -> Notes:
        """The latest of each namespace, and those before it that have what its delta channels are made of."""
        kept: dict[str, list[Any]] = {}
        for latest in {each[0]["ns"]: each for each in reversed(notes)}.values():
            by_id = {each[0]["id"]: each for each in notes if each[0]["ns"] == latest[0]["ns"]}
            wanted = set(read(self.serde, latest[0]["metadata"], {}).get("counters_since_delta_snapshot") or ())
            at: list[Any] | None = latest
            while at is not None:
                kept[_key(at[0]["ns"], at[0]["id"])] = at
                wanted -= at[0]["channels"].keys()
                at = by_id.get(at[0]["parent"]) if wanted else None
        return list(kept.values())

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._keep(target_thread_id, lambda notes: notes, source_thread_id)

    async def _keep(self, thread_id: str, choose: Chosen, copied: str | None = None) -> None:
        """Move what is chosen of a thread to its next generation, with a copy of another; the rest is left behind."""
        async with self._lock(thread_id):
            while True:
                self._threads.pop(thread_id, None)
                thread = await self._head(thread_id)
                sources = [thread] if copied is None else [await self._head(copied), thread]
                notes = [each for source in sources for each in await self._all_notes(source)]
                kept = choose(notes)
                if kept == notes and copied is None:
                    return
                stored = {each.key: each.text for source in sources for each in await self._read(source, "b")}
                refs = [ref for each in kept for ref in _refs(each)]
                new = thread.generation + 1
                try:
                    blobs = {key: (stored[key], 0) for ref in refs for key in digests(ref, stored)}
                except KeyError as missing:
                    await self._still(sources[0], missing)
                    continue
                others = {thread.space("c", new): _moved(kept), thread.space("b", new): blobs}
                if await self._move(thread, new, others):
                    break
            for generation in range(max(0, new - 3), new):  # of those before, too: their deleter may have been killed
                for sort in "cb":
                    await self._documents.remove(thread.space(sort, generation))

    # the same for threads

    async def _listed(self, *args: Any, **options: Any) -> Iterator[CheckpointTuple]:
        return iter([each async for each in self.alist(*args, **options)])

    get_tuple = _blocking(aget_tuple)
    list = _blocking(_listed)
    put = _blocking(aput)
    put_writes = _blocking(aput_writes)
    delete_thread = _blocking(adelete_thread)
    delete_for_runs = _blocking(adelete_for_runs)
    copy_thread = _blocking(acopy_thread)
    prune = _blocking(aprune)


def _refs(notes: Sequence[Any]) -> Sequence[Any]:
    about, *writes = notes
    return [*about["channels"].values(), *(ref for each in writes for _, _, ref in each["writes"])]


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    given = config["configurable"]
    return str(given["thread_id"]), str(given.get("checkpoint_ns") or ""), given.get("checkpoint_id")


def _remember(known: OrderedDict[str, T], key: str, value: T) -> T:
    known[key] = value
    if len(known) > _KEPT:
        known.popitem(last=False)
    return value


def _moved(kept: Sequence[list[Any]]) -> Documents:
    """What is noted of checkpoints, the newest first, as the beginning of a generation."""
    documents: Documents = {}
    for number, (about, *writes) in enumerate(reversed(kept)):
        ns, of = about["ns"], about["id"]
        documents[_key(ns)] = (json.dumps(of), 0)
        documents[_key(ns, of)] = (json.dumps({**about, "seq": [0, number]}), 0)
        documents |= {_key(ns, of, at): (json.dumps(each), 0) for at, each in enumerate(writes)}
    return documents
