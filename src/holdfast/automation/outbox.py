"""What was asked for in transactions of the user's own, done once they are committed: starts and signals.

A transaction leaves a definition of kind `outbox`. Every worker looks for them. What is done has an id of its own, so
that doing it twice, by two workers or after a crash, is doing it once; then the definition goes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from holdfast.base.ids import new_run_ids
from holdfast.base.telemetry import warn
from holdfast.control import signals
from holdfast.control.outbox import OUTBOX, later
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import Definition, RunId, checked_id
from holdfast.store.contract import Store
from holdfast.worker.starting import NewRun, QueuePlace

_BATCH = 100


async def start_later(store: Store, transaction: Any, new: NewRun) -> tuple[str, str]:
    """Have a run started once a transaction is committed; its id and thread."""
    run_id, thread_id, _ = new_run_ids()
    run_id = run_id if new.run_id is None else checked_id(new.run_id, "id")
    thread_id = thread_id if new.thread_id is None else checked_id(new.thread_id, "thread_id")
    start = asdict(new) | {"run_id": run_id, "thread_id": thread_id, "tags": dict(new.tags)}
    await later(store, transaction, {"start": start})
    return run_id, thread_id


class Outbox:
    """Does what transactions left to be done."""

    def __init__(self, store: Store, put: Callable[[NewRun], Awaitable[object]]) -> None:
        self._store = store
        self._put = put

    async def deliver_due(self, now: int) -> int:
        """Do all of it; how much there was."""
        done = 0
        while due := await self._store.definitions(OUTBOX, due=now, limit=_BATCH):
            for each in due:
                try:
                    await self._do(each)
                except StoreError:
                    raise
                except HoldfastError as error:  # whoever asked has gone on; there is nobody to be told
                    warn("outbox.refused", id=each.name, error=str(error))
            await self._store.forget(OUTBOX, [each.name for each in due])
            done += len(due)
        return done

    async def _do(self, what: Definition) -> None:
        body = json.loads(what.body)
        if (start := body.get("start")) is not None:
            await self._put(NewRun(**start | {"place": QueuePlace(**start["place"])}))
        elif (send := body.get("send")) is not None:
            dedup = send["dedup"] or what.name
            await signals.send(self._store, RunId(send["run"]), send["name"], send["value"], dedup=dedup, by=send["by"])
