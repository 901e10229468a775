"""A host with its HTTP API on 127.0.0.1, for tests of programs that are its clients.

async with served("state", model=model) as server, server.client() as client:
    answer = await client.post("/v1/sessions/agent:main:cli:dm:me/messages?wait=5", json={"text": "hi"})
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from perdure.host import Host
from perdure.server.running import Server, listen, serve


class Served:
    """A running server. `token`: an operator's."""

    def __init__(self, host: Host, server: Server) -> None:
        self.host, self.server = host, server
        self.url, self.token = server.url, server.token

    def client(self, token: str | None = None, **options: Any) -> httpx2.AsyncClient:
        """A client with a token in its headers (default: the operator's)."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30.0, **options)


@asynccontextmanager
async def served(
    state: str | Path | Host, *, environ: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Host a state folder (or run a `Host` that isn't running yet) and serve it on a free port."""
    host = state if isinstance(state, Host) else Host(state, environ=environ, **options)
    server = replace(host.settings.server, host="127.0.0.1", port=0)
    host.settings = replace(host.settings, server=server)
    sock = listen(server)
    async with host, serve(host, sock, environ or {}) as running:
        yield Served(host, running)


class Event:
    """A server-sent event. `data` is decoded."""

    def __init__(self, id: str, name: str, data: Any) -> None:
        self.id, self.name, self.data = id, name, data

    def __repr__(self) -> str:
        return f"Event({self.id!r}, {self.name!r}, {self.data!r})"


async def events(answer: httpx2.Response) -> AsyncIterator[Event]:
    """The events of a streamed answer; comments are left out."""
    id = name = data = ""
    async for line in answer.aiter_lines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            id = value
        elif field == "event":
            name = value
        elif field == "data":
            data += value
        elif not line and data:
            yield Event(id, name, json.loads(data))
            name = data = ""
