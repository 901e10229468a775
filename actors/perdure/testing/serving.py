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
from urllib.parse import urlsplit

import anyio
import h11
import httpx2
from anyio.abc import ByteStream
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
    async def follow(self, path: str, *, last: str = "", token: str | None = None) -> AsyncIterator[Events]:
        """The stream at `path`, from the event `last` on. Leaving the block closes the connection."""
        where = urlsplit(self.url)
        headers = {"authorization": f"Bearer {token or self.token}"} | (
            {"last-event-id": last} if last else {}
        )
        async with await anyio.connect_tcp(where.hostname or "", where.port or 80) as stream:
            events = Events(stream)
            await events.ask(where.netloc, path, headers)
            yield events


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


class Events:
    """The events of a stream, one after the other; comments are left out. Ends where the server ends it."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._http = stream, h11.Connection(h11.CLIENT)
        self._data = b""
        self.status = 0

    async def ask(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        """Send the request and read the head of the answer; of a refusal, `refusal` reads the rest."""
        told = [("host", host), *headers.items()]
        asked = self._http.send(h11.Request(method="GET", target=path, headers=told))
        await self._stream.send((asked or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        answer = await self._next()
        assert isinstance(answer, h11.Response)
        self.status = answer.status_code

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        while True:
            frame, found, after = self._data.partition(b"\n\n")
            if not found:
                await self._more()
                continue
            self._data = after
            fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if line[:1] != ":")
            if "data" in fields:
                return Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))

    async def refusal(self) -> Any:
        """The body of an answer that is no stream."""
        try:
            while True:
                await self._more()
        except StopAsyncIteration:
            return json.loads(self._data)

    async def _more(self) -> None:
        event = await self._next()
        if not isinstance(event, h11.Data):
            raise StopAsyncIteration
        self._data += bytes(event.data)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                raise StopAsyncIteration from None
        return event
