"""Forks that people make through the API."""

from __future__ import annotations

from dataclasses import replace

from holdfast.app import Holdfast
from holdfast.errors import ConflictingStart
from holdfast.handle.forks import Wanted, fork
from holdfast.model import Actor, RunId, RunRow
from holdfast.server.problems import Problem
from holdfast.server.reads import Reads


class Forks:
    """Forks runs of an app's store."""

    def __init__(self, app: Holdfast, reads: Reads) -> None:
        self._app = app
        self._reads = reads

    async def fork(self, run_id: str, wanted: Wanted, *, by: Actor, note: str, own_id: str) -> tuple[RunRow, bool]:
        """Make a fork; False: it was there. Without an id, the key of the request (`own_id`) makes one."""
        store = self._app._store
        await self._reads.row(run_id)
        is_keyed = wanted.run_id is None and bool(own_id)
        if is_keyed:
            wanted = replace(wanted, run_id=f"k_{own_id.removeprefix('http:')}")
        is_new = wanted.run_id is None or await store.run(RunId(wanted.run_id)) is None
        try:
            row = await fork(store, RunId(run_id), wanted, by=by, note=note)
        except ConflictingStart:
            if is_keyed:
                raise Problem("key_reused", "Use another key for another request.") from None
            raise
        return row, is_new
