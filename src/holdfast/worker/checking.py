"""Dry replays of all unfinished runs of a store: which go on with the code as it is now, and which do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from holdfast.base.config import Settings
from holdfast.errors import CorruptJournal
from holdfast.journal.integrity import check_row
from holdfast.journal.tombstones import is_elsewhere, is_empty
from holdfast.journal.verification import quarantine_reason
from holdfast.model import FINAL, UNFINISHED, Loaded, RunFilter, RunRow, Status
from holdfast.model.reasons import Frozen
from holdfast.store.contract import Store
from holdfast.store.runs import pages_of_runs
from holdfast.verbs.agent import Agent
from holdfast.worker.loading import Loading
from holdfast.worker.rehearsing import DryHost, Forecast, Rehearsal, damaged

_PAGE: Final = 200
_AT_ONCE: Final = 100


async def forecasts(
    store: Store, agents: Mapping[str, Agent[..., Any]], *, agent: str | None, unknown: Counter[str]
) -> AsyncIterator[Forecast]:
    """What would become of each unfinished run, of one agent or of all; as many at once as one process can do.

    Runs of agents that are not known are counted in `unknown`. Runs that live in another store are left out, but not
    their frozen copies: nothing is executed.
    """
    host, loading = DryHost(store, Settings(), agents), Loading(store)
    async for page in pages_of_runs(store, RunFilter(status=UNFINISHED, agent=agent), at_once=_PAGE):
        wanted = [row for row in page if isinstance(row.reason, Frozen) or not (is_empty(row) or is_elsewhere(row))]
        unknown.update(row.agent for row in wanted if row.agent not in agents)
        known = [row for row in wanted if row.agent in agents]
        loaded = {each.row.id: each for each in await store.load_many([row.id for row in known])}
        gate = asyncio.Semaphore(_AT_ONCE)
        work = [_forecast(host, loading, row, loaded=loaded.get(row.id), gate=gate) for row in known]
        for each in await asyncio.gather(*work):
            if each is not None:
                yield each


async def _forecast(
    host: DryHost, loading: Loading, row: RunRow, *, loaded: Loaded | None, gate: asyncio.Semaphore
) -> Forecast | None:
    async with gate:
        try:
            if row.status is Status.quarantined:
                raise CorruptJournal(quarantine_reason(row), run_id=row.id)
            if loaded is not None:
                check_row(loaded.row)
            whole = await loading.claimed(row.id, loaded)
        except CorruptJournal as error:
            return damaged(row, error)
        if whole.row.status in FINAL:
            return None  # it has ended meanwhile
        return await Rehearsal(host, host.agents[row.agent], whole).result()
