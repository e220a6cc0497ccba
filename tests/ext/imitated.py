"""A framework of agents, as they are: tasks with private names, errors of tools told to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Tool = Callable[..., Awaitable[str]]
#: What comes in: (turn, what was heard so far); what goes out: calls as (id, tool, arguments), or the answer.
Model = Callable[[int, list[str]], Awaitable[list[tuple[str, str, dict[str, Any]]] | str]]


class Bot:
    def __init__(self, name: str, model: Model, tools: dict[str, Tool]) -> None:
        self.name, self.model, self.tools = name, model, tools
        self.around_model: Callable[[int, Callable[[], Awaitable[Any]]], Awaitable[Any]] | None = None
        self.around_tool: Callable[[int, str, str, dict[str, Any]], Awaitable[str]] | None = None

    async def run(self) -> str:
        heard: list[str] = []
        for turn in range(1, 20):
            asked = await asyncio.create_task(renamed(self._request)(turn, heard))
            if isinstance(asked, str):
                return asked
            heard += await asyncio.gather(*(renamed(self._run_tool)(turn, *call) for call in asked))
        raise RuntimeError("too many turns")

    async def _request(self, turn: int, heard: list[str]) -> Any:
        if self.around_model is not None:
            return await self.around_model(turn, lambda: self.model(turn, list(heard)))
        return await self.model(turn, heard)

    async def _run_tool(self, turn: int, call_id: str, name: str, arguments: dict[str, Any]) -> str:
        try:
            if self.around_tool is not None:
                return await self.around_tool(turn, call_id, name, arguments)
            return await self.tools[name](**arguments)
        except Exception as error:
            return f"An error occurred, please try again: {error}"


PREFIX = [""]


def renamed(method: Any) -> Any:
    """The same, as another release has it: its coroutines have other names."""

    def made(*args: Any) -> Any:
        coroutine = method(*args)
        coroutine.__name__ = f"{PREFIX[0]}{coroutine.__name__}"
        return coroutine

    return made
