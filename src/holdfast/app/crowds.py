"""What an app does to many runs at once: to all that are unfinished and fit its filters."""

from __future__ import annotations

from holdfast.app.looks import runs
from holdfast.control import lifecycle
from holdfast.control.filters import Filters
from holdfast.durations import Duration
from holdfast.history.info import RunInfo
from holdfast.model import FINAL, RunId, Status, ThreadId
from holdfast.store.contract import Store
from holdfast.worker.executor import Executor

_MOST = 1000  # runs acted on in one page


async def pause_all(here: Executor, filters: Filters, *, by: str | None, note: str) -> list[str]:
    return [
        run.id
        for run in await _unfinished(here.store, filters)
        if run.status is not Status.paused
        and await here.handle(RunId(run.id), ThreadId(run.thread_id)).pause(by=by, note=note) is Status.paused
    ]


async def resume_all(here: Executor, filters: Filters, *, by: str | None, note: str) -> list[str]:
    running = await _unfinished(here.store, {**filters, "status": Status.running})
    found = await _unfinished(here.store, {**filters, "status": Status.paused})
    every = {run.id: run for run in [*found, *running]}
    return [run_id for run_id in every if await lifecycle.resume(here.store, RunId(run_id), by=by, note=note)]


async def cancel_all(
    here: Executor, filters: Filters, *, by: str | None, note: str, kill: bool, timeout: Duration
) -> list[str]:
    cancelled: list[str] = []
    for run in await _unfinished(here.store, filters):
        handle = here.handle(RunId(run.id), ThreadId(run.thread_id))
        if await handle.cancel(by=by, note=note, kill=kill, timeout=timeout) is Status.cancelled:
            cancelled.append(run.id)
    return cancelled


async def _unfinished(store: Store, filters: Filters) -> list[RunInfo]:
    found: list[RunInfo] = []
    last: str | None = None
    while page := await runs(store, filters, limit=_MOST, after=last):
        found += [run for run in page if run.status not in FINAL]
        last = page[-1].id
    return found
