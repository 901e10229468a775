"""What a host knows of all its subagents: which are open, who waits for one, how they ended.

The files are the truth; this is kept from what sessions tell, so that looking needs none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.edges.settings_hosting import SubagentSettings
from perdure.errors import Closed
from perdure.kernel.clock import Clock
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.waiter import Waiter


async def _nothing(_key: str) -> None:
    return None


class Family:
    """One for a host. `reach(key, mail)` and `delete(key)` come with the host's directory; `closing`: the
    host takes no mail any more.
    """

    def __init__(self, settings: SubagentSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self.reach: Callable[[str, Any], bool] = lambda _key, _mail: False
        self.delete: Callable[[str], Awaitable[Any]] = _nothing
        self.open: dict[str, str] = {}  # child, parent
        self.begun = 0
        self.closing = False
        self.ended: Counter[str] = Counter()
        self.version = 0  # rises with every end
        self._waiting: list[Waiter[None]] = []

    def post(self, key: str, mail: Any) -> bool:
        """Reach a session that has a file; False: it has none. Raises `Closed`: nobody is to be woken now."""
        if self.closing:
            raise Closed("the host is stopping")
        return self.reach(key, mail)

    def tell(self, key: str, mail: Any) -> bool:
        """The same from a session's handler, which may not fail: while the host stops, nothing is said."""
        return self.closing or self.reach(key, mail)

    def opened(self, child: str, parent: str) -> None:
        """A child has begun, or is awake again and has not ended."""
        self.open[child] = parent

    def closed(self, child: str, state: str = "") -> None:
        """It has ended, or is gone; whoever waits looks again."""
        self.open.pop(child, None)
        if state:
            self.ended[state] += 1
        self.changed()

    def changed(self) -> None:
        """Something is to be looked at again."""
        self.version += 1
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.set()

    def below(self, key: str) -> list[str]:
        """Open descendants of a session, nearest first."""
        found: list[str] = []
        level = [key]
        while level:
            level = [child for child, parent in self.open.items() if parent in level and child not in found]
            found += level
        return found

    async def after(self, seen: int, until: float) -> bool:
        """Wait for news behind version `seen`, until then at most; whether there are any."""
        if self.version != seen:
            return True
        left = until - self._clock.now()
        if left <= 0:
            return False
        waiter: Waiter[None] = self._clock.waiter("a subagent's end")
        self._waiting.append(waiter)
        try:
            await self._clock.wait(waiter, left)
        except DeadlineExceeded:
            return False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return True

    async def settled(self, children: list[str], within: float) -> bool:
        """Wait until none of these is open, so many seconds at most; whether none is."""
        until = self._clock.now() + within
        while True:
            seen = self.version
            if not any(child in self.open for child in children):
                return True
            if not await self.after(seen, until):
                return False

    def line(self) -> dict[str, Any]:
        """For `status`."""
        return {"open": len(self.open), "begun": self.begun, "ended": dict(sorted(self.ended.items()))}
