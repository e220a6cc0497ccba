"""Whether anybody takes up a run that could go on."""

from __future__ import annotations

from holdfast.base.data import data
from holdfast.base.hints import hint, is_about_server, resume_hint, shown_source
from holdfast.history.facts import Facts
from holdfast.journal.pages import source_of
from holdfast.model import RunId, Status
from holdfast.store.contract import Store


@data
class Untaken(Facts):
    """A run that could go on, and no worker is alive."""

    run_id: str
    source: str | None  #: the file that it was last executed from

    @property
    def text(self) -> str:
        """What to do about it."""
        if is_about_server():
            return "No worker is alive to take it up: start one where the store is."
        worker = hint("worker", shown_source(self.source))
        here = resume_hint(self.run_id, self.source)
        return f"No worker is alive to take it up. Start one: {worker}; or execute it here: {here}"


async def untaken(store: Store, run_id: RunId) -> Untaken | None:
    """The run, if it could go on and nothing will happen by itself."""
    row = await store.run(run_id)
    if row is None or row.status is not Status.queued:
        return None
    dead = await store.dead_workers()
    if any(worker.id not in dead for worker in await store.workers()):
        return None
    return Untaken(row.id, await source_of(store, row))
