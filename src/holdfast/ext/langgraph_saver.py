"""A checkpointer of LangGraph in the store of the runs, for graphs that keep threads of their own.

    async with hf.connect() as app:
        graph = builder.compile(checkpointer=Saver(app))

A checkpoint is there whole or not at all. It follows the latest one of its namespace: of two who have read the same,
one is refused. Who goes back to an older checkpoint has asked for it by its id, and may; such a config says so.
"""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
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

from holdfast.errors import Fenced, UsageError
from holdfast.ext.langgraph_threads import Documents, Gone, Notes, Thread, Threads, key, refs, remember
from holdfast.ext.langgraph_values import Writing, read

if TYPE_CHECKING:
    from holdfast.app.app import Holdfast

P = ParamSpec("P")
T = TypeVar("T")

_ASKED: Final = "__holdfast_asked"  # in a config: this checkpoint was asked for, whatever is the latest


def _blocking(call: Callable[Concatenate[Saver, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Saver, P], T]:
    @functools.wraps(call)
    def blocking(self: Saver, /, *args: P.args, **options: P.kwargs) -> T:
        return self._threads.documents.from_thread(call(self, *args, **options))

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
        self._threads = Threads(app.extension(name))
        self._seen_empty: OrderedDict[str, None] = OrderedDict()

    # reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, asked = _place(config)
        while True:
            thread = await self._threads.head(thread_id)
            found = asked or (await self._threads.latest(thread, ns))[0]
            notes = (await self._threads.notes(thread, ns, found))[0] if found else []
            if notes:
                try:
                    return await self._tuple(thread, notes, is_asked=asked is not None)
                except Gone as gone:
                    await self._threads.missed(thread, gone)
            elif not await self._threads.has_moved(thread):
                if not ns and not asked:
                    remember(self._seen_empty, thread_id, None)
                return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        given: Mapping[str, Any] = (config or {}).get("configurable") or {}
        until = before["configurable"].get("checkpoint_id") if before else None
        for thread_id in [str(given["thread_id"])] if "thread_id" in given else await self._threads.ids():
            thread, notes, _ = await self._threads.all_notes(thread_id)
            end = next((each[0]["seq"] for each in notes if each[0]["id"] == until), None)
            for each in notes:
                about = each[0]
                is_before = until is None or (about["seq"] < end if end is not None else about["id"] < until)
                is_here = given.get("checkpoint_ns", about["ns"]) == about["ns"]
                if not (is_before and is_here and (given.get("checkpoint_id") or about["id"]) == about["id"]):
                    continue
                metadata = read(self.serde, about["metadata"], {})
                if any(metadata.get(name) != value for name, value in (filter or {}).items()):
                    continue
                if limit is not None and (limit := limit - 1) < 0:
                    return
                try:
                    yield await self._tuple(thread, each, is_asked=True)
                except Gone as gone:
                    await self._threads.missed(thread, gone)

    async def _tuple(self, thread: Thread, notes: Sequence[Any], *, is_asked: bool) -> CheckpointTuple:
        about, *writes = notes
        blobs = await self._threads.blobs(thread, refs(notes))
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

    # writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, ns, parent = _place(config)
        of, writing = checkpoint["id"], Writing(self.serde)
        about = {
            "ns": ns,
            "id": of,
            "parent": parent,
            "metadata": writing.pair(get_serializable_checkpoint_metadata(config, metadata)),
            "checkpoint": writing.pair({name: value for name, value in checkpoint.items() if name != "channel_values"}),
            "channels": {name: writing.refer(value) for name, value in checkpoint["channel_values"].items()},
        }
        is_free = config["configurable"].get(_ASKED, "") == parent or metadata.get("source") == "fork"
        is_free = is_free or (parent is None and (ns != "" or thread_id not in self._seen_empty))

        async def notes(thread: Thread) -> Documents:
            latest, revision = await self._threads.latest(thread, ns)
            if not is_free and latest not in (None, parent, of):
                raise Fenced(
                    f"Thread {thread_id} of LangGraph has another writer: checkpoint {latest} was stored after "
                    f"{parent or 'the thread was found empty'}, which this one follows. Nothing is changed. Let one "
                    "invocation of a thread end before the next begins, or name the checkpoint_id to go on from."
                )
            known = await self._threads.documents.get(thread.space("c"), key(ns, of)) if latest == of else None
            thread.latest[ns] = (of, revision + 1)
            text = json.dumps({**about, "seq": thread.count})
            thread.count += 1
            return {
                key(ns): (json.dumps(of), revision),
                key(ns, of): (text, known.revision if known is not None else 0),
            }

        await self._threads.advance(thread_id, notes, writing.blobs)
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": of}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns, of = _place(config)
        if of is None:
            raise UsageError("Writes belong to a checkpoint: there is no checkpoint_id in the config.")
        writing = Writing(self.serde)
        stored = [[WRITES_IDX_MAP.get(name, at), name, writing.refer(value)] for at, (name, value) in enumerate(writes)]
        text = json.dumps({"task": task_id, "path": task_path, "writes": stored})

        async def notes(thread: Thread) -> Documents:
            count = thread.writes.get(key(ns, of))
            if count is None:
                count = (await self._threads.notes(thread, ns, of))[1]
            thread.writes[key(ns, of)] = count + 1
            return {key(ns, of, count): (text, 0)}

        await self._threads.advance(thread_id, notes, writing.blobs)

    # deleting

    async def adelete_thread(self, thread_id: str) -> None:
        await self._threads.keep(thread_id, lambda notes: [])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        def others(notes: Notes) -> Notes:
            return [each for each in notes if read(self.serde, each[0]["metadata"], {}).get("run_id") not in run_ids]

        for thread_id in await self._threads.ids() if run_ids else ():
            await self._threads.keep(thread_id, others)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"A thread is pruned by keep_latest or delete; got {strategy!r}.")
        for thread_id in thread_ids:
            await self._threads.keep(thread_id, self._needed if strategy == "keep_latest" else lambda notes: [])

    def _needed(self, notes: Notes) -> Notes:
        """The latest of each namespace, and those before it that have what its delta channels are made of."""
        kept: dict[str, Any] = {}
        for latest in {each[0]["ns"]: each for each in reversed(notes)}.values():
            by_id = {each[0]["id"]: each for each in notes if each[0]["ns"] == latest[0]["ns"]}
            wanted = set(read(self.serde, latest[0]["metadata"], {}).get("counters_since_delta_snapshot") or ())
            at: Sequence[Any] | None = latest
            while at is not None:
                kept[key(at[0]["ns"], at[0]["id"])] = at
                wanted -= at[0]["channels"].keys()
                at = by_id.get(at[0]["parent"]) if wanted else None
        return [each for each in notes if key(each[0]["ns"], each[0]["id"]) in kept]

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._threads.keep(target_thread_id, lambda notes: notes, copied=source_thread_id)

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


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    given = config.get("configurable") or {}
    if "thread_id" not in given:
        raise UsageError('A checkpoint belongs to a thread: config={"configurable": {"thread_id": "ada"}}.')
    return str(given["thread_id"]), str(given.get("checkpoint_ns") or ""), given.get("checkpoint_id")
