"""Coroutines that are begun by hand: nothing of the loop's is needed unless they have to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def hurried(coroutine: Coroutine[Any, Any, T], bring: Callable[[asyncio.Future[Any]], bool]) -> T:
    """Await a coroutine. `bring` may bring about what it waits for, and says whether it did; else the loop will."""
    try:
        awaited = coroutine.send(None)
        while isinstance(awaited, asyncio.Future) and bring(awaited):
            awaited._asyncio_future_blocking = False  # it was meant for a task that waits
            awaited = coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    return await go_on(coroutine, awaited)


async def go_on(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    """The rest of a coroutine that was begun by hand and now waits for `awaited`."""
    return await _Rest(coroutine, awaited)


class _Rest(Generic[T]):
    """Drives a coroutine from a suspension on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            step: Callable[[Any], Any]
            try:
                given = yield awaited
                step = coroutine.send
            except BaseException as error:
                given, step = error, coroutine.throw
            try:
                awaited = step(given)
            except StopIteration as end:
                value: T = end.value
                return value
