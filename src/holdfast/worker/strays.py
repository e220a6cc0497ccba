"""Runs that the store says are this worker's, and that it does not execute.

Nobody else takes them, since this worker lives. There are two ways to that. The answer to a claim was lost, or the run
could not be loaded then: it goes back to whoever has room. Or the run was executed here, parked or ended, and then the
store went back to a time when this worker had it: what was done since must not be done again, so the run is blocked.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.base.clock import monotonic_us
from holdfast.base.telemetry import warn
from holdfast.control import lifecycle
from holdfast.model import RunId, WorkerId
from holdfast.store.contract import Store
from holdfast.worker.backwards import Pasts, block_if_backwards

_PATIENCE_US = 2_000_000


class Strays:
    """Finds the strays of one worker. One that was seen a moment ago may just be on its way in or out."""

    def __init__(self, store: Store, pasts: Pasts) -> None:
        self._store = store
        self._pasts = pasts
        self._since: dict[tuple[RunId, int], int] = {}

    async def look(self, owned: Mapping[RunId, int], worker_id: WorkerId) -> None:
        """`owned`: the runs, with their epochs, that are stored as this worker's and that it does not execute."""
        now = monotonic_us()
        self._since = {stray: self._since.get(stray, now) for stray in owned.items()}
        for (run_id, epoch), since in self._since.items():
            if now - since >= _PATIENCE_US:
                known = self._pasts[run_id]
                if known is None or not await block_if_backwards(self._store, known):
                    await self._give_back(run_id, epoch, worker_id)
                else:
                    self._pasts.told(known)

    async def _give_back(self, run_id: RunId, epoch: int, worker_id: WorkerId) -> None:
        row = await self._store.run(run_id)
        is_stray = row is not None and (row.epoch, row.owner) == (epoch, worker_id)
        if row is not None and is_stray and await lifecycle.give_back(self._store, row):
            warn("run.given_back", run=run_id, worker=worker_id)
