"""Calls that no cancellation cuts off: what cleans up, and what cannot be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.base.shields import Shield
from holdfast.running.current import outside
from holdfast.running.scopes import Scope

if TYPE_CHECKING:
    from holdfast.running.context import RunContext

T = TypeVar("T")


def raise_kept(scope: Scope, shield: Shield) -> None:
    """What was shielded has ended: raise the cancellation that came meanwhile, unless the call was clean-up."""
    kept = shield.kept
    if kept is None:
        return
    if scope.run.life.is_clean_up(scope):
        scope.run.life.owe(scope, shield)
    else:
        raise kept


async def clean_up(scope: Scope, call: Coroutine[Any, Any, T]) -> T:
    """Make a call that goes on to its end, whoever cancels it; but timeouts that the clean-up itself opened end it."""
    run = scope.run
    task = scope.task
    is_told_apart = task is not None and (scope.cleans_up or task.cancelling() > 0)
    shield = Shield(run.life.is_dead, own=task if is_told_apart else None)
    outer = scope.switch_shield(shield)
    try:
        return await shield.drive(call)
    finally:
        scope.switch_shield(outer)
        run.life.owe(scope, shield)


async def to_its_end(run: RunContext, work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Do something that cannot be left half done: its result, and the cancellation that came meanwhile."""
    task = asyncio.Task(work, context=outside())
    shield = Shield(run.life.is_dead)
    await shield.outlast(task)
    return task.result(), shield.kept
