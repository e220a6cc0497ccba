"""Waiting for a condition, however slow the machine is."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

_FIRST_S, _LONGEST_S = 0.005, 0.03


@overload
async def eventually(condition: Callable[[], Awaitable[T]], *, timeout: float = 60.0) -> T: ...
@overload
async def eventually(condition: Callable[[], T], *, timeout: float = 60.0) -> T: ...
async def eventually(condition: Callable[[], T | Awaitable[T]], *, timeout: float = 60.0) -> T:
    """What `condition` returns, once it is true. The bound is for what never comes, not for what takes its time.

    Example: `await eventually(lambda: ledger.count("paid") == 3)`
    """
    give_up, wait_s = time.monotonic() + timeout, _FIRST_S
    while True:
        found = condition()
        value: T = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {timeout:g} s; the last value was {value!r}")
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.5, _LONGEST_S)


def eventually_now(condition: Callable[[], T], *, timeout: float = 60.0) -> T:
    """As `eventually`, in a test without an event loop.

    Example: `eventually_now(lambda: "stopped" in log.read_text())`
    """
    give_up, wait_s = time.monotonic() + timeout, _FIRST_S
    while not (value := condition()):
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {timeout:g} s; the last value was {value!r}")
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, _LONGEST_S)
    return value
