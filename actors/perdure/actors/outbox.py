"""The host's side of the outbox: who may send now. Sessions do the sending and keep the record.

One lane a channel. A session that has something for it stands there once, as a key: what waits is in the
session files, so a dead channel piles up no answers. A lane grants as many sessions at once as its channel
has workers; after faults its breaker rests, and one session tries. Nothing here waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol

from perdure.actors.outgoing import Ended
from perdure.contracts import OutboundChannel
from perdure.errors import ConfigError
from perdure.kernel.clock import Clock
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.intensity import Breaker, Intensity
from perdure.kernel.waiter import Waiter

EVENTS = ("reply", "scheduled", "failed")
GRANT = 30.0  # seconds in which a session begins what it was granted; one that can't open never does
FAULTS = Intensity(5, 60.0)
REST = 30.0  # seconds of a channel's rest before the next trial


class Attempt(Protocol):
    """What the lane knows of a running attempt."""

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """A channel and what goes there: `sessions` (globs), else keys that name it, else all of `agents`.

    `timeout` and `max_age` in seconds; `workers`: attempts at once.
    """

    channel: OutboundChannel
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    events: tuple[str, ...] = EVENTS
    timeout: float = 20.0
    workers: int = 4
    max_age: float = 72 * 3600.0

    @property
    def name(self) -> str:
        """Its channel's name."""
        return self.channel.name


class Lane:
    """Who waits for one channel, and who has it. `due(key)` tells a session that its turn has come."""

    def __init__(self, outlet: Outlet, clock: Clock, due: Callable[[str], None], changed: Callable[[], None]):
        self.outlet, self._clock, self._due, self._changed = outlet, clock, due, changed
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._later: dict[str, Timer] = {}
        self._granted: dict[str, Timer] = {}
        self._running: dict[str, Attempt] = {}
        self._landed: dict[str, Timer] = {}  # over, and not on record yet
        self._breaker = Breaker(FAULTS, REST)
        self._reopens: Timer | None = None
        self._closed = False
        self.gone = ""  # why nothing goes there any more
        self.sent = self.failed = 0

    # --- asked by sessions ------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether an attempt of this session runs, or its end is on the way to it."""
        return key in self._running or key in self._landed

    def granted(self, key: str) -> bool:
        """Whether it has been told that its turn has come."""
        return key in self._granted

    def wants(self, key: str) -> bool:
        """Whether its turn comes by itself, and before long."""
        return key in self._granted or (key in self._ready and not self.rests)

    @property
    def rests(self) -> bool:
        """Whether nothing is begun just now, for the channel's faults."""
        return bool(self.gone) or self._breaker.state(self._clock.now()) == "open"

    @property
    def at_rest(self) -> bool:
        """Nothing runs, and nothing is about to."""
        busy = self._running or self._landed or self._granted
        return not busy and (not self._ready or self.rests)

    def want(self, key: str, after: float = 0.0) -> None:
        """Stand in the lane, or in `after` seconds. One that stands there, or pauses, keeps its place."""
        if key in self._granted or key in self._later or self.has(key):
            return
        if after <= 0:
            self._ready.setdefault(key)
        elif not self._closed:  # else the next host finds it in the file
            self._ready.pop(key, None)
            self._later[key] = self._clock.call_after(after, partial(self._rested, key))
        self._pump()

    def begin(self, key: str, attempt: Attempt) -> None:
        """What was granted has begun."""
        self._take_back(key)
        self._running[key] = attempt

    def decline(self, key: str) -> None:
        """There was nothing to send after all."""
        if self._take_back(key):
            self._breaker.undecided()
        self._pump()

    def land(self, key: str, end: Ended) -> None:
        """The attempt is over: the next session may; this one has yet to record it."""
        self._running.pop(key, None)
        self._judge(end)
        self._landed[key] = self._clock.call_after(GRANT, partial(self.recorded, key))
        self._pump()

    def recorded(self, key: str) -> None:
        """Its session has taken note."""
        if (timer := self._landed.pop(key, None)) is not None:
            timer.cancel()
        self._pump()

    def leave(self, key: str) -> None:
        """Let go of a session that leaves; what runs goes on."""
        self._ready.pop(key, None)
        if (timer := self._later.pop(key, None)) is not None:
            timer.cancel()
        if self._take_back(key):
            self._breaker.undecided()
        self._changed()

    def cancel(self, key: str) -> None:
        """Stop what runs for a session: its end comes nevertheless."""
        if key in self._running:
            self._running[key].cancel()

    def close(self, awake: Container[str]) -> None:
        """The host stops: nobody is woken any more, and nothing is left for later."""
        self._closed = True
        for timer in (*self._later.values(), *((self._reopens,) if self._reopens else ())):
            timer.cancel()
        self._later.clear()
        for key in [key for key in self._ready if key not in awake]:
            del self._ready[key]
        self._changed()

    # --- its own ----------------------------------------------------------------------------------

    def _rested(self, key: str) -> None:
        del self._later[key]
        self.want(key)

    def _judge(self, end: Ended) -> None:
        kind = end.error.kind if end.error is not None else None
        self.sent += kind is None
        self.failed += kind is not None
        if kind in ("retryable", "ambiguous"):
            self._breaker.broke(self._clock.now())
            return
        self._breaker.worked()
        if kind == "gone":
            self.gone = str(end.error)

    def _take_back(self, key: str) -> bool:
        timer = self._granted.pop(key, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _pump(self) -> None:
        while self._ready and len(self._running) + len(self._granted) < self.outlet.workers and not self.gone:
            if not self._breaker.allow(self._clock.now()):
                self._wait_for_the_breaker()
                break
            key, _ = self._ready.popitem(last=False)
            self._granted[key] = self._clock.call_after(GRANT, partial(self.decline, key))
            self._due(key)
        self._changed()

    def _wait_for_the_breaker(self) -> None:
        at = self._breaker.reopens()
        if at is not None and self._reopens is None and at > self._clock.now():
            self._reopens = self._clock.call_at(at, self._reopened)

    def _reopened(self) -> None:
        self._reopens = None
        self._pump()

    def figures(self) -> dict[str, Any]:
        """For `status`. `waiting` counts sessions."""
        return {
            "name": self.outlet.name,
            "state": "gone" if self.gone else self._breaker.state(self._clock.now()),
            "running": len(self._running),
            "waiting": len(self._ready) + len(self._later) + len(self._granted),
            "sent": self.sent,
            "failed": self.failed,
        }


class Outbox:
    """All lanes of a host. `due(key, channel)` posts the grant to a session."""

    def __init__(
        self,
        clock: Clock,
        outlets: Iterable[Outlet],
        due: Callable[[str, str], None],
        warn: Callable[..., None] = lambda _event, **_fields: None,
    ) -> None:
        self._clock, self._warn = clock, warn
        self._waiting: list[Waiter[None]] = []
        self.lanes: dict[str, Lane] = {}
        for outlet in outlets:
            name = outlet.name
            if name in self.lanes:
                raise ConfigError(f"outbound.{name}: two channels of this name: rename one")
            self.lanes[name] = Lane(outlet, clock, lambda key, to=name: due(key, to), self._changed)  # type: ignore[misc]

    def route(self, key: str) -> Outlet | None:
        """The session's way out: by a glob, else by the channel in its key, else by its agent."""
        parts = key.split(":")
        agent, channel = (parts[1], parts[2]) if parts[0] == "agent" and len(parts) > 2 else ("", "")
        outlets = [lane.outlet for lane in self.lanes.values()]
        for outlet in outlets:
            if any(fnmatchcase(key, glob) for glob in outlet.sessions):
                return outlet
        if channel in self.lanes:
            return self.lanes[channel].outlet
        return next((outlet for outlet in outlets if agent and agent in outlet.agents), None)

    def has(self, key: str) -> bool:
        """Whether an attempt of this session runs anywhere, or its end is on the way to it."""
        return any(lane.has(key) for lane in self.lanes.values())

    def granted(self, key: str) -> bool:
        """Whether this session has been told that its turn has come."""
        return any(lane.granted(key) for lane in self.lanes.values())

    def wants(self, key: str) -> bool:
        """Whether this session is about to send something."""
        return any(lane.wants(key) for lane in self.lanes.values())

    def leave(self, key: str, *, now: bool = False) -> None:
        """Let go of a session that leaves; `now`: what runs for it is stopped."""
        for lane in self.lanes.values():
            lane.leave(key)
            if now:
                lane.cancel(key)

    def close(self, awake: Container[str]) -> None:
        """The host stops: only sessions that are `awake` send what they can send now."""
        for lane in self.lanes.values():
            lane.close(awake)

    @property
    def at_rest(self) -> bool:
        """No attempt runs, and none is about to: what waits, waits for a time or for a channel."""
        return all(lane.at_rest for lane in self.lanes.values())

    async def settle(self, deadline: float) -> bool:
        """Wait until all is at rest, `deadline` seconds at most; whether it is. For a graceful stop."""
        if self.at_rest:
            return True
        waiter: Waiter[None] = self._clock.waiter("the outbox to settle")
        self._waiting.append(waiter)
        try:
            await self._clock.wait(waiter, deadline)
        except DeadlineExceeded:
            self._warn("outbox.unsettled", channels=[n for n, lane in self.lanes.items() if not lane.at_rest])
            return False
        finally:
            self._waiting.remove(waiter)
        return True

    def _changed(self) -> None:
        if self._waiting and self.at_rest:
            for waiter in self._waiting:
                waiter.set()

    def figures(self) -> list[dict[str, Any]]:
        """One line a channel, for `status`."""
        return [lane.figures() for lane in self.lanes.values()]
