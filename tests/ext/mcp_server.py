"""An MCP server on stdio that notes what it does, and when it is started."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.ext.living import note

server = MCPServer("post")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(at: str) -> str:
    """Look."""
    note(f"look {at}")
    return f"seen {at}"


@server.tool()
def mail(to: str) -> str:
    """Send a mail."""
    note(f"mail {to}")
    return f"sent {to}"


if __name__ == "__main__":
    note("server started")
    server.run()
