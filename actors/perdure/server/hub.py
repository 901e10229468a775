"""Who listens to which session, and the latest events of each: bounded, and never in the host's way.

The host publishes into `told`, which appends to buffers and returns. A reader that falls behind by more
than its buffer is cut loose at once: its buffer goes, its stream ends as `lagged`, and it resumes by id.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

import anyio

from perdure.events import Event, Recorded
from perdure.records import Record
from perdure.server import frames

RINGS = 2_048  # sessions whose latest events are remembered
RING_EVENTS, RING_BYTES = 256, 64 * 1024  # of one session
ALL_EVENTS, ALL_BYTES = 8_192, 8 * 1024 * 1024  # of all together, for streams of a whole tenant


class Frame(Record):
    """One event. `entry`: the message that it tells of, if it is in a file now."""

    seq: int
    key: str
    entry: str
    body: bytes


class Ring:
    """The latest frames of a session (or of all). Everything above `floor` is here."""

    def __init__(self, floor: int, events: int, size: int) -> None:
        self.floor, self._events, self._most = floor, events, size
        self.frames: deque[Frame] = deque()
        self._bytes = 0

    def add(self, frame: Frame) -> None:
        """Remember a frame; the oldest go."""
        self.frames.append(frame)
        self._bytes += len(frame.body)
        while len(self.frames) > self._events or self._bytes > self._most:
            gone = self.frames.popleft()
            self._bytes -= len(gone.body)
            self.floor = gone.seq

    def since(self, seq: int) -> list[Frame]:
        """The frames after `seq`, which is not below `floor`."""
        return [frame for frame in self.frames if frame.seq > seq]


class Listener:
    """One stream's buffer. `place`: where the hub keeps it, and under which name."""

    def __init__(self, place: tuple[dict[str | None, set[Listener]], str | None], most: int) -> None:
        self.place, self._most = place, most
        self.waiting: deque[Frame] = deque()
        self._bytes = 0
        self.ended = ""  # why no more come
        self.news = anyio.Event()

    def push(self, frame: Frame) -> None:
        """Called by the hub."""
        self.waiting.append(frame)
        self._bytes += len(frame.body)
        if self._bytes > self._most:
            self.end("lagged")
        self.news.set()

    def take(self) -> list[Frame]:
        """All that wait."""
        taken, self._bytes = list(self.waiting), 0
        self.waiting.clear()
        return taken

    def end(self, reason: str) -> None:
        """No more comes, and what waits is forgotten where the reader is too slow for it."""
        self.ended = self.ended or reason
        if reason == "lagged":
            self.take()
        self.news.set()


class Hub:
    """Of one host; `epoch` is its ownership of the state folder. `tenant_of` names whose a session is."""

    def __init__(
        self, epoch: int, tenant_of: Callable[[str], str], stream_bytes: int, most_streams: int
    ) -> None:
        self.epoch, self._tenant_of = epoch, tenant_of
        self._stream_bytes, self._most_streams = stream_bytes, most_streams
        self.seq = 1  # 0 is what was read from a file
        self.lagged = 0
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        self._all: Ring | None = None
        self._by_key: dict[str | None, set[Listener]] = {}
        self._wide: dict[str | None, set[Listener]] = {}  # by tenant; None: everybody's sessions
        self._held: dict[str, int] = {}  # streams by tenant
        self.closing = False

    # --- events -----------------------------------------------------------------------------------

    def told(self, event: Event) -> None:
        """Take in one event: for the rings and the listeners there are. Encoded once, if anybody cares."""
        self.seq += 1
        ring, listeners = self._rings.get(event.key), self._by_key.get(event.key, ())
        if ring is None and self._all is None:
            return
        entry = event.entry if isinstance(event, Recorded) else ""
        frame = Frame(self.seq, event.key, entry, frames.told(event))
        if ring is not None:
            ring.add(frame)
        if self._all is not None:
            self._all.add(frame)
        for listener in (*listeners, *self._wide_ones(event.key)):
            listener.push(frame)
            if listener.ended == "lagged":
                self.lagged += 1
                self.drop(listener)

    def _wide_ones(self, key: str) -> tuple[Listener, ...]:
        if not self._wide:
            return ()
        return (*self._wide.get(None, ()), *self._wide.get(self._tenant_of(key), ()))

    # --- listeners --------------------------------------------------------------------------------

    def ring(self, key: str) -> Ring:
        """The ring of a session, made where there is none; the ones longest unused go."""
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = Ring(self.seq, RING_EVENTS, RING_BYTES)
        self._rings.move_to_end(key)
        while len(self._rings) > RINGS and not self._by_key.get(old := next(iter(self._rings))):
            del self._rings[old]
        return ring

    def everything(self) -> Ring:
        """The ring of all sessions; it begins with the first who asks."""
        if self._all is None:
            self._all = Ring(self.seq, ALL_EVENTS, ALL_BYTES)
        return self._all

    def listen(self, key: str | None, tenant: str | None) -> Listener:
        """A listener to one session, or (without a key) to those of a tenant, or to all."""
        place = (self._wide, tenant) if key is None else (self._by_key, key)
        listener = Listener(place, self._stream_bytes)
        place[0].setdefault(place[1], set()).add(listener)
        if self.closing:
            listener.end("closing")
        return listener

    def leave(self, listener: Listener) -> None:
        """Nobody reads it any more."""
        listener.end("left")
        self.drop(listener)

    def drop(self, listener: Listener) -> None:
        """It gets no more events."""
        table, name = listener.place
        found = table.get(name, set())
        found.discard(listener)
        if not found:
            table.pop(name, None)

    def reserve(self, tenant: str) -> bool:
        """Room for one more stream of a tenant; give it back with `release`."""
        if self._held.get(tenant, 0) >= self._most_streams:
            return False
        self._held[tenant] = self._held.get(tenant, 0) + 1
        return True

    def release(self, tenant: str) -> None:
        """A stream has ended."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]

    @property
    def streams(self) -> int:
        """How many there are."""
        return sum(self._held.values())

    def close(self) -> None:
        """The host stops: every stream ends, with an event that says so."""
        self.closing = True
        self.end("closing")

    def end(self, reason: str) -> None:
        """Every stream there is ends."""
        for found in (*self._wide.values(), *self._by_key.values()):
            for listener in found:
                listener.end(reason)
