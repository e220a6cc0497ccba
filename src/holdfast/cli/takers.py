"""Whether anybody takes up a run that could go on."""

from __future__ import annotations

import sys

from holdfast.app import Holdfast
from holdfast.base.hints import hint, resume_hint, shown_source
from holdfast.journal.blocks import source_in
from holdfast.model import RunId, Status


async def advice_for(app: Holdfast, run_id: str) -> str:
    """What to do if the run could go on and nothing will happen by itself; else nothing."""
    store = app._here.store
    row = await store.run(RunId(run_id))
    if row is None or row.status is not Status.queued or any(worker.alive for worker in await app.workers()):
        return ""
    source = source_in(await store.records(row.id))
    worker = hint("worker", shown_source(source))
    return f"No worker is alive to take it up. Start one: {worker}; or execute it here: {resume_hint(run_id, source)}"


def tell(advice: str) -> None:
    if advice:
        print(advice, file=sys.stderr)
