"""Sagas: effects that are taken back together.

If the block is left by an exception, the effects that happened inside it (and those that may have) are undone in the
reverse order of their outcomes. Each undo is an effect of its own: recorded, resumed after a crash, never forgotten.
Nothing cuts the undoing off: a cancellation that arrives meanwhile is raised when all is undone. Branches that were
created in the block and still run are ended first, with what they have to undo themselves: what was done last is taken
back first, and nothing is done any more behind the saga's back.

A block that has something to undo leaves a record when it ends: what it kept, or what it took back.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast.base import faults
from holdfast.base.clock import now_us
from holdfast.base.shields import Shield
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.call import place
from holdfast.running.life import Branch
from holdfast.running.scopes import Scope, in_branch

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

_NAME = "hf.saga"


class Saga:
    """What a saga block has to undo so far."""

    def __init__(self, key: str, outer: Saga | None) -> None:
        self.key = key
        self.outer = outer
        self._count: Iterator[int] = itertools.count() if outer is None else outer._count
        self._undos: list[tuple[int, str, Callable[[], Coroutine[Any, Any, Any]]]] = []
        self._is_kept = False

    @property
    def keys(self) -> list[str]:
        """The keys of the effects that would be undone, in the order of their outcomes."""
        return [key for _, key, _ in self._undos]

    def _add(self, key: str, undo: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """An effect with an `undo` ended; effects call this themselves."""
        if not self._is_kept:
            self._undos.append((next(self._count), key, undo))
        elif self.outer is not None:  # of a branch that outlives the block
            self.outer._add(key, undo)

    def _keep(self) -> None:
        """The block succeeded: an outer saga takes over what it has done, among what other branches did meanwhile."""
        self._is_kept = True
        if self.outer is not None:
            self.outer._undos = sorted([*self.outer._undos, *self._undos], key=lambda undo: undo[0])

    def _encloses(self, saga: Saga | None) -> bool:
        """Is it this block, or one inside of it?"""
        while saga is not None:
            if saga is self:
                return True
            saga = saga.outer
        return False

    async def _undo(self) -> list[Exception]:
        """Take back, last first. One that fails for good does not keep the others from being undone."""
        failures: list[Exception] = []
        while self._undos:
            faults.point("undo.before")
            last = self._undos[-1]
            _, key, undo = last
            try:
                await undo()
            except Exception as error:
                error.add_note(f"while undoing {key}")
                failures.append(error)
            self._undos.remove(last)  # not before: while it is under way, there is something to undo
            faults.point("undo.after")
        return failures


@asynccontextmanager
async def saga() -> AsyncGenerator[Saga, None]:
    """Undo the effects of the block if it does not succeed.

    Effects that declare `.undo` are taken back in reverse order of their outcomes when an exception (or a cancellation)
    leaves the block; then it goes on to the agent. Nothing cuts that off: a cancellation that comes meanwhile is raised
    afterwards, and after a crash the undoing goes on where it was. Branches that still run in the block are cancelled
    first.

    Example:
        async with hf.saga():
            await book_flight(city)
            await book_hotel(city)      # raises: the flight is cancelled
    """
    scope = in_branch("hf.saga()")
    run, outer = scope.run, scope.saga
    # Of two blocks, the inner one ends first: its record is not the outer one's, though that has none yet.
    key, entry = place(scope, _NAME, f"{scope.prefix()}{_NAME}#{scope.calls.get(_NAME, 0) + 1}")
    block = Saga(key, outer)
    scope.switch_saga(block)
    run.activity.sagas.append(block)
    try:
        yield block
    except BaseException as error:
        if not run.life.dead:
            await _take_back(scope, block, entry, error)
        raise
    else:
        if block.keys and (entry is None or entry.outcome is None):
            kept = {"kept": block.keys, "outer": outer.key if outer is not None else ""}
            run.journal.add(Kind.done, block.key, _NAME, digest=block.key, payload=json.dumps(kept))
        block._keep()
    finally:
        scope.switch_saga(outer)
        run.activity.sagas.remove(block)


async def _take_back(scope: Scope, block: Saga, entry: Entry | None, error: BaseException) -> None:
    """Undo all of it, whoever cancels; then raise the cancellation, or what could not be undone.

    `error` is what the block was left by. A cancellation goes on, whatever could not be undone: code that catches
    exceptions must not take it for one of them.
    """
    run = scope.run
    did_clean_up = scope.switch_clean_up(True)
    shield = Shield(run.life.is_dead)
    try:
        failures = await shield.drive(_undo(scope, block, entry))
    finally:
        scope.switch_clean_up(did_clean_up)
    group = ExceptionGroup("these effects of a saga could not be undone", failures) if failures else None
    if shield.kept is not None:
        raise shield.kept from group
    if group is not None:
        if isinstance(error, asyncio.CancelledError):
            raise error from group
        raise group


async def _undo(scope: Scope, block: Saga, entry: Entry | None) -> list[Exception]:
    run = scope.run
    await _end_branches(run, scope, block)
    scope.switch_saga(block.outer)  # an undo is not itself undone
    keys, began_us = block.keys, now_us()
    is_recorded = not keys or (entry is not None and entry.outcome is not None)
    if not is_recorded:
        run.journal.begin(OpenCall(block.key, _NAME, 1, began_us, block.key, None, json.dumps({"undo": keys})))
    failures = await block._undo()
    if not is_recorded:
        payload = json.dumps({"undo": keys, "failed": len(failures)})
        run.journal.end(block.key, Kind.done, tick=0, took=now_us() - began_us, payload=payload)
    return failures


async def _end_branches(run: RunContext, scope: Scope, block: Saga) -> None:
    """What was begun inside the block ends before anything of it is taken back, and so does what that begins."""
    told: set[asyncio.Task[Any]] = set()
    while inside := {task: other for task, other in run.activity.tasks.items() if _is_inside(other, scope, block)}:
        for task, other in inside.items():
            if task not in told and not (told and other.cleans_up):  # made by a branch that cleans up: that is let be
                task.cancel()
        told |= set(inside)
        await asyncio.wait(inside)


def _is_inside(other: Branch, scope: Scope, block: Saga) -> bool:
    return other is not scope and block._encloses(other.saga)
