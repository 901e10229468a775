"""A real MCP server process for tests: `python helpers_mcp_server.py` speaks stdio; `http PORT` HTTP."""

from __future__ import annotations

import os
import sys
from typing import Any

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("test server")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers. Nothing else."""
    return a + b


@server.tool(name="odd name/with.signs and a very long tail that no provider would ever accept as it is")
def odd() -> str:
    """Has an odd name."""
    return "odd"


@server.tool()
def die() -> str:
    """End the server process at once."""
    os._exit(3)


@server.tool()
async def stall() -> str:
    """Never answer."""
    import anyio

    await anyio.sleep_forever()
    return ""


@server.tool()
def fail() -> str:
    """Fail with a secret in the message."""
    raise ValueError("bad key sk-ant-api03-abcdefghijklmnopqrstuvwxyz")


@server.tool()
def flood() -> str:
    """Return a lot of text."""
    return "x" * 400_000 + "END"


@server.tool()
def picture() -> Any:
    """Return an image."""
    return Image(data=b"\x89PNG\r\n\x1a\n0000", format="png")


@server.tool()
def environment() -> str:
    """Show what the process was given."""
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
