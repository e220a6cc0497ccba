"""The first of several to end wins; who won is recorded, and a replay knows it at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from holdfast.context import in_branch
from holdfast.errors import UsageError
from holdfast.model import Kind

T = TypeVar("T")
_NAME = "hf.race"


async def race(*awaitables: Awaitable[T]) -> T:
    """Return what the first of them returns (or raise what it raises), and cancel the others.

    Of several that end together, the first in the argument list wins. A resumed run has the same winner.

    Example: `answer = await hf.race(ask_fast_model(question), ask_good_model(question))`
    """
    scope = in_branch("hf.race()")
    if not awaitables:
        raise UsageError("hf.race() needs at least one awaitable.")
    run = scope.run
    entry = run.claim(scope, _NAME, "", None)
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        if entry is not None and entry.outcome is not None:
            entry.delivered = True
            winner = int(json.loads(entry.outcome.payload or "{}")["winner"])
            if winner >= len(tasks):
                await run.block({"why": "race changed", "asked": entry.key, "detail": f"recorded winner {winner} of {len(tasks)}"})
            await asyncio.wait({tasks[winner]})
        else:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = next(i for i, task in enumerate(tasks) if task.done())
            key = entry.key if entry is not None else run.new_key(scope, _NAME, None)
            run.journal.add(Kind.done, key, _NAME, payload=json.dumps({"winner": winner}))
        return tasks[winner].result()
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    losers = [task for task in tasks if not task.done()]
    for task in losers:
        task.cancel()
    if losers:
        await asyncio.wait(losers)
