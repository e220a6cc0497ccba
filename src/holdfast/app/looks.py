"""What an app can look at in a store: runs, doubts, questions, workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.control.filters import Filters, checked_limit, run_filter
from holdfast.errors import RunNotFound, UsageError
from holdfast.handle.acts import is_in_run
from holdfast.handle.decisions import InDoubt, Question
from holdfast.history.doubts import all_doubts
from holdfast.history.facts import object_in
from holdfast.history.info import RunInfo, info_of
from holdfast.store.contract import Store
from holdfast.worker.executor import Executor


@data
class WorkerInfo:
    """A process that executes runs."""

    id: str
    pid: int
    host: str
    started_at: datetime
    alive: bool
    proof: str | None  #: how it is known that it is dead: lock, boot, lease
    runs: int  #: that it owns
    agents: tuple[str, ...]  #: that it executes
    queues: tuple[str, ...] | None  #: that it takes runs from; None: from all
    concurrency: int | None
    versions: Mapping[str, str]  #: of its agents, those that have one
    holdfast: str | None


async def runs(store: Store, filters: Filters, *, limit: int, after: str | None) -> list[RunInfo]:
    which = run_filter(filters, limit=limit, after=after)
    dead = await store.dead_workers()
    return [info_of(row, is_lost=row.owner in dead) for row in await store.runs(which)]


async def in_doubt(here: Executor) -> list[InDoubt]:
    found = await all_doubts(here.store)
    if is_in_run():  # what each run has is recorded
        handles = [here.handle(*which) for which in dict.fromkeys((row.id, row.thread_id) for row, _ in found)]
        return [doubt for handle in handles for doubt in await handle.in_doubt()]
    return [InDoubt(here.store, row.id, **asdict(doubt)) for row, doubt in found]


async def questions(store: Store, *, only_open: bool, limit: int) -> list[Question]:
    rows = await store.questions(only_open=only_open, limit=checked_limit(limit))
    return [Question._of(store, row) for row in rows]


async def question(store: Store, given: str) -> Question:
    found = await store.questions(id_prefix=given, only_open=False, limit=3)
    exact = [row for row in found if row.id == given] or found
    if not exact:
        raise RunNotFound(f"There is no question {given!r} in {store.url}; see `holdfast questions`.")
    if len(exact) > 1:
        raise UsageError(f"{given!r} fits several questions; give more of the id.")
    return Question._of(store, exact[0])


async def workers(store: Store) -> list[WorkerInfo]:
    dead, owned = await store.dead_workers(), await store.surveys.owned_counts()
    told = {each.name: each.body for each in await store.definitions("worker")}
    return [
        WorkerInfo(
            id=worker.id,
            pid=worker.pid,
            host=worker.host,
            started_at=as_time(worker.started_at),
            alive=worker.id not in dead,
            proof=None if (proof := dead.get(worker.id)) is None else proof.value,
            runs=owned.get(worker.id, 0),
            **_told(told.get(worker.id, "")),
        )
        for worker in await store.workers()
    ]


def _told(said: str) -> dict[str, Any]:
    """What it tells of itself; one of an older version tells nothing."""
    told = object_in(said)
    queues = told.get("queues")
    return {
        "agents": tuple(told.get("agents") or ()),
        "queues": None if queues is None else tuple(queues),
        "concurrency": told.get("concurrency"),
        "versions": dict(told.get("versions") or {}),
        "holdfast": told.get("holdfast"),
    }
