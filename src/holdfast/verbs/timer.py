"""Sleeps and timeouts. Due times are absolute: after a crash only the rest is left, and a replay does not wait."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.base.clock import in_seconds, monotonic_us, now_us
from holdfast.codec import Coder, coder_for
from holdfast.durations import Duration, no_duration
from holdfast.errors import UsageError
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind, WaitKind
from holdfast.running.call import DurableCall, place, refuse_in_prologue
from holdfast.running.current import outside
from holdfast.running.scopes import Scope, in_branch, scope_or_none
from holdfast.running.waiting import waiting

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext
    from holdfast.running.host import TimerHandle

_NAME = "hf.timeout"
_SLEEP = "hf:sleep"


async def sleep(
    seconds: Duration = 0,
    *,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    until: datetime | None = None,
) -> None:
    """Wait for a while (seconds, or a timedelta), or until a time; for minutes or for months, without a process.

    The time to go on is recorded as it is first reached: a crash leaves only the rest of it, and a sleep that ended
    while nobody ran ends at once. Outside of a run it is `asyncio.sleep`.

    Example: `await hf.sleep(days=3)`
    """
    length_s = _length_s("hf.sleep()", seconds, minutes, hours, days)
    if until is not None and (length_s or until.tzinfo is None):
        raise UsageError("hf.sleep(until=…) takes a datetime with a time zone, and no length besides.")
    due_us = now_us() + int(length_s * 1_000_000) if until is None else _micros(until)
    scope = scope_or_none()
    if scope is None or scope.body is not None:
        await asyncio.sleep(max(0.0, (due_us - now_us()) / 1_000_000))
        return
    await SleepCall(in_branch("hf.sleep()"), due_us).make()


class SleepCall(DurableCall[None]):
    """One sleep."""

    __slots__ = ("due_us",)

    def __init__(self, scope: Scope, due_us: int) -> None:
        super().__init__(scope, _SLEEP)
        self.due_us = due_us

    @property
    def coder(self) -> Coder[None]:
        return coder_for(type(None))

    async def execute(self) -> None:
        async with waiting(self, due_us=self.due_us) as call:
            assert call.due_us is not None
            if call.due_us > now_us():
                await self.run.waits.wait(call.key, WaitKind.timer, {"name": "sleep"}, due_us=call.due_us)
            await call.end(Kind.done, "null")


def _length_s(verb: str, seconds: Duration, minutes: float, hours: float, days: float) -> float:
    first = in_seconds(seconds, verb, may_be_over=True)
    if not (minutes or hours or days):
        return first
    try:
        more = timedelta(minutes=minutes, hours=hours, days=days)
    except (TypeError, ValueError, OverflowError):
        given = {"minutes": minutes, "hours": hours, "days": days}
        raise UsageError(no_duration(verb, {name: value for name, value in given.items() if value})) from None
    return in_seconds(first + more.total_seconds(), verb, may_be_over=True)


def _micros(at: datetime) -> int:
    return round((at - datetime.fromtimestamp(0, at.tzinfo)) / timedelta(microseconds=1))


class timeout:
    """Cancel the block when `duration` has passed, and raise TimeoutError; as `asyncio.timeout`, but durable.

    The due time is absolute: a crash does not start it anew. Whether it expired is recorded, and a replay comes to the
    same end at once.

    `duration` is seconds or a timedelta; or say it in `minutes`, `hours`, `days`.

    Example:
        async with hf.timeout(30):
            page = await fetch(url)
    """

    def __init__(
        self, duration: Duration | None = None, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        if duration is None and not (minutes or hours or days):
            raise UsageError("hf.timeout() takes a time, like hf.timeout(30) or hf.timeout(days=1).")
        self._seconds = _length_s("hf.timeout()", 0 if duration is None else duration, minutes, hours, days)
        self._task: asyncio.Task[object] | None = None
        self._timer: TimerHandle | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._expired = False
        self._closed = False

    async def __aenter__(self) -> timeout:
        self._scope = scope = in_branch("hf.timeout()")
        self._run = run = scope.run
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._key, entry = place(scope, _NAME)
        if entry is None and run.replay.is_closed:
            await refuse_in_prologue(scope, "hf.timeout()")
        self._is_clean_up = run.life.is_clean_up(scope)
        self._began = monotonic_us()
        run.activity.begin_line()
        if entry is not None and entry.outcome is not None:
            self._replay(run, entry)
        else:
            self._arm(run, entry)
        return self

    def _replay(self, run: RunContext, entry: Entry) -> None:
        assert entry.outcome is not None
        if json.loads(entry.outcome.payload or "{}")["expired"]:
            run.ticks.await_recorded(entry, self._expire_now)
        else:
            run.ticks.at_once(entry)

    def _arm(self, run: RunContext, entry: Entry | None) -> None:
        if entry is not None and entry.started is not None:
            due = json.loads(entry.started.payload or "{}")["due"]
        else:
            due = now_us() + int(self._seconds * 1_000_000)
        run.journal.begin(OpenCall(self._key, _NAME, 1, now_us(), "", None, json.dumps({"due": due})))
        # What is due already will be due whenever the run is taken up again: that need not be on disk first.
        self._is_decided = (entry is not None and entry.decided is not None) or due <= now_us()
        self._timer = run.waits.add_deadline(self._key, due, self._due)
        if self._is_decided:
            run.life.loop.call_soon(self._due)

    def _due(self) -> None:
        if not self._closed and not self._run.waits.is_held and self._deciding is None:
            self._deciding = asyncio.Task(self._decide(), loop=self._run.life.loop, context=outside())

    async def _decide(self) -> None:
        """That it expired is on disk before the code hears of it."""
        run = self._run
        if self._closed or run.life.dead:
            return  # the block ended before this task began
        with run.activity.busy():
            if not self._is_decided:
                run.journal.add(Kind.decided, self._key, _NAME, payload=json.dumps({"expired": True}))
                await run.journal.barrier(inline=run.may_commit_inline)
        if not self._closed and not run.life.dead:
            run.ticks.complete(self._complete)

    def _complete(self, tick: int) -> None:
        if self._closed or self._run.life.dead:
            return
        self._record(expired=True, tick=tick)
        self._run.waits.remove_deadline(
            self._key
        )  # the block may go on, as an effect does, and nothing is due any more
        self._expire_now()

    def _record(self, *, expired: bool, tick: int) -> None:
        payload = json.dumps({"expired": expired})
        self._run.journal.end(self._key, Kind.done, tick=tick, took=monotonic_us() - self._began, payload=payload)

    def _expire_now(self) -> None:
        if not self._closed and self._task is not None:
            self._expired = True
            if self._is_clean_up and self._scope.shield is not None:
                self._scope.shield.cut()  # clean-up may give itself a time
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        run = self._run
        run.activity.end_line()
        if self._timer is not None:
            self._timer.cancel()
            run.waits.remove_deadline(self._key)
            run.ticks.withdraw(self._complete)
            if not self._expired and not run.life.dead:
                self._record(expired=False, tick=0)
        if self._expired and self._task is not None:
            # If somebody else cancelled the task as well, it is theirs to end.
            is_own = self._task.uncancel() <= self._cancelling
            if is_own and kind is asyncio.CancelledError and not run.life.dead:
                raise TimeoutError(f"hf.timeout({self._seconds:g}) expired") from error
