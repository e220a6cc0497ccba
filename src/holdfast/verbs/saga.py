"""Sagas: effects that are taken back together.

If the block is left by an exception, the effects that happened inside it (and those that may have) are undone in the
reverse order of their outcomes. Each undo is an effect of its own: recorded, resumed after a crash, never forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import faults
from holdfast.scopes import in_branch


class Saga:
    """What a saga block has to undo so far."""

    def __init__(self, outer: Saga | None) -> None:
        self._outer = outer
        self._count: Iterator[int] = itertools.count() if outer is None else outer._count
        self._undos: list[tuple[int, str, Callable[[], Coroutine[Any, Any, Any]]]] = []

    @property
    def keys(self) -> list[str]:
        """The keys of the effects that would be undone, in the order of their outcomes."""
        return [key for _, key, _ in self._undos]

    def add(self, key: str, undo: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """An effect with an `undo` ended; effects call this themselves."""
        self._undos.append((next(self._count), key, undo))

    def keep(self) -> None:
        """The block succeeded: an outer saga takes over what it has done, among what other branches did meanwhile."""
        if self._outer is not None:
            self._outer._undos = sorted([*self._outer._undos, *self._undos], key=lambda undo: undo[0])

    async def undo(self) -> None:
        """Take back, last first. One that fails for good does not keep the others from being undone."""
        failures: list[Exception] = []
        while self._undos:
            faults.point("undo.before")
            _, key, undo = self._undos.pop()
            try:
                await undo()
            except Exception as error:
                error.add_note(f"while undoing {key}")
                failures.append(error)
            faults.point("undo.after")
        if failures:
            raise ExceptionGroup("these effects of a saga could not be undone", failures)


@asynccontextmanager
async def saga() -> AsyncGenerator[Saga, None]:
    """Undo the effects of the block if it does not succeed.

    Effects that declare `.undo` are taken back in reverse order of their outcomes when an exception (or a cancellation)
    leaves the block; then it goes on to the agent. After a crash in the middle, the undoing goes on where it was.

    Example:
        async with hf.saga():
            await book_flight(city)
            await book_hotel(city)      # raises: the flight is cancelled
    """
    scope = in_branch("hf.saga()")
    run, outer = scope.run, scope.saga
    block = Saga(outer)
    scope.saga = block
    run.sagas.append(block)
    try:
        yield block
    except BaseException:
        scope.saga = outer
        if not run.dead:
            await block.undo()
        raise
    else:
        block.keep()
    finally:
        scope.saga = outer
        run.sagas.remove(block)
