"""A served host for tests: tenants with tokens, a scripted model, raw connections to it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

from helpers_host import KEY, Play, hosted
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import ServerSettings, TenantSettings
from perdure.kernel.clock import RealClock
from perdure.testing.serving import Event, Events, Served, served

PATH = f"/v1/sessions/{KEY}"


def token(name: str) -> str:
    """The token of a tenant of these tests."""
    return f"the long token of {name}"


def tenant(name: str, *agents: str, operator: bool = False) -> TenantSettings:
    """A tenant whose token is `token(name)`."""
    digest = hashlib.sha256(token(name).encode()).hexdigest()
    return TenantSettings(name, agents, token_sha256=digest, operator=operator)


@asynccontextmanager
async def serving(
    folder: Path,
    play: Play | None = None,
    *,
    server: ServerSettings | None = None,
    tenants: tuple[TenantSettings, ...] = (),
    **options: Any,
) -> AsyncIterator[Served]:
    """A host in `folder` that plays `play`, served on a free port."""
    settings = Settings(server=server or ServerSettings(), tenants=tenants)
    host = hosted(folder, play or Play(), RealClock(), settings=settings, **options)
    async with served(host) as found:
        yield found


@asynccontextmanager
async def following(
    found: Served, path: str = PATH, last: str = "", who: str | None = None
) -> AsyncIterator[Events]:
    """The events of a stream."""
    async with found.follow(f"{path}/events", last=last, token=who) as stream:
        assert stream.status == 200, await stream.refusal()
        yield stream


async def upto(stream: Events, name: str) -> list[Event]:
    """Events until one of that name has come, itself included."""
    seen = []
    async for event in stream:
        seen.append(event)
        if event.name == name:
            return seen
    raise AssertionError(f"the stream ended without {name}: {seen}")


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for what other tasks and sockets bring about."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def connect(found: Served) -> SocketStream:
    """A bare connection."""
    where = urlsplit(found.url)
    assert where.hostname is not None
    assert where.port is not None
    return await anyio.connect_tcp(where.hostname, where.port)


def head(found: Served, line: str, *more: str) -> bytes:
    """A request's head, with the operator's token."""
    host = urlsplit(found.url).netloc
    lines = (line, f"host: {host}", f"authorization: Bearer {found.token}", *more)
    return "".join(f"{each}\r\n" for each in (*lines, "")).encode()


async def rest(stream: SocketStream) -> bytes:
    """Everything until the peer closes."""
    found = bytearray()
    try:
        while True:
            found += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return bytes(found)
