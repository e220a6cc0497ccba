"""An agent that uses an MCP server, which stays connected while a person is asked."""

from __future__ import annotations

import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import holdfast as hf
from holdfast.ext.mcp import Tools


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
