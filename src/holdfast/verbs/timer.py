"""Timeouts whose end is part of the run: after a crash only the remaining time is left, and a replay does not wait."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType

from holdfast.calls import Duration, elapsed_us, seconds
from holdfast.clock import monotonic_us, now_us
from holdfast.context import RunContext, Scope, in_branch
from holdfast.journal.journal import OpenCall
from holdfast.journal.replay import Entry
from holdfast.model import Kind

_NAME = "hf.timeout"


class timeout:
    """Cancel the block when `duration` has passed, and raise TimeoutError; as `asyncio.timeout`, but durable.

    The due time is absolute: a crash does not start it anew. Whether it expired is recorded, and a replay comes to the
    same end at once.

    Example:
        async with hf.timeout(30):
            page = await fetch(url)
    """

    def __init__(self, duration: Duration) -> None:
        self._seconds = seconds(duration)
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._expired = False
        self._closed = False

    async def __aenter__(self) -> timeout:
        self._scope = scope = in_branch("hf.timeout()")
        self._run = run = scope.run
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        entry = run.claim(scope, _NAME, "", None)
        self._began = monotonic_us()
        run.lines += 1
        if entry is not None and entry.outcome is not None:
            self._replay(run, entry)
        else:
            self._arm(scope, run, entry)
        return self

    def _replay(self, run: RunContext, entry: Entry) -> None:
        assert entry.outcome is not None
        if json.loads(entry.outcome.payload or "{}")["expired"]:
            run.ticks.await_recorded(entry, self._expire_now)
        else:
            entry.delivered = True

    def _arm(self, scope: Scope, run: RunContext, entry: Entry | None) -> None:
        if entry is not None and entry.started is not None:
            self._key = entry.key
            due = json.loads(entry.started.payload or "{}")["due"]
        else:
            self._key = entry.key if entry is not None else run.new_key(scope, _NAME, None)
            due = now_us() + int(self._seconds * 1_000_000)
        run.journal.begin(OpenCall(self._key, _NAME, 1, now_us(), "", None, json.dumps({"due": due})))
        self._handle = run.loop.call_later(max(0.0, (due - now_us()) / 1_000_000), self._due)

    def _due(self) -> None:
        if not self._closed and not self._run.dead:
            self._run.ticks.complete(self._complete)

    def _complete(self, tick: int) -> None:
        if self._closed or self._run.dead:
            return
        self._record(expired=True, tick=tick)
        self._expire_now()

    def _record(self, *, expired: bool, tick: int) -> None:
        payload = json.dumps({"expired": expired})
        self._run.journal.end(self._key, Kind.done, tick=tick, took=elapsed_us(self._began), payload=payload)

    def _expire_now(self) -> None:
        if not self._closed and self._task is not None:
            self._expired = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        run = self._run
        run.lines -= 1
        if self._handle is not None:
            self._handle.cancel()
            run.ticks.withdraw(self._complete)
            if not self._expired and not run.dead:
                self._record(expired=False, tick=0)
        if self._expired and self._task is not None:
            # If somebody else cancelled the task as well, it is theirs to end.
            is_own = self._task.uncancel() <= self._cancelling
            if is_own and kind is asyncio.CancelledError and not run.dead:
                raise TimeoutError(f"hf.timeout({self._seconds:g}) expired") from error
