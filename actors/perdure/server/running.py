"""The server around a running host: its socket, hypercorn on the loop that runs, and an end in order.

async with Host(state) as host, serve(host, listen(settings)) as server:
    ...
    await server.drain(30)
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import sniffio
from hypercorn.config import Config

from perdure.edges import served
from perdure.edges.log import Log
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import ServerSettings
from perdure.errors import ConfigError, UsageError
from perdure.host import Host
from perdure.hosting.draining import Drained
from perdure.server.app import application, serving
from perdure.server.state import Serving

BACKLOG = 2_048  # connections that the kernel holds until they are accepted …
AT_ONCE = 16  # … and those that one round of the loop accepts: a herd that comes at once is no stall
SEND_BUFFER = 256 * 1024  # bytes the kernel keeps for one peer
HEADERS = 32 * 1024  # bytes of a request's head
GRACE, LAST = 2.0, 5.0  # seconds that connections get to end in, and then to close in, cut


def listen(settings: ServerSettings) -> socket.socket:
    """The socket, listening. Raises `UsageError` where the address can't be had, in one line."""
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        code = error.errno or 0  # below 0: a name that can't be looked up, which has words of its own
        why = os.strerror(code) if code > 0 else error.strerror or str(error)
        raise UsageError(f"{host}:{port}: can't listen there ({why}): choose another --port") from None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # inherited: a peer that takes nothing loses its connection
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.stall_seconds * 1000))
    return sock


def guarded(host: Host) -> None:
    """Raises `ConfigError` for an address that others reach while nobody needs a token of theirs."""
    told = host.settings.server.host
    if told not in ("127.0.0.1", "::1", "localhost") and not host.settings.tenants:
        raise ConfigError(
            f"server.host {told}: others could reach it and no tenant is configured: "
            "add [tenants.NAME] with a token, or stay on 127.0.0.1"
        )


class Server:
    """A running server. `token` is the local operator's."""

    def __init__(self, shared: Serving, sock: socket.socket, token: str) -> None:
        self.shared, self._sock, self.url, self.token = shared, sock, _url(sock), token
        self._stop, self.ended = anyio.Event(), anyio.Event()
        self.scope = anyio.CancelScope(shield=True)  # of what serves the connections

    async def drain(self, seconds: float) -> Drained:
        """Take no new messages, let what runs end for so long, then end the streams; what was cut off."""
        self.shared.draining = True
        drained = await self.shared.host.drain(seconds)
        await anyio.sleep(0.02)  # the last events are on their way
        self.stop()
        return drained

    def stop(self) -> None:
        """End the streams and take no more connections."""
        self.shared.draining = True
        self.shared.hub.close()
        self._stop.set()

    async def stopped(self) -> None:
        """Until `stop`. Awaited once hypercorn listens, with a backlog of its own."""
        self._sock.listen(BACKLOG)
        await self._stop.wait()


@asynccontextmanager
async def serve(
    host: Host, sock: socket.socket, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Serve the host's API on a listening socket while the block runs. The socket is ours from now on."""
    with sock:
        guarded(host)
        port = sock.getsockname()[1]
        token = secrets.token_urlsafe(32)
        shared = serving(host, token, os.environ if environ is None else environ)
        server = Server(shared, sock, token)
        config = _config(sock, host.log)
        leave = host.services.events.subscribe("server", shared.hub.told)
        prepare = partial(_adopted, shared)
        host.adopters.append(prepare)
        record = served.write(host.folder, served.Served(server.url, token, os.getpid()))
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_hypercorn, application(shared), config, server)
                try:
                    yield server
                finally:
                    server.stop()
                    if not await _ended(server, GRACE):
                        cut(port)
                        await _ended(server, LAST)
                    server.scope.cancel()
        finally:
            served.remove(host.folder, record)
            host.adopters.remove(prepare)
            leave()


def _adopted(shared: Serving, settings: Settings) -> Callable[[], None]:
    """Other tenants, once all else agrees: whoever listens comes back with a token that holds now."""
    changed = settings.tenants != shared.host.settings.tenants
    commit = shared.keys.prepared(settings)

    def done() -> None:
        commit()
        if changed:
            shared.hub.end("reloaded")

    return done


async def _ended(server: Server, seconds: float) -> bool:
    with anyio.move_on_after(seconds, shield=True):
        await server.ended.wait()
    return server.ended.is_set()


def cut(port: int) -> None:
    """Shut the connections to our port down: a peer that takes nothing would hold its task, and the end, up.

    hypercorn names no sockets, so they are found among our descriptors.
    """
    for fd in map(int, os.listdir("/dev/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as found:
                if found.getsockname()[1:2] == (port,) and found.getpeername():
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # not connected, or gone


async def _hypercorn(app: Any, config: Config, server: Server) -> None:
    """Its own end is by `server.stop`: cancelled in the middle of one, it leaves connections and errors."""
    try:
        with server.scope:
            if sniffio.current_async_library() == "trio":
                from hypercorn.trio import serve as on_trio

                await on_trio(app, config, shutdown_trigger=server.stopped, mode="asgi")
            else:
                from hypercorn.asyncio import serve as on_asyncio

                await on_asyncio(app, config, shutdown_trigger=server.stopped, mode="asgi")
    except Exception:
        if not server.scope.cancel_called:
            raise
    finally:
        server.ended.set()


def _config(sock: socket.socket, log: Log) -> Config:
    config = Config()
    config.bind = [f"fd://{os.dup(sock.fileno())}"]
    config.backlog = AT_ONCE  # what asyncio accepts in a row, too
    config.h11_max_incomplete_size = HEADERS
    config.h2_max_header_list_size = HEADERS
    config.include_server_header = False
    config.keep_alive_timeout = 15.0
    config.keep_alive_max_requests = 100_000
    config.graceful_timeout = GRACE + LAST
    config.errorlog = _forwarding(log)
    return config


def _forwarding(log: Log) -> logging.Logger:
    """What hypercorn says, into the runtime log: a logger of its own, unknown to the program's logging."""
    logger = logging.Logger("perdure.server", logging.WARNING)
    logger.addHandler(_Forward(log))
    return logger


class _Forward(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        told = repr(record.exc_info[1]) if record.exc_info else ""
        self._log.warning("server.connection", text=record.getMessage(), error=told)


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
