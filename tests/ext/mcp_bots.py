"""An agent that uses an MCP server, which stays connected while a person is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver import MCPServer

import holdfast as hf
from holdfast.ext.mcp import Tools
from tests.ext.letters import TURNS, letters, send, told


def connect() -> Any:
    server = StdioServerParameters(command=sys.executable, args=["-m", "tests.ext.mcp_server"], env=dict(os.environ))
    return Client(stdio_client(server))


@hf.agent
async def post(_: str = "go") -> list[str]:
    async with Tools(connect) as tools:
        results = [await tools.call("look", {"at": "x"}), await tools.call("mail", {"to": "1a"})]
        if await hf.ask("Another?"):
            results.append(await tools.call("mail", {"to": "1b"}))
    return [each.content[0].text for each in results]  # type: ignore[union-attr]


office = MCPServer("office")


@office.tool()
async def letter(to: str) -> str:
    """Send a letter."""
    return await send(to)


@hf.agent
async def write(name: str) -> str:
    """Its server is in the process, so that it is killed with it."""
    sent = []
    async with Tools(lambda: Client(office), settle=0) as tools:
        for turn in range(1, TURNS + 1):
            calls = [tools.call("letter", {"to": to}, key=to) for to in letters(name, turn)]
            sent += [each.content[0].text for each in await asyncio.gather(*calls)]  # type: ignore[union-attr]
    return told(sent)


@hf.agent
async def write_if_allowed(name: str) -> str:
    """The session is open while a person is asked."""
    async with Tools(lambda: Client(office), settle=0) as tools:
        first, second = letters(name, 1)
        sent = [await tools.call("letter", {"to": first})]
        if await hf.ask("Another?"):
            sent.append(await tools.call("letter", {"to": second}))
    return told([each.content[0].text for each in sent])  # type: ignore[union-attr]
