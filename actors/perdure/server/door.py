"""The way into the API: what is true of every request, whatever it asks.

Pure ASGI around the routes: whose address it was sent to, how large its body is, how many are served at
once, and what happens to a bug. Paths are matched as they were sent, so that a key may hold `%2F`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from perdure.edges.log import Log
from perdure.edges.settings_hosting import ServerSettings
from perdure.errors import PerdureError
from perdure.kernel.outcome import Failed, trace_of
from perdure.server.problems import Problem, Refusal, Refused, answer, json, refused

App = Callable[[Any, Any, Any], Awaitable[None]]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
LINGER = 5.0  # seconds that a refused body is read on, so that the client sees the answer and not a reset


class Door:
    """Wraps `app`. `answered` counts answers by status class."""

    def __init__(self, app: App, settings: ServerSettings, log: Log, answered: dict[str, int]) -> None:
        self._app, self._settings, self._log, self._answered = app, settings, log, answered
        self._hosts = LOOPBACK | {settings.host.lower(), *(name.lower() for name in settings.public_hosts)}
        self.within = 0  # requests at this moment

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request; a websocket is closed, there is none here."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "lifespan":  # the host lives outside of the server
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.within += 1
        try:
            await self._admitted(scope, Body(receive, self._settings.max_body_mb << 20), send)
        finally:
            self.within -= 1

    async def _admitted(self, scope: Any, body: Body, send: Any) -> None:
        begun = False

        async def counted(message: Any) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                family = f"{message['status'] // 100}xx"
                self._answered[family] = self._answered.get(family, 0) + 1
            await send(message)

        scope["app"] = self  # so that the router raises what it refuses
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            try:
                self._check(headers)
                body.check(headers)
                await self._app(scope, body.receive, counted)
            except (Refused, PerdureError, HTTPException, ClientDisconnect) as error:
                if isinstance(error, ClientDisconnect):
                    return
                if begun:
                    raise
                refusal = _refusal(error)
                await body.linger(answer(refusal), scope, counted)
        except Exception as error:
            await self._bug(error, scope, body, counted, begun=begun)

    async def _bug(self, error: Exception, scope: Any, body: Body, send: Any, *, begun: bool) -> None:
        number = secrets.token_hex(6)
        self._log.error("server.bug", id=number, path=scope["path"], trace=trace_of(Failed(error)))
        if not begun:
            told = Problem("internal", f"a bug of this server; runtime.log has it as {number}", None, number)
            await body.linger(json(Refusal(told), 500), scope, send)

    def _check(self, headers: dict[bytes, str]) -> None:
        if self.within > self._settings.max_requests:
            raise Refused(503, "busy", "too many requests at once: try again in a while", 1.0)
        if _name(headers.get(b"host", "")) not in self._hosts:
            raise Refused(403, "forbidden", "this host is not called so: see [server] public_hosts")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._settings.origins and not self._own(origin, headers):
            raise Refused(403, "forbidden", "pages of this origin may not call: see [server] origins")

    def _own(self, origin: str, headers: dict[bytes, str]) -> bool:
        return origin.partition("://")[2] == headers.get(b"host")


class Body:
    """The body of a request as it comes, bounded. Counts before anything is kept."""

    def __init__(self, receive: Any, most: int) -> None:
        self._receive, self._most = receive, most
        self._seen, self.whole = 0, False

    def check(self, headers: dict[bytes, str]) -> None:
        """By what the client says of it."""
        told = headers.get(b"content-length", "0")
        self.whole = told.strip() == "0" and b"transfer-encoding" not in headers
        if not told.isdigit() or int(told) > self._most:
            raise self._too_large()

    async def receive(self) -> Any:
        """The next piece. Raises `Refused` where it grows too large."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self._seen > self._most:
                raise self._too_large()
        return message

    async def linger(self, respond: App, scope: Any, send: Any) -> None:
        """Answer at once, and end the answer when the rest of the body has come, and is thrown away.

        A connection that is closed while a client still sends is reset, and the client never sees why.
        """
        if self.whole:
            await respond(scope, self.receive, send)
            return
        over = anyio.Event()

        async def held(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await over.wait()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        async with anyio.create_task_group() as group:
            group.start_soon(self._discard, over)
            await respond(scope, self.receive, held)
            group.cancel_scope.cancel()

    async def _discard(self, over: anyio.Event) -> None:
        with anyio.move_on_after(LINGER):
            while not self.whole:
                message = await self._receive()
                self.whole = message["type"] != "http.request" or not message.get("more_body", False)
        over.set()
        while True:  # a server's queue must not fill up while it sends
            await self._receive()

    def _too_large(self) -> Refused:
        return Refused(
            413, "body_too_large", f"the body is over {self._most >> 20} MB ([server] max_body_mb)"
        )


def _refusal(error: Refused | PerdureError | HTTPException) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, PerdureError):
        return refused(error)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return Refused(405, "not_allowed", f"this path takes {allowed}: see /openapi.json")
    return Refused(404, "not_found", "no such path: see /openapi.json")


def _name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
