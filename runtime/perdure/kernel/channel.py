"""Best-effort channels for news: publishing never blocks and never raises, and what is dropped is told.

Nothing that somebody relies on goes here: a result is a letter, not news.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.kernel.clock import Clock
from perdure.kernel.stray import fatal
from perdure.kernel.waiter import Waiter

BOUND = 256  # events a listener may fall behind

OnDrop = Callable[[str, str, int, BaseException | None], None]  # channel, subscriber, lost in a row, error


class Listener:
    """A subscriber that reads at its own pace; the oldest event goes when it falls behind. One reader."""

    def __init__(self, channel: Channel, name: str, bound: int) -> None:
        self._channel, self.name, self._bound = channel, name, bound
        self._events: deque[Any] = deque()
        self._waiting: Waiter[Any] | None = None
        self.dropped = 0
        self._lost = 0  # dropped since the last read
        self.closed = False

    def push(self, event: Any) -> int:
        """Called by the channel. How many events were lost in a row (0: none now)."""
        self._events.append(event)
        if len(self._events) > self._bound:
            self._events.popleft()
            self.dropped += 1
            self._lost += 1
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()
        return self._lost

    async def next(self, timeout: float | None = None) -> Any:
        """The next event. Raises DeadlineExceeded, and StopAsyncIteration once closed and empty."""
        while not self._events:
            if self.closed:
                raise StopAsyncIteration
            self._waiting = self._channel.clock.waiter(f"news on {self._channel.name} for {self.name}")
            await self._channel.clock.wait(self._waiting, timeout)
        self._lost = 0
        return self._events.popleft()

    def close(self) -> None:
        """No more events; a reader gets what is left, then the end."""
        self.closed = True
        self._channel.forget(self.name)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._all()

    async def _all(self) -> AsyncIterator[Any]:
        while True:
            try:
                event = await self.next()
            except StopAsyncIteration:
                return
            yield event


class Channel:
    """One topic. `on_drop(channel, subscriber, lost in a row, error)` hears of every loss."""

    def __init__(self, name: str, clock: Clock, on_drop: OnDrop | None = None) -> None:
        self.name, self.clock, self._on_drop = name, clock, on_drop
        self._listeners: dict[str, Listener] = {}
        self._hooks: dict[str, Callable[[Any], None]] = {}
        self.published = self.dropped = 0

    def listen(self, name: str, bound: int = BOUND) -> Listener:
        """A reader of its own buffer. A name in use is replaced: its old reader ends."""
        if name in self._listeners:
            self._listeners[name].close()
        listener = self._listeners[name] = Listener(self, name, bound)
        return listener

    def subscribe(self, name: str, hook: Callable[[Any], None]) -> Callable[[], None]:
        """Call the synchronous `hook` with each event; what it raises is told. Returns how to end it."""
        self._hooks[name] = hook
        return lambda: self.forget(name)

    @property
    def buffered(self) -> int:
        """Events that wait for readers."""
        return sum(len(listener._events) for listener in self._listeners.values())

    def forget(self, name: str) -> None:
        """Drop that subscriber."""
        self._hooks.pop(name, None)
        self._listeners.pop(name, None)

    def publish(self, event: Any) -> None:
        """To everyone who is there now."""
        self.published += 1
        for name, listener in list(self._listeners.items()):
            lost = listener.push(event)
            self.dropped += lost > 0
            if lost and not lost & (
                lost - 1
            ):  # at 1, 2, 4, 8 … in a row: a flood of losses is not a flood of news
                self._drop(name, lost, None)
        for name, hook in list(self._hooks.items()):
            try:
                hook(event)
            except BaseException as exc:
                if fatal(exc):
                    raise
                self.dropped += 1
                self._drop(name, 1, exc)

    def _drop(self, name: str, lost: int, error: BaseException | None) -> None:
        if self._on_drop is not None:
            try:
                self._on_drop(self.name, name, lost, error)
            except Exception:  # nobody is left to tell
                return

    def close(self) -> None:
        """End all readers."""
        for listener in list(self._listeners.values()):
            listener.close()
        self._hooks.clear()
