"""Tools from MCP servers, through the official SDK (extra `mcp`, imported on first use).

One task owns each connection (`run`, a supervised service): it connects, holds, and connects again when
a call finds the server gone. A call never hangs and never takes its turn along: a dead, slow or lying
server gives an error result. Nothing is called twice by itself. The tools a session knows stay those
of the first connection, since they are part of its cached prefix.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.edges.settings import McpSettings, Pairs
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.builtin import offered
from perdure.edges.tools.mcp_shapes import MAX_TOOLS, fitted_name, output_of, reason, spec_of
from perdure.edges.tools.outcome import failure
from perdure.edges.tools.virtual import is_virtual
from perdure.records import ToolSpec

if TYPE_CHECKING:
    from mcp import Client

MAX_PAGES = 20
SLACK_SECONDS = 1.0  # a caller waits a little longer than the owner, which knows the reason
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpServer:
    """One configured server. `run` owns the connection; `tools` and `call` may come from any task."""

    def __init__(self, settings: McpSettings) -> None:
        self.settings = settings
        self.problem = ""  # why there is no connection, for `status` and error results
        self.connections = 0
        self._client: Client | None = None
        self._listed: tuple[Any, ...] | None = None
        self._changed = anyio.Event()  # replaced whenever the state below it changes
        self._wanted = anyio.Event()
        self._lost = anyio.Event()

    @property
    def name(self) -> str:
        """As configured."""
        return self.settings.name

    async def run(self) -> None:
        """Connect now, hold the connection, connect again when a call needs it; until cancelled."""
        while True:
            self._wanted = anyio.Event()
            await self._hold()
            await self._wanted.wait()

    async def tools(self) -> tuple[Tool, ...]:
        """The server's tools, by name, within the configured lists; none and a `problem` if it is away."""
        if self._listed is None:
            await self._connected()
        specs = {tool.name: tool for tool in self._listed or ()}
        allowed = [n for n in sorted(specs) if offered(n, self.settings.allow, self.settings.deny)]
        made = [McpTool(self, name, spec_of(self.name, specs[name])) for name in allowed[:MAX_TOOLS]]
        return tuple(Checked(tool) for tool in made)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """One call; whatever goes wrong is an error result."""
        client = await self._connected()
        if client is None:
            return failure(f"The MCP server {self.name!r} is not reachable ({self.problem or 'no answer'}).")
        try:
            with anyio.fail_after(self.settings.timeout_seconds):
                answer = await client.call_tool(tool, dict(arguments))
        except TimeoutError:
            seconds = self.settings.timeout_seconds
            return failure(
                f"{tool} of the MCP server {self.name!r} did not answer within {seconds:g} seconds."
            )
        except Exception as error:
            return self._failed(client, tool, error)
        try:
            return output_of(answer)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            return failure(f"{tool} of the MCP server {self.name!r} gave an unusable result: {reason(error)}")

    def _failed(self, client: Client, tool: str, error: Exception) -> ToolOutput:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return failure(f"{tool} of the MCP server {self.name!r} failed: {reason(error)}")
        self._drop(client)
        return failure(
            f"The MCP server {self.name!r} went away during {tool} ({reason(error)}); the call may have run. "
            "It is started again for the next call."
        )

    async def _connected(self) -> Client | None:
        """The client, waiting for the owner to connect as long as connecting may take."""
        with anyio.move_on_after(self.settings.connect_seconds + SLACK_SECONDS):
            while self._client is None:
                changed = self._changed
                self._wanted.set()
                await changed.wait()
                if self.problem and self._client is None:
                    break
        return self._client

    async def _hold(self) -> None:
        self.problem = ""
        try:
            async with anyio.create_task_group() as tasks:
                ready = anyio.Event()
                tasks.start_soon(self._limit, ready, tasks.cancel_scope)
                async with _client(self.settings) as client:
                    self._listed = self._listed or await _list_tools(client)
                    ready.set()
                    self._take(client)
                    await self._lost.wait()
        except Exception as error:
            self.problem = reason(error)
        finally:
            self._client = None
            self._tell()

    async def _limit(self, ready: anyio.Event, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self.settings.connect_seconds):
            await ready.wait()
        if not ready.is_set():
            self.problem = f"not connected within {self.settings.connect_seconds:g} seconds"
            self._tell()  # callers needn't wait until the process is gone
            scope.cancel()

    def _take(self, client: Client) -> None:
        self._client, self._lost = client, anyio.Event()
        self.connections += 1
        self._tell()

    def _drop(self, client: Client) -> None:
        """The first call that finds the connection dead ends it; later ones find it ended."""
        if self._client is client:
            self._client = None
            self._lost.set()

    def _tell(self) -> None:
        before, self._changed = self._changed, anyio.Event()
        before.set()


class McpTool:
    """One tool of a server, under a name that every provider accepts."""

    def __init__(self, server: McpServer, name: str, spec: ToolSpec) -> None:
        self._server, self._name, self._spec = server, name, spec

    @property
    def spec(self) -> ToolSpec:
        """What the model sees."""
        return self._spec

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if is_virtual(context):
            return failure("MCP servers are not called under virtual time: let the script return the result.")
        return await self._server.call(self._name, arguments)


def servers(settings: Sequence[McpSettings]) -> tuple[McpServer, ...]:
    """A server for each enabled entry, by name; nothing is started yet."""
    return tuple(McpServer(each) for each in sorted(settings, key=lambda s: s.name) if each.enabled)


async def _list_tools(client: Client) -> tuple[Any, ...]:
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(tools)


@asynccontextmanager
async def _client(settings: McpSettings) -> AsyncIterator[Client]:
    try:
        from mcp import Client
    except ImportError as error:
        raise RuntimeError(f"the SDK is not installed: pip install 'perdure[mcp]' ({error})") from None
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # else its warnings go to the terminal
    async with _transport(settings) as transport, Client(transport) as client:
        yield client


@asynccontextmanager
async def _transport(settings: McpSettings) -> AsyncIterator[Any]:
    """The SDK's transport: a child process with a scrubbed environment, or an HTTP endpoint."""
    if settings.url:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(settings.connect_seconds, read=max(300.0, settings.timeout_seconds))
        async with httpx2.AsyncClient(headers=dict(expanded(settings.headers)), timeout=timeout) as http:
            yield streamable_http_client(settings.url, http_client=http)
    elif settings.command:
        from mcp import StdioServerParameters, stdio_client

        parameters = StdioServerParameters(
            command=settings.command,
            args=list(settings.args),
            env=dict(expanded(settings.env)),
            cwd=settings.cwd or None,
            encoding_error_handler="replace",
        )
        with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 (never blocks)
            yield stdio_client(parameters, errlog=nowhere)
    else:
        raise RuntimeError("neither command nor url is configured")


def expanded(pairs: Pairs, environ: Mapping[str, str] | None = None) -> Pairs:
    """`${NAME}` in values comes from the environment, so that secrets need not stand in the file."""
    found = os.environ if environ is None else environ
    return tuple((name, _VARIABLE.sub(lambda m: found.get(m[1], ""), value)) for name, value in pairs)


__all__ = ["McpServer", "McpTool", "expanded", "fitted_name", "servers"]
