"""Answers that come in parts: handed on as they arrive, recorded as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeVar

from holdfast.ext.operations import Operation
from holdfast.ext.places import place

T = TypeVar("T")

_OVER: Final = object()


async def streamed(
    operation: Operation,
    fn: Callable[[], AsyncIterator[T]],
    *,
    path: str,
    shown: Mapping[str, Any] | None = None,
    is_live: Callable[[T], bool] = lambda part: True,
) -> AsyncGenerator[T, None]:
    """One call of an operation whose result is a list: its members are handed on live, on replay all at once.

    `path` is the place of the call, which is sealed. What a framework acts upon must be recorded before: from the first
    member on that is not `is_live`, they are handed on when the call is over. Whoever stops listening cancels it.

    Example: `async for event in ext.streamed(model, lambda: inner.stream(request), path="bot:1"): yield event`
    """
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    is_held = False

    async def listen() -> list[T]:
        nonlocal is_held
        parts = []
        async for part in fn():
            parts.append(part)
            is_held = is_held or not is_live(part)
            if not is_held:
                arrived.put_nowait(part)
        return parts

    async def request() -> list[T]:
        try:
            with place(path, sealed=True):
                return await operation(listen, shown=shown)
        finally:
            arrived.put_nowait(_OVER)

    task, told = asyncio.create_task(request()), 0
    try:
        while (live := await arrived.get()) is not _OVER:
            told += 1
            yield live
        for part in (await task)[told:]:
            yield part
    finally:
        task.cancel()
