"""Crashes inside one process: what is on disk at some moment, as a process killed then would leave it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.base import faults
from holdfast.base.config import Settings
from holdfast.journal.chain import first_hash, seal_row
from holdfast.model import OUTCOMES, Append, Kind, Record, RunId, RunRow, Status
from holdfast.store import open_store
from tests.concurrency import programs

RUN = RunId("run")


@dataclass(frozen=True)
class Crash:
    """A store as it was right after a commit, and the world at that moment."""

    store: Path
    world: programs.World


class Camera:
    """Stands in for the crash points: copies the store after some commits, while nothing can be written to it."""

    def __init__(self, store: Path, crashes: Path, wanted: Callable[[int], bool]) -> None:
        self._store = store
        self._crashes = crashes
        self._wanted = wanted
        self._commits = 0
        self.taken: list[Crash] = []

    def hit(self, name: str) -> None:
        if name != "append.after_commit":
            return
        self._commits += 1
        if self._wanted(self._commits):
            folder = self._crashes / str(self._commits)
            folder.mkdir(parents=True)
            for name in (self._store.name, f"{self._store.name}-wal"):
                shutil.copy(self._store.with_name(name), folder / name)
            workers = f"{self._store.name}-workers"
            shutil.copytree(self._store.with_name(workers), folder / workers, copy_function=_copied)
            self.taken.append(Crash(folder / self._store.name, programs.world.copy()))


def _copied(source: str, target: str) -> None:
    """A copy; of a worker's lock the very file, since another one would prove nothing of that worker."""
    (os.link if source.endswith(".lock") else shutil.copy)(source, target)


@contextmanager
def camera(store: Path, wanted: Callable[[int], bool]) -> Iterator[Camera]:
    """Take pictures of the store after the n-th commit, where `wanted(n)`."""
    camera = Camera(store, store.parent / "crashes", wanted)
    before, faults._faults = faults._faults, camera  # type: ignore[assignment]
    try:
        yield camera
    finally:
        faults._faults = before


@dataclass(frozen=True)
class Ended:
    """A finished run."""

    result: Any
    row: RunRow
    records: list[Record]
    blobs: dict[str, bytes]

    def calls(self) -> dict[str, str]:
        return completed(self.records)

    def keys(self, *kinds: str) -> list[str]:
        """The keys of the records of these kinds (completed calls, unless told), in order."""
        return [r.key for r in self.records if r.kind in (kinds or (Kind.done,))]

    @property
    def orders(self) -> dict[str, list[str]]:
        return dict(self.result["orders"])


def completed(records: list[Record]) -> dict[str, str]:
    """The completed calls: the place that each belongs to, by key. (A failed call names it in its exception.)"""
    found = {}
    for record in records:
        if record.kind == Kind.done and record.payload and record.payload.startswith("["):
            found[record.key] = str(json.loads(record.payload)[0])
    return found


async def execute(
    store: Path, call: hf.Call[Any], *, timeout_s: float = 60, backlog: int = 1000, is_eager: bool = False
) -> Ended:
    """Start the run, or go on with it, and wait for its end."""
    agents: list[hf.Agent[..., Any]] = [programs.program, programs.helper, call.agent]
    if is_eager and sys.version_info >= (3, 12):
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with hf.connect(str(store), agents=agents, settings=Settings(sweep_s=0.05, backlog_records=backlog)) as app:
        run = await app.start(call, id=RUN)
        result = await run.result(timeout=timeout_s)
        return await ended_of(app, result)


async def ended_of(app: hf.Holdfast, result: Any) -> Ended:
    loaded = await app._store.load(RUN)
    assert loaded is not None
    texts = [text for record in loaded[1] for text in (record.payload, record.args) if text and text.startswith("@")]
    blobs = await app._store.blobs(RUN, sorted({text[1:].partition(":")[0] for text in texts}))
    return Ended(result, *loaded, blobs)


def run_here(
    store: Path, call: hf.Call[Any], world: programs.World | None = None, *, backlog: int = 1000, is_eager: bool = False
) -> Ended:
    """One process' share of a run: from wherever it is to its end."""
    programs.world = world or programs.World()
    return asyncio.run(execute(store, call, backlog=backlog, is_eager=is_eager))


def run_again(
    ended: Ended, call: hf.Call[Any], folder: Path, *, length: int = -1, world: programs.World | None = None
) -> Ended:
    """The run once more, with the first `length` records of its journal; all but its end, unless told."""
    length = length if length > 0 else len(ended.records) + length
    return run_here(cut(ended, length, folder / f"again-{length}" / "holdfast.db"), call, world)


async def _cut(ended: Ended, length: int, target: Path) -> None:
    store = open_store(str(target), settings=Settings())
    await store.open()
    records = tuple(ended.records[:length])
    last = records[-1]
    row = replace(
        ended.row,
        status=Status.queued,
        reason=None,
        wake_at=ended.row.created_at,
        mail=0,
        owner=None,
        epoch=last.epoch,
        head_seq=last.seq,
        head_hash=last.hash,
        claims=0,
    )
    await store.create(
        Append(seal_row(row), 0, first_hash(row.id, row.nonce), records, tuple(ended.blobs.items())), owner=None
    )
    await store.close()


def cut(ended: Ended, length: int, target: Path) -> Path:
    """A store whose only run has the first `length` records of a finished one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_cut(ended, length, target))
    return target


def world_of(ended: Ended, length: int, world: programs.World, chance: random.Random) -> programs.World:
    """The world at the moment when a prefix of the journal was all there was; an open effect may have happened."""
    intents = {}
    for record in ended.records[:length]:
        if record.kind == Kind.intent:
            intents[record.key] = json.loads(record.payload or "{}")["idempotency_key"]
        elif record.kind in OUTCOMES and record.key in intents:
            intents[record.key] += " done"
    kept = {}
    for mark in intents.values():
        key, _, is_done = mark.partition(" ")
        if key in world.effects and (is_done or chance.random() < 0.5):
            kept[key] = world.effects[key]
    return programs.World(chance, effects=kept)
