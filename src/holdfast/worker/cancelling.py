"""Cancelling a run that executes here.

That a person cancelled the run is on disk before the code hears of it; from then on it can only end as cancelled. Where
the code was when it heard of it is a record with a tick, so a replay cancels it at the same place.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.base import faults
from holdfast.model import Kind, NoteKind
from holdfast.running.context import RunContext
from holdfast.running.current import outside
from holdfast.running.gate import is_handler

CANCEL = "hf:cancel"


class Cancelling:
    """The cancellation of one run, if there is one."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._root: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Does the code execute, so that it could be cancelled?"""
        return self._root is not None

    @property
    def has_cleanup(self) -> bool:
        """Is there something to undo, should the run be cancelled? While its past is not replayed, there may be."""
        run, replay = self._run, self._run.replay
        if replay.cancel is not None:
            return True  # that is what it is doing
        is_known = self.has_begun and not replay.unclaimed
        may_have = not is_known and any(entry.is_effect for entry in replay.entries.values())
        return may_have or any(saga.keys for saga in run.activity.sagas)

    @property
    def is_under_way(self) -> bool:
        """Was it asked for, and the code has not heard of it?"""
        return self._task is not None and not self._task.done()

    def begin(self, root: asyncio.Task[Any]) -> None:
        """The code starts: cancel it where it was cancelled, or at once if it never heard of it."""
        self._root = root
        run = self._run
        entry = run.replay.entries.get(CANCEL)
        if entry is not None and entry.outcome is not None and run.replay.cancel is not None:
            run.replay.pass_by(entry)
            run.activity.begin_line()  # so that what came before comes before it

            def cancel() -> None:
                run.activity.end_line()
                self._cancel()

            run.ticks.await_recorded(entry, cancel)
        elif run.replay.cancel is not None:
            self._start()

    def ask(self, body: dict[str, Any]) -> None:
        """Somebody asked for it."""
        run = self._run
        note = {"by": body["by"], "note": body["note"], "mail": body["mail"]}
        if run.replay.cancel is None:
            run.replay.ask_cancel(note)
            run.journal.summary["cancelling"] = True
            run.journal.add(Kind.noted, "", NoteKind.cancel, payload=json.dumps(note))
            if self._root is not None:
                self._start()

    def close(self) -> None:
        self._root = None
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._run.gate.await_cancel()
        self._task = asyncio.Task(self._tell(), loop=self._run.life.loop, context=outside())

    async def _tell(self) -> None:
        run = self._run
        await run.ticks.wait_replayed(lambda: not run.ticks.has_unasked_effects)
        await run.journal.barrier()
        faults.point("cancel.accepted")
        if run.activity.lines == 1:
            self._told(run.ticks.next_tick())
        else:
            run.ticks.complete(self._told)

    def _told(self, tick: int) -> None:
        run = self._run
        if run.life.dead or self._root is None:
            return
        payload = json.dumps(run.replay.cancel)
        run.journal.add(Kind.done, CANCEL, CANCEL, tick=tick, payload=payload)
        self._cancel()

    def _cancel(self) -> None:
        run = self._run
        run.life.cancel()
        run.gate.cancel()
        for task, scope in list(run.activity.tasks.items()):
            if task is self._root or (scope.task is task and is_handler(scope.path)):
                task.cancel()
        run.waits.stop_asking()
