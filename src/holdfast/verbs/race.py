"""The first of several to end wins; who won is recorded, and a replay knows it at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar, overload

from holdfast.errors import UsageError
from holdfast.model import Kind
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.call import place
from holdfast.running.scopes import in_branch

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
_NAME = "hf.race"


# What differs in type is a union; mypy alone would say `object`.
@overload
async def race(first: Awaitable[T1], second: Awaitable[T2], /) -> T1 | T2: ...
@overload
async def race(first: Awaitable[T1], second: Awaitable[T2], third: Awaitable[T3], /) -> T1 | T2 | T3: ...
@overload
async def race(
    first: Awaitable[T1], second: Awaitable[T2], third: Awaitable[T3], fourth: Awaitable[T4], /
) -> T1 | T2 | T3 | T4: ...
@overload
async def race(first: Awaitable[T], /, *others: Awaitable[T]) -> T: ...
async def race(*awaitables: Awaitable[Any]) -> Any:
    """Return what the first of them returns (or raise what it raises), and cancel the others.

    Of several that end together, the first in the argument list wins. A resumed run has the same winner.

    Example: `answer = await hf.race(ask_fast_model(question), ask_good_model(question))`
    """
    scope = in_branch("hf.race()")
    if not awaitables:
        raise UsageError("hf.race() needs at least one awaitable.")
    for each in awaitables:
        if not isinstance(each, Awaitable):
            raise UsageError(f"hf.race() takes awaitables, like race(fetch(a), fetch(b)); got {each!r}.")
    run = scope.run
    key, entry = place(scope, _NAME)
    outcome = entry.outcome if entry is not None else None
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    winner: int | None = None
    try:
        if outcome is not None and outcome.kind == Kind.done:
            recorded = int(json.loads(outcome.payload or "{}")["winner"])
            if recorded >= len(tasks):
                await run.block(Blocked(Trouble(Cause.race, key, detail=f"recorded winner {recorded} of {len(tasks)}")))
            await asyncio.wait({tasks[recorded]})
            winner = recorded
        else:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = next(i for i, task in enumerate(tasks) if task.done())
            if outcome is None or outcome.kind == Kind.cancelled:
                run.journal.add(Kind.done, key, _NAME, payload=json.dumps({"winner": winner}))
        return tasks[winner].result()
    except asyncio.CancelledError:
        if winner is None and outcome is None and not run.life.dead:
            run.journal.add(Kind.cancelled, key, _NAME, tick=run.ticks.tick)
        raise
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    losers = [task for task in tasks if not task.done()]
    for task in losers:
        task.cancel()
    if losers:
        await asyncio.wait(losers)
