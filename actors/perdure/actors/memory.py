"""The memory of a host: who is awake and owns how much, who is put to sleep, and when nothing more is taken.

Three bounds, each by itself enough to send resting sessions to sleep: how many are awake, how many bytes
they own by our count, and, as a backstop, the resident memory of the process. A session at work is never
touched. Where nobody rests any more, messages are refused before anything is written (`Busy`, with the
seconds to wait); what is under way goes on within a reserve, and control mail always passes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from perdure.actors.budgeting import LOW, UNBOUNDED, Budget
from perdure.actors.owning import owned
from perdure.actors.shedding import WEIGHED, Resting, choose
from perdure.edges.log import Log
from perdure.edges.resident import rss_bytes
from perdure.errors import Busy
from perdure.kernel.clock import Clock

if TYPE_CHECKING:
    from perdure.actors.session import Session

LOOKS = 64  # measurements between two looks at the resident memory: 20 µs each
FLOOR = 4  # alarms lower the limit to this part of the budget at most: something has to be served
COPIES = 3  # of a message's text until it is acknowledged: the letter, its line, the view
FIRST = 64 * 1024  # bytes of a session about which nothing is known yet
SOON, LATER = 1.0, 5.0  # seconds to wait where sessions are leaving, and where only turns run


class Memory:
    """One for a host. `total` bytes are owned by those awake; `held` by messages not yet acknowledged."""

    def __init__(
        self,
        budget: Budget,
        most_awake: int,
        clock: Clock,
        log: Log,
        *,
        rss: Callable[[], int] = rss_bytes,
        beside: Callable[[], int] = lambda: 0,
    ) -> None:
        self.budget, self.most_awake, self._clock, self._log = budget, most_awake, clock, log
        self.on_rest: Callable[[], None] = lambda: None  # somebody may be put to sleep in favour of others
        self._rss, self._beside = rss, beside  # `beside`: bytes of subscribers' buffers
        self._awake: dict[str, int] = {}  # bytes by key
        self._resting: OrderedDict[str, tuple[Session, float]] = OrderedDict()  # since when
        self._leaving: dict[str, int] = {}  # asked to sleep and not gone yet: bytes by key
        self.total = self.held = self._going = self._looked = 0
        self.most = self.shed = self.refused = self.tight = 0
        self._limit, self._highest = budget.sessions, 0  # lower than the budget after alarms; at which rss
        self._seen = 0  # resident memory when last looked at
        self.over = False  # it was beyond the line when last looked at

    # --- told by the directory and the sessions ----------------------------------------------------

    def woke(self, key: str) -> None:
        """A session is being opened: it will own about as much as the others."""
        self._set(key, self.mean)

    def handled(self, session: Session) -> None:
        """A session has handled a message: what it owns may have grown, and it may rest now."""
        key = session.key
        if key not in self._awake:
            return  # it has just left
        self._set(key, owned(session))
        if session.at_ease:
            self._rested(session)
        else:
            self._resting.pop(key, None)
        self._look()
        if self._limit and self.total - self._going > self._limit:
            self._shed(self.total - self._going - int(self._limit * LOW))

    def gone(self, key: str) -> None:
        """A session has left memory."""
        self._resting.pop(key, None)
        self._stays(key)
        self.total -= self._awake.pop(key, 0)

    # --- admission ----------------------------------------------------------------------------------

    @contextmanager
    def admitted(self, key: str, size: int) -> Iterator[None]:
        """Room for a message of `size` bytes until it is in the file. Raises `Busy`: nothing was written."""
        need = COPIES * size + (0 if key in self._awake else self.mean)
        self._admit(key, need)
        self.held += need
        try:
            yield
        finally:
            self.held -= need

    def room_for(self, need: int) -> bool:
        """Whether `need` bytes may be added, after whoever rests was asked to sleep for them."""
        if not self._limit:
            return True
        more = self._wanted + need - self._limit
        if more > 0 and self._resting:
            self._shed(more + self._limit - int(self._limit * LOW))
        full = self._wanted + need > self._limit
        at_work = not self._resting and not self._leaving
        return not self._awake or not (full or (at_work and self._seen > self.budget.process))

    @property
    def full(self) -> bool:
        """Whether a session that nobody waits for had better not be woken now."""
        return not self.room_for(self.mean)

    def _admit(self, key: str, need: int) -> None:
        if self.room_for(need):
            return
        self.refused += 1
        wait = SOON if self._leaving else LATER
        used, limit = self._wanted >> 20, self._limit >> 20
        raise Busy(
            f"{key}: the host's memory is full ({used:,} of {limit:,} MB, all of it at work): nothing was "
            f"written; send the same message id again in {wait:g} s",
            retry_after=wait,
        )

    # --- who sleeps ---------------------------------------------------------------------------------

    @property
    def mean(self) -> int:
        """What one awake session owns."""
        return self.total // len(self._awake) if self._awake else FIRST

    @property
    def _wanted(self) -> int:
        """What is owned by sessions that stay, by messages on their way and by slow readers."""
        return self.total - self._going + self.held + self._beside()

    def _set(self, key: str, now: int) -> None:
        self.total += now - self._awake.get(key, 0)
        self._awake[key] = now
        if key in self._leaving:
            self._going += now - self._leaving[key]
            self._leaving[key] = now
        self.most = max(self.most, self.total)

    def _rested(self, session: Session) -> None:
        self._stays(session.key)
        self._resting.pop(session.key, None)
        self._resting[session.key] = session, self._clock.now()
        while len(self._awake) - len(self._leaving) > self.most_awake and self._resting:
            self._send_to_sleep(next(iter(self._resting)))
        self.on_rest()

    def _shed(self, too_much: int) -> None:
        """Ask as many to sleep as own `too_much`, those first whose bytes and rest are worth their reload."""
        longest = (
            Resting(key, self._awake[key], since, session.transcript.view_bytes)
            for key, (session, since) in islice(self._resting.items(), WEIGHED)
        )
        for each in choose(longest, self._clock.now(), too_much):
            self.shed += 1
            self._send_to_sleep(each.key)

    def _send_to_sleep(self, key: str) -> None:
        session, _ = self._resting.pop(key)
        self._leaving[key] = self._awake[key]
        self._going += self._leaving[key]
        session.ask_to_sleep()

    def _stays(self, key: str) -> None:
        self._going -= self._leaving.pop(key, 0)

    def _look(self) -> None:
        """Now and then: is the process larger than our count says?"""
        self._looked += 1
        if not self.budget.process or self._looked % LOOKS:
            return
        rss = self._seen = self._rss()
        was, most = self.over, self.budget.sessions
        self.over = rss > self.budget.line
        if not self.over:
            self._highest, self._limit = 0, min(most, self._limit + most // 64)
            return
        if not was:
            self._log.warning("memory.over", rss=rss, line=self.budget.line, owned=self.total)
        if rss < self._highest + self.budget.process // 256:
            return  # what was freed is resident still, and is used again: it need not become less
        self.tight, self._highest = self.tight + 1, rss
        self._limit = max(most // FLOOR, min(self._limit, self.total - self._going) * 7 // 8)
        if self.total - self._going > self._limit:
            self._shed(self.total - self._going - self._limit)

    def line(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "budget_bytes": self.budget.sessions,
            "process_bytes": self.budget.process,
            "owned_bytes": self.total,
            "most_owned_bytes": self.most,
            "arriving_bytes": self.held,
            "buffered_bytes": self._beside(),
            "leaving": len(self._leaving),
            "shed": self.shed,
            "refused": self.refused,
            "limit_bytes": self._limit,
            "alarms": self.tight,
        }


def unbounded(clock: Clock, log: Log, most_awake: int) -> Memory:
    """Bounded by the count of awake sessions alone."""
    return Memory(UNBOUNDED, most_awake, clock, log)
