"""How a run goes on, for who holds it: looked at when something was committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.base.clock import in_seconds
from holdfast.durations import Duration
from holdfast.errors import RunFinished
from holdfast.handle.acts import refused, refused_following
from holdfast.handle.decisions import Question
from holdfast.history.info import RunInfo, info_of
from holdfast.history.lookup import is_lost, row_of
from holdfast.history.needs import STUCK
from holdfast.history.streams import events
from holdfast.model import RunId, RunRow, Status, StreamEvent
from holdfast.store.contract import Store

_LOOK_S: Final = 0.05  # where it can be told whether anything was committed
_READ_S: Final = 0.25  # where a look is a trip to a server
_LOST_S: Final = 1.0  # that a process was lost changes nothing that is stored


async def changes(store: Store, run_id: RunId) -> AsyncIterator[tuple[RunRow, bool]]:
    """The row of a run, and whether its process was lost: now, and whenever that has changed, until it is over."""
    before: tuple[object, ...] | None = None
    commits: bytes | None = None
    idle_s = 0.0
    while True:
        now = store.surveys.commits()
        if now is None or now != commits or idle_s >= _LOST_S:
            commits, idle_s = now, 0.0
            row = await row_of(store, run_id)
            lost = await is_lost(store, row)
            mark = (row.epoch, row.head_seq, row.mail, row.status, row.owner, lost)
            if mark != before:
                before = mark
                yield row, lost
            if row.status.is_final:
                return
        pause_s = _READ_S if now is None else _LOOK_S
        await asyncio.sleep(pause_s)
        idle_s += pause_s


def limit_s(timeout: Duration | None, what: str) -> float | None:
    return None if timeout is None else in_seconds(timeout, what, may_be_over=True)


@asynccontextmanager
async def within(timeout_s: float | None, sentence: str) -> AsyncIterator[None]:
    """Wait no longer than that. The sentence says what did not come; who waited in vain changed nothing."""
    if timeout_s is None:
        yield
        return
    scope = asyncio.timeout(timeout_s)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if scope.expired() and not error.args:
            raise TimeoutError(f"{sentence} within {timeout_s:g} s. It goes on, and can be waited for again.") from None
        raise


async def is_stuck(row: RunRow) -> bool:
    """Can nobody but a person change it? A question, a signal or a pause is waited for: somebody may come."""
    return row.status in STUCK


class Watched:
    """The part of a run's handle that waits for what it does."""

    _store: Store
    id: RunId

    @refused("use `await run.questions()`")
    async def question(self, timeout: Duration | None = None) -> Question:
        """Wait until the run asks a person something: the question that is open longest.

        TimeoutError if it asks nothing in time, RunFinished if it is over and asks nothing any more.

        Example: `question = await run.question(timeout=60); await question.answer(True)`
        """
        status = Status.done
        async with within(limit_s(timeout, "Run.question(timeout=)"), f"Run {self.id} asked nothing"):
            async for row, _ in changes(self._store, self.id):
                status = row.status
                if found := await self._store.questions(run_id=self.id, limit=1):
                    return Question._of(self._store, found[0])
        raise RunFinished(f"Run {self.id} is {status}; it asks nothing any more.", status=status)

    @refused_following("use `await run.result()`")
    async def watch(self) -> AsyncIterator[RunInfo]:
        """How the run stands: now, and whenever that has changed, until it is over. Steps in between may be left out.

        Example: `async for info in run.watch(): print(info.status, info.now)`
        """
        async for row, is_cut_off in changes(self._store, self.id):
            yield info_of(row, is_lost=is_cut_off)

    def stream(self, name: str = "output", *, offset: int | None = None) -> AsyncIterator[StreamEvent]:
        """What bodies of the run write with `hf.stream(name)`: each event behind `offset` once, in order, to its end.

        `offset` is the number of the last event that you have, 0 for all; without one it begins at the last reset.

        Example: `async for event in run.stream(): print(event.text, end="", flush=True)`
        """
        if self._store.home is not None:
            self._store.home.check("Run.stream()")
        return events(self._store, self.id, name, offset=offset)
