"""Workers as owners of runs: whether one still holds them, and when it can be forgotten."""

from __future__ import annotations

from holdfast.journal.recovery import PROVEN
from holdfast.model import Proof, RunFilter, WorkerId
from holdfast.store.contract import Store

_OLD_MS = 3_600_000  # a lease that ran out this long ago is of somebody who is gone


async def proof_of_death(store: Store, owner: WorkerId) -> Proof | None:
    """Why a worker does not hold its runs any more; None if it does."""
    dead = await store.dead_workers()
    if owner in dead:
        return dead[owner]
    return None if any(worker.id == owner for worker in await store.workers()) else Proof.gone


async def forget_dead_workers(store: Store) -> None:
    """Workers that died and own nothing any more are of no use to anybody."""
    dead = await store.dead_workers()
    old_ms = store.lease_clock_ms() - _OLD_MS
    old = {worker.id for worker in await store.workers() if worker.lease_until_ms < old_ms} if dead else set()
    for worker_id, proof in dead.items():
        owned = await store.runs(RunFilter(orphaned_from=frozenset({worker_id}), limit=1))
        if (proof in PROVEN or worker_id in old) and not owned:
            await store.remove_worker(worker_id)
