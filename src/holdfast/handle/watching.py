"""How a run goes on, for who holds it: looked at when something was committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.base.clock import in_seconds
from holdfast.durations import Duration
from holdfast.history.lookup import is_lost, row_of
from holdfast.model import RunId, RunRow
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
