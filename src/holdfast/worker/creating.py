"""Storing new runs: as this worker's own, and executed at once, or for whichever worker has room."""

from __future__ import annotations

import asyncio

from holdfast.base.config import Settings
from holdfast.control.acting import act_in, way
from holdfast.journal.blobs import Texts
from holdfast.model import Act, Actor, Append, Fence, RunRow
from holdfast.store.contract import Store
from holdfast.worker.executions import Executions
from holdfast.worker.leases import Lease
from holdfast.worker.loading import LoadedRun
from holdfast.worker.starting import NewRun, check_same_start


class Creating:
    """Stores the runs that are started in one process. One that exists already must be of the same start."""

    def __init__(self, store: Store, settings: Settings, *, lease: Lease, executions: Executions) -> None:
        self._store = store
        self._settings = settings
        self._lease = lease
        self._executions = executions
        self._under_way: set[asyncio.Future[RunRow]] = set()

    @property
    def is_under_way(self) -> bool:
        """Is a run being stored as this worker's that does not execute yet?"""
        return bool(self._under_way)

    async def settle(self) -> None:
        """Wait for those that are being stored."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    async def execute(self, new: NewRun, claim_note: str, *, fence: Fence | None = None) -> RunRow:
        """Store a run as this worker's own, and execute it unless it exists."""
        append = new.append(self._settings.inline_limit, claim=(self._lease.worker_id, claim_note))
        row = await self._create_and_execute(append, fence)
        await check_same_start(self._store, row, new)
        return row

    async def put(
        self,
        new: NewRun,
        *,
        fence: Fence | None = None,
        by: Actor | None = None,
        note: str = "",
        act: Act | None = None,
    ) -> tuple[RunRow, bool]:
        """Store a run for whichever worker has room, unless it exists; whether it is new. `by`: who starts it.

        `act`: what they did, if that was something else than to start it.
        """
        append = new.append(self._settings.inline_limit)
        if act is None and by is not None:
            act = act_in({"by": by, "note": note, **way(by)}, "start", append.row.id)
        row = await self._store.create(append, owner=None, fence=fence, act=act)
        is_new = row.nonce == append.row.nonce
        if not is_new:
            await check_same_start(self._store, row, new)
        return row, is_new

    async def _create_and_execute(self, append: Append, fence: Fence | None) -> RunRow:
        """Whoever starts it may be cancelled; once it is stored as this worker's own, it is executed all the same."""

        def execute(row: RunRow) -> None:
            if row.nonce == append.row.nonce:
                self._executions.begin(LoadedRun(row, list(append.records), Texts(dict(append.blobs))))

        if fence is None and not self._executions and self._store.commit_alone(append, lambda _: None) is True:
            execute(append.row)
            return append.row
        creating = asyncio.ensure_future(self._store.create(append, owner=self._lease.worker_id, fence=fence))
        self._under_way.add(creating)
        creating.add_done_callback(self._under_way.discard)
        try:
            row = await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(lambda t: None if t.cancelled() or t.exception() else execute(t.result()))
            raise
        execute(row)
        return row
