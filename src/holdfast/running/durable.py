"""Decorated functions, as users call them. What their calls do (`call`) is loaded by who connects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from holdfast.running.scopes import SEALED


class DecoratedFunction(Protocol):
    """A decorated function: what its calls are named, and how one is made."""

    name: str
    explicit_key: str | None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]: ...


def durable_function(definition: DecoratedFunction, fn: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The function that users call: a real `async def`, recognised by the task factory."""

    @functools.wraps(fn)
    async def durable(*args: Any, **kwargs: Any) -> Any:
        try:
            return await definition.call(args, kwargs)
        except SEALED as error:
            from holdfast.running.sealing import seal

            await seal(error)
            raise

    return durable


#: Of every step and effect, as users call it.
DURABLE_CODE = durable_function(None, lambda: None).__code__  # type: ignore[arg-type]
