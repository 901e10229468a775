"""A supervised pool: serial per key, any free worker takes any key, bounded, and nothing parked while idle.

Who comes first is the order of arrival, or what `order(key, message)` says.

Workers are permits, not tasks: a message that may run becomes a job. A worker that crashes costs its message
one retry; after the second crash the message is a dead letter and its sender is told `Failed`. A key that
keeps crashing rests alone; only where many keys crash is the pool itself ill, and its breaker opens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from perdure.kernel.deadlines import Timer
from perdure.kernel.fair import Band, FairQueue, Ticket
from perdure.kernel.intensity import Breaker, Intensity
from perdure.kernel.jobs import Job, Jobs, Report
from perdure.kernel.outcome import Cancelled, Failed, Outcome, Returned, Superseded

TRIES = 2  # a crash may be the moment's fault once
FAULTS = Intensity(8, 60.0)  # crashes of a key, or keys that crash, within a minute; one more means rest
REST = 15.0  # seconds in which nothing is begun for that key, or for any
DEAD = 256  # dead letters kept for listing


class Place(NamedTuple):
    """Where a message stands in line: see `FairQueue`. `slack`: seconds from now in which it is due."""

    kind: str = ""
    weight: float = 1.0
    slack: float = 0.0
    band: Band = "front"


Handler = Callable[[str, Any], Awaitable[Any]]
Order = Callable[[str, Any], Place]
FIRST_COME = Place()
OnDone = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that crashed its worker twice."""

    key: str
    message: Any
    error: str
    at: float


class Permits:
    """A number of things that may happen at once, shared by several pools (calls to one model, say)."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._pools: list[Pool] = []

    def join(self, pool: Pool) -> None:
        """This pool wants to know when one comes back."""
        self._pools.append(pool)

    @property
    def free(self) -> int:
        """How many more."""
        return self.limit - self.used

    def give(self) -> None:
        """One back; the pools look for it in turns."""
        self.used -= 1
        self._pools.append(self._pools.pop(0))
        for pool in list(self._pools):
            pool.pump()


class _Letter:
    __slots__ = ("key", "message", "on_done", "tries")

    def __init__(self, key: str, message: Any, on_done: OnDone | None) -> None:
        self.key, self.message, self.on_done, self.tries = key, message, on_done, 0


class Pool:
    """`submit` and `pump` never wait; results come by `on_done(outcome)`, exactly once a message."""

    def __init__(
        self,
        name: str,
        jobs: Jobs,
        report: Report,
        handler: Handler,
        *,
        workers: int = 4,
        queue_bound: int = 1024,
        permits: Permits | None = None,
        merge: Literal["newest"] | None = None,
        faults: Intensity = FAULTS,
        rest: float = REST,
        order: Order | None = None,
    ) -> None:
        self.name, self.workers, self.queue_bound = name, workers, queue_bound
        self._jobs, self._report, self._handler, self._merge = jobs, report, handler, merge
        self._permits = permits
        if permits is not None:
            permits.join(self)
        self._faults, self._rest = faults, rest
        self.breaker = Breaker(faults, rest)
        self._crashes: dict[str, tuple[float, ...]] = {}  # of keys that crashed lately
        self._resting: dict[str, Timer] = {}  # keys for which nothing is begun for a while
        self._waiting: dict[str, deque[_Letter]] = {}
        self._order: Order = order or (lambda _key, _message: FIRST_COME)
        self._line: FairQueue[str] = FairQueue(2 * queue_bound, 2 * queue_bound)
        self._turn: dict[str, Ticket[str]] = {}  # keys that may run, each once
        self._busy: dict[str, Job] = {}
        self._timer: Timer | None = None
        self.queued = self.done = self.crashed = self.refused = 0
        self.dead: deque[DeadLetter] = deque(maxlen=DEAD)

    @property
    def busy(self) -> int:
        """Messages being worked on."""
        return len(self._busy)

    def submit(self, key: str, message: Any, on_done: OnDone | None = None) -> bool:
        """Queue it behind what this key already has. False: full or stopping; nothing was accepted."""
        lane = self._waiting.get(key)
        if self._merge == "newest" and lane and not lane[-1].tries:
            old, lane[-1] = lane[-1], _Letter(key, message, on_done)
            self._tell(old, Superseded())
            return True
        if self.queued >= self.queue_bound or self._jobs.closed:
            self.refused += 1
            return False
        if lane is None:
            lane = self._waiting[key] = deque()
        lane.append(_Letter(key, message, on_done))
        self.queued += 1
        self._ready(key)
        self.pump()
        return True

    def pump(self) -> None:
        """Begin whatever may begin now."""
        while self._turn and len(self._busy) < self.workers and not self._jobs.closed:
            if self._permits is not None and not self._permits.free:
                return
            now = self._jobs.clock.now()
            if not self.breaker.allow(now):
                self._later(now)
                return
            if self._permits is not None:
                self._permits.used += 1
            next_one = self._line.pop()
            assert next_one is not None
            del self._turn[next_one.item]
            self._begin(next_one.item)

    def _later(self, now: float) -> None:
        at = self.breaker.reopens()
        if at is not None and at > now and self._timer is None:
            self._timer = self._jobs.clock.call_at(at, self._reopened)

    def _reopened(self) -> None:
        self._timer = None
        self.pump()

    def _begin(self, key: str) -> None:
        lane = self._waiting[key]
        letter = lane.popleft()
        if not lane:
            del self._waiting[key]
        self.queued -= 1
        letter.tries += 1

        def ended(job: Job, outcome: Outcome) -> None:  # what fails because it was stopped isn't tried again
            stopped = job.cancelled and isinstance(outcome, Failed)
            self._ended(letter, Cancelled() if stopped else outcome)

        self._busy[key] = self._jobs.start(
            f"{self.name}:{key}", self._handler, key, letter.message, on_end=ended
        )

    def _ended(self, letter: _Letter, outcome: Outcome) -> None:
        self._busy.pop(letter.key, None)
        if self._permits is not None:
            self._permits.give()
        if isinstance(outcome, Failed):
            self._crash(letter, outcome)
        else:
            if isinstance(outcome, Returned):
                self.breaker.worked()
                self._crashes.pop(letter.key, None)
            else:
                self.breaker.undecided()
            self.done += 1
            self._tell(letter, outcome)
        self._ready(letter.key)
        self.pump()

    def _ready(self, key: str) -> None:
        free = key not in self._busy and key not in self._turn and key not in self._resting
        if key in self._waiting and free:
            kind, weight, slack, band = self._order(key, self._waiting[key][0].message)
            due = self._jobs.clock.now() + slack if slack else 0.0
            ticket = self._line.push(key, kind, kind, weight=weight, due=due, band=band)
            assert ticket is not None  # the bound of the queue is that of the letters
            self._turn[key] = ticket

    def _crash(self, letter: _Letter, outcome: Failed) -> None:
        self.crashed += 1
        now = self._jobs.clock.now()
        self._report(
            "pool.crashed",
            {"pool": self.name, "key": letter.key, "error": outcome.error, "try": letter.tries},
        )
        self._count(letter.key, now)
        if letter.tries < TRIES and not self._jobs.closed:
            self._waiting.setdefault(letter.key, deque()).appendleft(letter)
            self.queued += 1
            return
        self.dead.append(DeadLetter(letter.key, letter.message, repr(outcome.error), now))
        self._report("pool.dead_letter", {"pool": self.name, "key": letter.key, "error": outcome.error})
        self._tell(letter, outcome)

    def _count(self, key: str, now: float) -> None:
        """One key's crashes are its own matter: against the pool it counts once."""
        past = tuple(at for at in self._crashes.get(key, ()) if now - at < self._faults.period)
        self._crashes[key], within = self._faults.note(past, now)
        if past:
            self.breaker.undecided()
        elif self.breaker.broke(now):
            self._report("pool.opened", {"pool": self.name, "until": self.breaker.reopens()})
        if not within:
            self._report("pool.key_rests", {"pool": self.name, "key": key, "until": now + self._rest})
            self._resting[key] = self._jobs.clock.call_after(self._rest, partial(self._rested, key))
        if len(self._crashes) > DEAD:
            self._crashes = {k: at for k, at in self._crashes.items() if now - at[-1] < self._faults.period}

    def _rested(self, key: str) -> None:
        del self._resting[key]
        self._ready(key)
        self.pump()

    def _tell(self, letter: _Letter, outcome: Outcome) -> None:
        if letter.on_done is not None:
            try:
                letter.on_done(outcome)
            except Exception as exc:
                self._report("pool.on_done_failed", {"pool": self.name, "key": letter.key, "error": exc})

    def cancel(self, key: str) -> None:
        """Forget what this key has queued and stop what is worked on for it."""
        lane = self._waiting.pop(key, None)
        if lane is not None:
            self.queued -= len(lane)
            if key in self._turn:
                self._line.remove(self._turn.pop(key))
            for letter in lane:
                self._tell(letter, Cancelled())
        if key in self._busy:
            self._busy[key].cancel()

    def stop(self) -> None:
        """Tell everyone queued that it won't happen; what is worked on is stopped with the other jobs."""
        for timer in (*self._resting.values(), *((self._timer,) if self._timer else ())):
            timer.cancel()
        for key in list(self._waiting):
            self.cancel(key)
