"""A provider on 127.0.0.1, scripted and strict, to drive a real SDK against: of the model's own API.

    async with loopback(source) as server:
        model = AnthropicModel(info, api_key=server.key, base_url=server.url)

    async with loopback(source, catalog.resolve("openai/gpt-4.1")) as server:
        model = OpenAIModel(info, api_key=server.key, base_url=server.url)

It checks what the scripted model checks, in the provider's order: key, size, JSON, structure, window;
then plays the answer of `source`, faults included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import h11
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from perdure.contracts import Request
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.catalog import resolve
from perdure.edges.models.provider import Provider, decode
from perdure.edges.models.reply import ScriptedReply, Source
from perdure.edges.models.rules.refusal import Refused
from perdure.kernel.clock import Clock, RealClock
from perdure.records import ModelInfo
from perdure.testing.speech import SPEECHES, Speech

MAX_BODY = 32 * 1024 * 1024
Json = dict[str, Any]


class Loopback:
    """The server's face: where it listens, which key it takes, which bodies it saw, in order."""

    def __init__(self, provider: Provider, books: Accounting, key: str, speech: Speech) -> None:
        self._provider, self._books, self.key = provider, books, key
        self._speech = speech
        self.url = ""
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []

    async def serve(self, stream: SocketStream) -> None:
        """One connection, until the client or a fault closes it."""
        async with stream:
            wire = Wire(stream)
            try:
                while await self._one(wire):
                    pass
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError):
                pass  # the client left in the middle of something

    async def _one(self, wire: Wire) -> bool:
        """Answer one request; False where the connection must end."""
        asked = await wire.read()
        if asked is None:
            return False
        path, headers, body = asked
        self.headers.append(headers)
        try:
            self._admit(path, headers, body)
            if self._speech.counts and path.startswith(self._speech.counts):
                await wire.reply(200, self._count(body))
                return wire.next()
            return await self._message(wire, body)
        except Refused as refusal:
            await wire.reply(refusal.status, self._provider.family.error_body(refusal))
            return wire.next()

    def _admit(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self._speech.admit(headers, self.key)
        if not path.startswith(self._speech.path):
            raise Refused(404, "not_found_error", "Not found")
        if len(body) > MAX_BODY:
            raise Refused(413, "request_too_large", "Request exceeds the maximum size")

    def _count(self, body: bytes) -> Json:
        read = self._provider.structure(body, counting=True)
        self.requests.append(decode(body))
        return {"input_tokens": self._books.count(read)}

    async def _message(self, wire: Wire, body: bytes) -> bool:
        read = self._provider.structure(body)
        asked = decode(body)
        self.requests.append(asked)
        plan = self._provider.plan(read)
        decided = await self._provider.decide(read, plan, Request(body, self._provider.info))
        reply = decided.reply
        if reply.fault == "stall":
            await anyio.sleep_forever()
        failed = self._provider.failure(decided)
        if failed is not None:
            wait = {} if reply.retry_after is None else {"retry-after": f"{reply.retry_after:g}"}
            await wire.reply(failed.status, self._provider.family.error_body(failed), wait)
            return wire.next()
        self._provider.begin(decided)
        whole = self._speech.whole(decided, asked)
        if not asked.get("stream"):
            await wire.reply(200, whole)
            return wire.next()
        return await self._stream(wire, self._speech.events(whole, reply, asked), reply)

    async def _stream(self, wire: Wire, told: list[bytes], reply: ScriptedReply) -> bool:
        if reply.fault in ("cut", "overloaded_midway"):
            told = told[: len(told) // 2]
        if reply.fault == "overloaded_midway":
            told.append(self._speech.midway)
        await wire.begin(200, {"content-type": "text/event-stream; charset=utf-8"})
        for event in told:
            await wire.send(event)
        if reply.fault == "cut":
            return False
        await wire.send(self._speech.last)
        await wire.end()
        return wire.next()


class Wire:
    """HTTP/1.1 on one connection."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=256 * 1024)

    async def read(self) -> tuple[str, dict[str, str], bytes] | None:
        """(path, headers in lower case, body) of the next request; None where there is none."""
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                await self._more()
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode().lower(): value.decode("latin-1") for name, value in head.headers}
                return head.target.decode(), headers, b"".join(body)
            else:
                return None

    async def _more(self) -> None:
        try:
            self._http.receive_data(await self._stream.receive(65_536))
        except anyio.EndOfStream:
            self._http.receive_data(b"")

    async def reply(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        """One whole JSON reply."""
        data = msgspec.json.encode(body)
        more = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        await self.begin(status, more)
        await self.send(data)
        await self.end()

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        """Status and headers."""
        told = [("request-id", "req_loopback"), *headers.items()]
        await self._put(h11.Response(status_code=status, headers=told))

    async def send(self, data: bytes) -> None:
        """A piece of the body."""
        await self._put(h11.Data(data=data))

    async def end(self) -> None:
        """The end of the body."""
        await self._put(h11.EndOfMessage())

    def next(self) -> bool:
        """Make ready for another request; False where the connection can't take one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _put(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send(data)


@asynccontextmanager
async def loopback(
    source: Source,
    info: ModelInfo | None = None,
    *,
    key: str = "loopback-key",
    clock: Clock | None = None,
    strict: bool = True,
    known: bool = True,
) -> AsyncIterator[Loopback]:
    """Serve the API of `info` while the block runs; every connection ends with it."""
    books = Accounting()
    known_model = info or resolve("anthropic/claude-sonnet-4-5")
    provider = Provider(
        known_model, source, clock or RealClock(), strict=strict, known=known, accounting=books
    )
    speech = SPEECHES[known_model.api]
    server = Loopback(provider, books, key, speech)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}{speech.base}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()
