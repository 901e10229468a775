"""Looking at sessions: which there are, one of them, its messages, its file."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.actors.status import kindred, session_line
from perdure.edges.session.encode import encode_message
from perdure.edges.session.files import Listed as File
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.lines import iso
from perdure.edges.session.links import lineage
from perdure.edges.session.tail import open_session
from perdure.errors import SessionNotFound, StorageFailed
from perdure.kernel.io import IoPolicy
from perdure.looking.context import inspect
from perdure.looking.target import Target
from perdure.records import Item
from perdure.server.bodies import Entries, Listed, Page, Stored
from perdure.server.calls import Call
from perdure.server.problems import NOT_FOUND, Refused, json
from perdure.server.since import whole

PIECE = 256 * 1024  # bytes of a file read at once
PAGE_BYTES = 8 * 1024 * 1024  # of the messages of one page


async def listed(call: Call) -> Response:
    """The sessions of who asks, by key."""
    limit, after, agent = call.number("limit", 100, 1_000), call.text("after") or "", call.text("agent")
    found = await call.host.io.run(_owned, call, agent)
    page = [file for file in found if (file.key or "") > after][: limit + 1]
    awake = call.host.directory.awake
    lines = await call.host.io.run(lambda: [lineage(f.key or "", Path(f.path)) for f in page[:limit]])
    rows = tuple(
        Listed(
            file.key or "",
            file.size,
            iso(file.mtime_ns // 1_000_000),
            file.key in awake,
            line.parent if line else None,
            line.state if line else None,
        )
        for file, line in zip(page[:limit], lines, strict=True)
    )
    return json(Page(rows, rows[-1].key if len(page) > limit else None))


def _owned(call: Call, agent: str | None) -> list[File]:
    files: SessionFiles = call.host.files
    agents = None if call.tenant.operator else call.tenant.agents
    owned = (file for file in files.list(agents) if file.key is not None and call.owns(file.key))
    wanted = (f for f in owned if agent is None or (f.key or "").startswith(f"agent:{agent}:"))
    return sorted(wanted, key=lambda file: file.key or "")


async def shown(call: Call) -> Response:
    """One session: its status line while it is awake, else what its file tells."""
    key = await call.known()
    session = call.host.directory.awake.get(key)
    if session is not None and session.state not in ("opening", "closed"):
        return json(
            session_line(session) | {"name": session.transcript.name, "leaf": session.transcript.leaf}
        )
    return json(await call.host.io.run(_asleep, key, call.host.files.path(key)))


def _asleep(key: str, path: Path) -> dict[str, Any]:
    opened = open_session(path)
    return {
        "key": key,
        "state": "asleep",
        "entries": len(opened.items),
        "view_tokens": None,
        "window": None,
        "last_compaction": opened.compaction,
        "cache": {},
        "errors": [],
        "name": opened.name,
        "leaf": opened.leaf,
        **kindred(opened.relatives),
    }


async def entries(call: Call) -> Response:
    """Messages: of the view (`scope=view`), or of the whole branch, covered ones included (`scope=all`)."""
    key = await call.known()
    scope, limit = call.text("scope") or "view", call.number("limit", 100, 1_000)
    if scope not in ("view", "all"):
        raise Refused(400, "invalid", "scope: `view` or `all`")
    path, after = call.host.files.path(key), call.text("after")
    return json(await call.host.io.run(_entries, key, path, scope, after, limit))


def _entries(key: str, path: Path, scope: str, after: str | None, limit: int) -> Entries:
    items = open_session(path).items if scope == "view" else whole(path)
    items = tuple(item for item in items if item.entry)
    if after:
        at = next((n for n, item in enumerate(items) if item.entry == after), None)
        if at is None:
            raise Refused(404, "not_found", f"after={after[:80]}: no such entry in this {scope}")
        items = items[at + 1 :]
    page = _page(items[:limit])
    rest = len(items) > len(page)
    return Entries(key, page, page[-1].entry if rest and page else None)


def _page(items: tuple[Item, ...]) -> tuple[Stored, ...]:
    """As many as a page may weigh, one at least."""
    found: list[Stored] = []
    size = 0
    for item in items:
        raw = encode_message(item.message)
        size += len(raw)
        if found and size > PAGE_BYTES:
            break
        found.append(Stored(item.entry, msgspec.Raw(raw)))
    return tuple(found)


async def context(call: Call) -> Response:
    """The request that the session's next message would make, and what became of every entry."""
    key, message = await call.known(), call.text("message")
    window = call.number("window", 0, 100_000_000) or None
    host = call.host
    model = call.text("model") or host.resolver.model_for(key, None).ref
    target = Target(host.files.path(key), key)
    look = partial(
        inspect, target, host.settings, window=window, model=model, message=message, state=host.folder.path
    )
    return json(await host.io.run(look))


async def export(call: Call) -> ASGIApp:
    """The session's file, byte for byte, up to its last whole line."""
    key = await call.known()
    return Export(call.host.files.path(key), call.host.io)


class Export:
    """An ASGI answer that reads the file as fast as the client takes it."""

    def __init__(self, path: Path, io: IoPolicy) -> None:
        self._path, self._io = path, io

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. An append meanwhile is not among it; a rewrite makes another file."""
        try:
            fd = await self._io.run(os.open, self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SessionNotFound(NOT_FOUND) from None
        except OSError as error:
            raise StorageFailed(f"the session's file can't be read ({error.strerror})") from None
        try:
            left = await self._io.run(_whole_lines, fd)
            headers = [
                (b"content-type", b"application/x-ndjson"),
                (b"content-length", str(left).encode()),
                (b"content-disposition", b'attachment; filename="session.jsonl"'),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            at = 0
            while at < left:
                data = await self._io.run(os.pread, fd, min(PIECE, left - at), at)
                at += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            os.close(fd)


def _whole_lines(fd: int) -> int:
    """Bytes up to the last newline."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        block = os.pread(fd, min(size, PIECE), max(0, size - PIECE))
        size = max(0, size - PIECE) + block.rfind(b"\n") + 1
    return size
