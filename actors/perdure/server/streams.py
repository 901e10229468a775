"""One event stream: catch up, then tell what happens, until the client or the host has had enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from perdure.edges.session.files import SessionFiles
from perdure.edges.settings_hosting import ServerSettings
from perdure.errors import PerdureError
from perdure.host import Host
from perdure.records import Item
from perdure.server import frames
from perdure.server.frames import Ended, Place, Ready, Resync
from perdure.server.hub import Frame, Hub, Listener
from perdure.server.since import OURS, later, leaf_of, since

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
CHUNK = 64 * 1024  # bytes handed to the connection at once
MOST = 20_000  # messages of many sessions that one stream catches up on
HEARTBEAT = b": alive\n\n"
GONE = "the events since are not kept any more"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that waits for more would hold the news back
]


class EventStream:
    """An ASGI answer. Without a `key`: all sessions of the `tenant` (`None`: all), which are `wanted`.

    `last`: the client's id, if it has one. `left` is called once when the stream is over, however it ends.
    """

    def __init__(
        self,
        host: Host,
        hub: Hub,
        settings: ServerSettings,
        key: str | None,
        tenant: str | None,
        wanted: Callable[[str], bool],
        last: Place | None,
        left: Callable[[], None],
    ) -> None:
        self._host, self._hub, self._settings, self._key = host, hub, settings, key
        self._tenant, self._wanted, self._last, self._left = tenant, wanted, last, left
        named = host.services.gates.tenancy.named(tenant) if tenant is not None else None
        self._agents = named.agents if named is not None else None
        self._entry = ""  # the last message entry that the client knows
        self._seq = 0  # and the event up to which it is told
        self._upto = ""  # messages up to this id were told, or need not be

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve it. Whatever ends it frees its buffer and its place at once."""
        listener = self._hub.listen(self._key, self._tenant)
        upto = self._host.files.ids.entry(self._host.clock.wall_ms())
        missed = self._missed(self._hub.seq)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_gone, receive, group.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                try:
                    await (self._catch_up(upto, send) if missed is None else self._replay(missed, send))
                    await self._tell(listener, send)
                except PerdureError as error:  # the file can't be read
                    await self._put(send, [frames.body("failed", frames.encoded(Ended(str(error))))])
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                group.cancel_scope.cancel()
        except* TimeoutError:
            pass  # it has taken nothing for too long: the connection goes, the client may come back
        finally:
            self._hub.leave(listener)
            self._left()

    async def _tell(self, listener: Listener, send: Send) -> None:
        """What happens from now on."""
        while True:
            if taken := listener.take():
                await self._put(send, map(self._numbered, self._news(taken)))
            elif listener.ended:
                told = frames.encoded(Ended(listener.ended))
                await self._put(send, [frames.body(listener.ended, told)])
                return
            else:
                await self._wait(listener, send)

    async def _wait(self, listener: Listener, send: Send) -> None:
        listener.news = anyio.Event()
        with anyio.move_on_after(self._settings.heartbeat_seconds) as waited:
            await listener.news.wait()
        if waited.cancelled_caught:
            await self._put(send, [HEARTBEAT])

    async def _put(self, send: Send, parts: Iterable[bytes]) -> None:
        piece = bytearray()
        for part in parts:
            piece += part
            if len(piece) >= CHUNK:
                await self._send(send, bytes(piece))
                piece.clear()
        if piece:
            await self._send(send, bytes(piece))

    async def _send(self, send: Send, data: bytes) -> None:
        with anyio.fail_after(self._settings.stall_seconds):
            await send({"type": "http.response.body", "body": data, "more_body": True})

    def _news(self, taken: Iterable[Frame]) -> Iterator[Frame]:
        """Without what a file has told already: it has a line before the journal has made it durable."""
        for frame in taken:
            if not frame.entry or frame.entry > self._upto:
                yield frame

    # --- ids --------------------------------------------------------------------------------------

    def _numbered(self, frame: Frame) -> bytes:
        self._seq = frame.seq
        if frame.entry and (self._key is not None or frame.entry > self._entry):
            self._entry = frame.entry
        return frames.numbered(Place(self._hub.epoch, frame.seq, self._entry), frame.body)

    def _ready(self) -> bytes:
        ready = frames.body("ready", frames.encoded(Ready(self._key, self._entry or None)))
        return frames.numbered(Place(self._hub.epoch, self._seq, self._entry), ready)

    # --- catching up ------------------------------------------------------------------------------

    def _missed(self, now: int) -> list[Frame] | None:
        """What the ring has of the gap, all of it; `None` where a file must tell."""
        ring, last = self._hub.everything() if self._key is None else self._hub.ring(self._key), self._last
        self._seq = now
        if last is None or last.epoch != self._hub.epoch or not last.seq:
            return None
        if not ring.floor <= last.seq <= now:
            return None
        return [frame for frame in ring.since(last.seq) if self._wanted(frame.key)]

    async def _replay(self, missed: list[Frame], send: Send) -> None:
        now = self._seq
        self._entry = self._last.entry if self._last is not None else ""
        self._upto = self._entry if len(self._entry) >= OURS else ""
        await self._put(send, map(self._numbered, self._news(missed)))
        self._seq = now
        await self._put(send, [self._ready()])

    async def _catch_up(self, upto: str, send: Send) -> None:
        self._upto = upto
        if self._key is None:
            await self._catch_up_all(upto, send)
        else:
            await self._catch_up_one(self._key, upto, send)
        await self._put(send, [self._ready()])

    async def _catch_up_one(self, key: str, upto: str, send: Send) -> None:
        last, path, io = self._last, self._host.files.path(key), self._host.io
        if last is None:
            self._entry = await io.run(leaf_of, path, upto)
            return
        found = await io.run(since, path, last.entry, upto)
        await self._resync(Resync(key, found.after, GONE), send)
        await self._put(send, self._read((key, item) for item in found.items))
        self._entry = found.leaf

    async def _catch_up_all(self, upto: str, send: Send) -> None:
        last, self._entry = self._last, upto
        if last is None:
            return
        found = await self._host.io.run(
            partial(_of_all, self._host.files, self._agents, self._wanted, last.entry, upto)
        )
        if found is None:
            await self._resync(Resync(None, None, "too much has happened since: list the sessions"), send)
            return
        await self._resync(Resync(None, last.entry, GONE), send)
        await self._put(send, self._read(found))
        self._entry = upto

    async def _resync(self, told: Resync, send: Send) -> None:
        """Without an id: who loses the connection in the middle comes back from where it was."""
        await self._put(send, [frames.body("resync", frames.encoded(told))])

    def _read(self, found: Iterable[tuple[str, Item]]) -> Iterator[bytes]:
        for key, item in found:
            place = Place(self._hub.epoch, 0, item.entry)
            yield frames.numbered(place, frames.entry(key, item.entry, item.message))


def _of_all(
    files: SessionFiles, agents: tuple[str, ...] | None, wanted: Callable[[str], bool], entry: str, upto: str
) -> list[tuple[str, Item]] | None:
    """The messages later than `entry`, by time; `None` where they are too many for one stream. Blocking."""
    found: list[tuple[str, Item]] = []
    for listed in files.list(agents):
        if listed.key is None or not wanted(listed.key) or not _touched(listed.mtime_ns, entry):
            continue
        try:
            found += [(listed.key, item) for item in later(Path(listed.path), entry, upto)]
        except PerdureError:
            continue  # what can't be read says so where it is asked for itself
        if len(found) > MOST:
            return None
    return sorted(found, key=lambda each: each[1].entry)


def _touched(mtime_ns: int, entry: str) -> bool:
    """Whether the file was written since the entry was; clocks may differ by a minute."""
    try:
        return mtime_ns // 1_000_000 >= int(entry[:12], 16) - 60_000
    except ValueError:
        return True


async def _gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
