"""Tools of an MCP server as durable calls, by what they say of themselves.

    from mcp import Client
    from holdfast.ext.mcp import Tools

    async with Tools(lambda: Client(server)) as tools:
        result = await tools.call("send", {"to": "ada"})

A tool that only reads is a step. One that may be repeated with the same arguments is an effect that is tried again. Any
other is an effect, and a person is asked if it was cut off. The server is connected to in the first body that needs it:
a replay that finds everything in the journal starts none.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from mcp.types import CallToolResult, TextContent, Tool

import holdfast as hf
from holdfast import ext

_LIST: Final = ext.Operation("mcp.tools", returns=list[Tool])


def _dump(result: CallToolResult) -> Any:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _outside(result: Any) -> CallToolResult:
    """Of a text that a person says the tool returned."""
    if isinstance(result, dict) and "content" in result:
        return CallToolResult.model_validate(result)
    return CallToolResult(content=[TextContent(type="text", text=str(result))])


RESULT: Final[ext.Codec[CallToolResult]] = ext.Codec(_dump, CallToolResult.model_validate, _outside)


class Tools:
    """The tools of one server, while the block lasts. `connect` makes a connected client or session: a context manager.

    `kinds` overrides what tools say of themselves: `{"search": "step", "pay": "effect"}`. `options`: those of effects.

    Example: `async with Tools(lambda: Client(server), kinds={"search": "step"}) as tools: ...`
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        kinds: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._connect = connect
        self._kinds = dict(kinds or {})
        self._options = options
        self._operations: dict[str, ext.Operation] = {}
        self._known: list[Tool] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._session: asyncio.Future[Any] | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Tools:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait({self._owner})

    async def available(self) -> list[Tool]:
        """What the server has, as it was when the run first asked.

        Example: `names = [tool.name for tool in await tools.available()]`
        """
        if self._known is None:
            self._known = await _LIST(self._listed)
        return self._known

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> CallToolResult:
        """Call a tool. `key` names the call in its place; give the id that a model gave it.

        Example: `result = await tools.call("send", {"to": "ada"}, key=call.id)`
        """
        given = dict(arguments or {})
        operation = self._operations.get(name) or await self._operation(name)
        return await operation(lambda: self._called(name, given), key=key, shown=given)

    async def _operation(self, name: str) -> ext.Operation:
        found = next((tool for tool in await self.available() if tool.name == name), None)
        if found is None:
            raise hf.UsageError(
                f"The MCP server has no tool {name!r}; it has {[tool.name for tool in await self.available()]}."
            )
        said = found.annotations
        kind = self._kinds.get(name, "step" if said is not None and said.read_only_hint else "effect")
        options = dict(self._options)
        if said is not None and said.idempotent_hint:
            options.setdefault("on_doubt", "retry")
        made = ext.Operation(name, "step" if kind == "step" else "effect", codec=RESULT, **options)
        self._operations[name] = made
        return made

    async def _listed(self) -> list[Tool]:
        return list((await (await self._connected()).list_tools()).tools)

    async def _called(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        result: CallToolResult = await (await self._connected()).call_tool(name, arguments)
        return result

    async def _connected(self) -> Any:
        """The session. A task of its own has it open, which is no branch of the run: it outlives the call that asks."""
        if self._session is None:
            self._session = asyncio.get_running_loop().create_future()
            self._owner = asyncio.Task(self._own(self._session), context=contextvars.Context())
        return await asyncio.shield(self._session)

    async def _own(self, session: asyncio.Future[Any]) -> None:
        try:
            async with self._connect() as connected:
                session.set_result(connected)
                await self._closing.wait()
        except BaseException as error:
            if session.done():
                raise
            session.set_exception(error)
            self._session = None  # the next call tries again
