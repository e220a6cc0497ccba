"""What an app does to many runs at once: to all that are unfinished and fit its filters."""

from __future__ import annotations

from holdfast.control import lifecycle
from holdfast.control.filters import Filters, run_filter
from holdfast.durations import Duration
from holdfast.model import UNFINISHED, RunRow, Status
from holdfast.store.contract import Store
from holdfast.store.runs import every_run
from holdfast.worker.executor import Executor


async def pause_all(here: Executor, filters: Filters, *, by: str | None, note: str) -> list[str]:
    return [
        run.id
        for run in await _unfinished(here.store, filters)
        if run.status is not Status.paused
        and await here.handle(run.id, run.thread_id).pause(by=by, note=note) is Status.paused
    ]


async def resume_all(here: Executor, filters: Filters, *, by: str | None, note: str) -> list[str]:
    running = await _unfinished(here.store, {**filters, "status": Status.running})
    found = await _unfinished(here.store, {**filters, "status": Status.paused})
    every = {run.id: run for run in [*found, *running]}
    return [run_id for run_id in every if await lifecycle.resume(here.store, run_id, by=by, note=note)]


async def cancel_all(
    here: Executor, filters: Filters, *, by: str | None, note: str, kill: bool, timeout: Duration
) -> list[str]:
    cancelled: list[str] = []
    for run in await _unfinished(here.store, filters):
        handle = here.handle(run.id, run.thread_id)
        if await handle.cancel(by=by, note=note, kill=kill, timeout=timeout) is Status.cancelled:
            cancelled.append(run.id)
    return cancelled


async def _unfinished(store: Store, filters: Filters) -> list[RunRow]:
    return [row async for row in every_run(store, run_filter(filters, among=UNFINISHED))]
