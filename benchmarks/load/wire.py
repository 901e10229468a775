"""The clients' side of HTTP: one connection, requests in turn, or one stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import h11

CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server listens, and the token that opens it."""

    host: str
    port: int
    token: str

    def headers(self, *more: tuple[str, str]) -> list[tuple[str, str]]:
        """What every request says."""
        return [("Host", f"{self.host}:{self.port}"), ("Authorization", f"Bearer {self.token}"), *more]


class Gone(Exception):
    """The server closed the connection."""


class Line:
    """A keep-alive connection. `most`: bytes that one read takes, so that a slow client is one."""

    def __init__(self, place: Place, *, most: int = CHUNK) -> None:
        self._place, self._most = place, most
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._http = h11.Connection(h11.CLIENT)

    async def post(self, path: str, body: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
        """The status and the JSON of one POST; once more where an idle connection was closed meanwhile."""
        used = self._writer is not None
        try:
            return await self._posted(path, body, key)
        except (Gone, OSError):
            self.vanish()
            if not used:
                raise
        return await self._posted(path, body, key)

    async def _posted(self, path: str, body: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
        await self._open()
        data = json.dumps(body).encode()
        told = (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
            ("Idempotency-Key", key),
        )
        request = h11.Request(method="POST", target=path, headers=self._place.headers(*told))
        self._send(request, h11.Data(data), h11.EndOfMessage())
        status, text = await self._answer()
        self._http.start_next_cycle()
        return status, json.loads(text or b"{}")

    async def events(self, path: str, *, after: str = "") -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
        """`(id, event, data)` as they come. Raises `Gone` at the end of the stream."""
        await self._open()
        more = (("Last-Event-ID", after),) if after else ()
        request = h11.Request(
            method="GET", target=path, headers=self._place.headers(("Accept", "text/event-stream"), *more)
        )
        self._send(request, h11.EndOfMessage())
        pending = b""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response) and event.status_code != 200:
                raise Gone(f"the stream was refused with {event.status_code}")
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                raise Gone
            if not isinstance(event, h11.Data):
                continue
            *frames, pending = (pending + bytes(event.data)).split(b"\n\n")
            for frame in frames:
                if (read := _frame(frame)) is not None:
                    yield read

    def vanish(self) -> None:
        """Be gone without a word, as a phone in a tunnel is."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def _open(self) -> None:
        if self._writer is None:
            self._http = h11.Connection(h11.CLIENT)
            self._reader, self._writer = await asyncio.open_connection(
                self._place.host, self._place.port, limit=self._most
            )

    def _send(self, *events: Any) -> None:
        assert self._writer is not None
        for event in events:
            self._writer.write(self._http.send(event) or b"")

    async def _answer(self) -> tuple[int, bytes]:
        status, parts = 0, []
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return status, b"".join(parts)
            else:
                raise Gone

    async def _next(self) -> Any:
        assert self._reader is not None
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(self._most)
            if not data:
                raise Gone
            self._http.receive_data(data)
        return event


def _frame(raw: bytes) -> tuple[str, str, dict[str, Any]] | None:
    """One frame; `None` for a comment."""
    fields = {"id": "", "event": "", "data": ""}
    for line in raw.decode().splitlines():
        name, _, value = line.partition(": ")
        if name in fields:
            fields[name] = value
    if not fields["data"]:
        return None
    return fields["id"], fields["event"], json.loads(fields["data"])
