"""What commands do for a person that no handle has a method for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from holdfast.control import doubts, uploads
from holdfast.control.acting import actor, existing
from holdfast.control.plans import change_plan
from holdfast.errors import UsageError
from holdfast.handle.acts import IN_AN_EFFECT, look, refused
from holdfast.model import RunId
from holdfast.model.plans import Op
from holdfast.store.contract import Store
from holdfast.verbs.artifact import checked_media_type, checked_name


class Commanded:
    """Done to the store itself."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @look
    async def actor(self, by: str | None) -> str:
        """Who acts; a server knows that by itself."""
        return actor(by)

    @refused(IN_AN_EFFECT)
    async def settle(
        self, run_id: RunId, key: str, body: Mapping[str, Any], *, attempt: int, by: str | None, note: str
    ) -> None:
        """Say what became of an effect, as it is recorded."""
        await doubts.resolve(self._store, run_id, key, dict(body), attempt=attempt, by=by, note=note)

    @refused(IN_AN_EFFECT)
    async def change_plan(self, run_id: RunId, ops: Sequence[Op], *, by: str | None, note: str) -> int:
        """Send a run changes of its plan; the number of the mail."""
        return await change_plan(self._store, run_id, ops, by=by, note=note)

    @refused("put it out with hf.artifact()")
    async def give(
        self, run_id: RunId, name: str, stream: BinaryIO, *, media_type: str | None, by: str | None, note: str
    ) -> tuple[int, bool]:
        """Give a run a file: which version it is, and whether it is new."""
        what = uploads.Upload(checked_name(name), checked_media_type(name, media_type))
        uploads.refuse_upload(await existing(self._store, run_id))
        file = await uploads.store_file(self._store, run_id, stream)
        given = await uploads.give(self._store, run_id, file, what=what, by=by, note=note)
        if given is None:
            raise UsageError(f"A worker executes run {run_id} just now. Give it the file when it waits, or pause it.")
        return given
