"""Virtual time: every wait goes through one heap, which releases one waiter when nothing runs, then the next.

Nothing runs when as many tasks are parked in the kernel as there are tasks (counted, no private switch of a
loop). What is due at the same instant is ordered by a hash of (seed, who waits, their own count), so the
order is the same on asyncio, uvloop and trio, and another seed explores another one. The rule it imposes:
whoever runs under it waits only by the kernel. (Either loop alone releases all due timers at once, in an
order of its own.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from perdure.kernel.clock import Clock
from perdure.kernel.deadlines import SMALL, Timer
from perdure.kernel.errors import (
    DeadlineExceeded,
    ForeignTask,
    JobCancelled,
    KernelError,
    OutsideWait,
    ScopeExpired,
    Stuck,
)
from perdure.kernel.owner import NEVER, Owner, Scope, Stop, current
from perdure.kernel.park import current_task, new_park
from perdure.kernel.waiter import Waiter

T = TypeVar("T")
SET, LATE, CANCEL = "set", "late", "cancel"
PROMPT = b""  # cancellations come before all else of their instant, in the order they were called
BREATH = 256  # releases after which the loop gets a real turn, so that signals and watchdog are served
STUBBORN = 100  # refused waits after which a task that swallows its cancellation is put aside for good
PATIENCE = (
    5.0  # real seconds without a release before a task that waits elsewhere is named; six times: an error
)


class _Entry:
    """Something to happen: the release of a wait, or a call."""

    __slots__ = ("reason", "stop", "timer")

    def __init__(self, timer: Timer | None, stop: Stop | None = None, reason: object = None) -> None:
        self.timer, self.stop, self.reason = timer, stop, reason

    def alive(self) -> bool:
        if self.stop is not None:
            return not self.stop.released
        return self.timer is not None and self.timer.fn is not None


class VirtualClock(Clock):
    """Time that jumps. `seed` orders equal instants, `start_ms` is the wall time at 0."""

    virtual = True

    def __init__(self, seed: int = 0, start_ms: int = 0, *, patience: float = PATIENCE) -> None:
        super().__init__()
        self.seed, self.start_ms, self.patience = seed, start_ms, patience
        self._now = 0.0
        self._heap: list[tuple[float, bytes, int, _Entry]] = []
        self._pushed = 0
        self._alone = 0
        self._running = 0
        self._settling = False
        self._owners: dict[Owner, None] = {}  # in order of arrival
        self._timers = Owner(self, "timer")  # whose count orders timers set by nobody in particular
        self.releases = 0

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return self.start_ms + int(self._now * 1000 + 0.5)

    # --- what is to happen, and when ------------------------------------------------------------------

    def _tie(self, owner: Owner) -> bytes:
        owner.count += 1
        return blake2b(f"{self.seed}:{owner.name}:{owner.count}".encode(), digest_size=8).digest()

    def _push(self, at: float, owner: Owner, entry: _Entry) -> None:
        self._pushed += 1
        tie = PROMPT if entry.reason is CANCEL else self._tie(owner)
        heapq.heappush(self._heap, (at, tie, self._pushed, entry))
        if len(self._heap) > SMALL and self._pushed % SMALL == 0:
            alive = [e for e in self._heap if e[3].alive()]
            if len(self._heap) > 4 * len(alive):
                heapq.heapify(alive)
                self._heap = alive

    def _settle(self) -> None:
        """Release what comes next, one at a time, until somebody runs."""
        if self._settling or self._running:
            return
        self._settling = True
        try:
            while not self._running and self._heap:
                at, _, _, entry = heapq.heappop(self._heap)
                if entry.alive():
                    self._now = max(self._now, at)
                    self._fire(entry)
        finally:
            self._settling = False
        if not self._running:
            self._complain()

    def _fire(self, entry: _Entry) -> None:
        self.releases += 1
        if entry.stop is not None:
            self._release(entry.stop, entry.reason)
        elif entry.timer is not None and (fn := entry.timer.fn) is not None:
            entry.timer.fn = None
            try:
                fn()
            except Exception as exc:  # a timer's fault is its own
                self.report(exc)

    def _release(self, stop: Stop, reason: object) -> None:
        stop.released, stop.reason = True, reason
        stop.owner.stop = None
        self._running += 1
        stop.park.wake()

    def _complain(self) -> None:
        """Everyone waits and nothing is due: tell a main task that waits, rather than wait for ever."""
        for owner in self._owners:
            if owner.main and owner.stop is not None:
                who = "; ".join(o.label() for o in self._owners if o.stop is not None)
                self._release(owner.stop, Stuck(f"virtual time can't go on at {self._now:g} s: {who}"))
                return

    # --- waits ----------------------------------------------------------------------------------------

    def _owner(self) -> Owner:
        owner = current.get()
        if owner is None or owner.clock is not self or owner.task is not current_task():
            raise ForeignTask(
                "this task was not started through the kernel, so virtual time can't count it: "
                f"use kernel.start or kernel.gather (inherited from: {owner.name if owner else 'nobody'})"
            )
        return owner

    async def sleep(self, seconds: float) -> None:
        owner = await self._enter()
        await self._park(owner, f"{seconds:g} s to pass", max(0.0, seconds), SET)

    def waiter(self, label: str = "") -> Waiter[Any]:
        return Waiter(label, self._answered)

    def _answered(self, waiter: Waiter[Any]) -> None:
        stop = waiter.park
        if isinstance(stop, _StopPark):
            self._push(self._now, stop.stop.owner, _Entry(None, stop.stop, SET))
            self._settle()

    async def wait(self, waiter: Waiter[T], timeout: float | None = None) -> T:
        owner = await self._enter()
        if waiter.done:
            return waiter.result()
        if waiter.park is not None:
            raise KernelError(
                f"two tasks wait for one answer ({waiter.label or 'unnamed'}): give each its own"
            )
        try:
            await self._park(owner, waiter.label, timeout, LATE, waiter)
        finally:
            waiter.park = None
        if waiter.ready():
            return waiter.result()
        raise DeadlineExceeded(
            f"no answer within {timeout or 0:g} s" + (f": {waiter.label}" if waiter.label else "")
        )

    async def _enter(self) -> Owner:
        """The owner of a wait that begins; refuses where it is cancelled or out of time already."""
        owner = self._owner()
        if owner.cancelled and not owner.shielded:
            owner.refused += 1
            if owner.refused > STUBBORN:
                await self._aside(owner)
            raise JobCancelled
        scope = owner.nearest()
        if scope is not None and scope.deadline <= self._now:
            raise ScopeExpired(scope)
        return owner

    async def _aside(self, owner: Owner) -> None:
        """It swallows its cancellation: it never runs again, and time goes on without it."""
        self.ended(owner)
        try:
            await anyio.sleep_forever()
        finally:
            self.entered(owner)
            self._running += 1

    async def _park(
        self, owner: Owner, label: str, seconds: float | None, reason: str, waiter: Waiter[Any] | None = None
    ) -> None:
        stop = Stop(owner, new_park(), label)
        if waiter is not None:
            waiter.park = _StopPark(stop)
        scope = owner.nearest()
        own = NEVER if seconds is None else self._now + seconds
        if scope is not None and scope.deadline < own:
            self._push(scope.deadline, owner, _Entry(None, stop, scope))
        elif own < NEVER:
            self._push(own, owner, _Entry(None, stop, reason))
        await self._yield(owner, stop)
        self._judge(stop, waiter)

    async def _yield(self, owner: Owner, stop: Stop) -> None:
        owner.stop = stop
        self._running -= 1
        self._settle()
        if stop.released:  # it was next itself: the loop wouldn't see a task that only ever releases itself
            self._alone += 1
            if self._alone % BREATH == 0:
                await checkpoint()
        try:
            await stop.park.wait()
        except (
            BaseException
        ):  # cancelled from outside by the loop's own means: it runs again, out of our order
            if not stop.released:
                stop.released = True
                owner.stop = None
                self._running += 1
            raise

    def _judge(self, stop: Stop, waiter: Waiter[Any] | None) -> None:
        """What ended the wait. An answer that is there wins; a cancellation then meets the next wait."""
        if waiter is not None and waiter.done:
            return
        if stop.reason is CANCEL:
            raise JobCancelled
        if isinstance(stop.reason, Scope):
            raise ScopeExpired(stop.reason)
        if isinstance(stop.reason, Stuck):
            raise stop.reason

    @contextmanager
    def fail_after(self, seconds: float) -> Iterator[None]:
        owner = self._owner()
        scope = Scope(seconds, self._now + max(0.0, seconds))
        owner.scopes.append(scope)
        try:
            yield
        except (ScopeExpired, BaseExceptionGroup) as exc:
            if not _expired(exc, scope):
                raise
            raise DeadlineExceeded(f"not done within {seconds:g} s") from None
        finally:
            owner.scopes.remove(scope)

    @contextmanager
    def shield(self) -> Iterator[None]:
        owner = self._owner()
        scope = Scope(NEVER, NEVER, shield=True)
        owner.scopes.append(scope)
        try:
            yield
        finally:
            owner.scopes.remove(scope)

    def call_at(self, when: float, fn: Callable[[], object]) -> Timer:
        timer = Timer(when, fn, _nothing)
        self._push(max(when, self._now), self._timers, _Entry(timer))
        self._settle()
        return timer

    # --- for the kernel alone -------------------------------------------------------------------------

    def enrol(self, name: str) -> Owner:
        return Owner(self, name)

    def schedule(self, owner: Owner, release: Callable[[], None]) -> None:
        """Start that task when its turn comes; it counts as running from then on."""
        timer = Timer(self._now, partial(self._begin, owner, release), _nothing)
        self._push(self._now, owner, _Entry(timer))
        self._settle()

    def _begin(self, owner: Owner, release: Callable[[], None]) -> None:
        self._running += 1
        self._owners[owner] = None
        release()

    def entered(self, owner: Owner) -> None:
        owner.task = current_task()
        self._owners[owner] = None
        current.set(owner)

    def ended(self, owner: Owner) -> None:
        if owner in self._owners:
            del self._owners[owner]
            self._running -= 1
            self._settle()

    def cancel(self, owner: Owner) -> None:
        owner.cancelled = True
        if owner.stop is not None and not owner.shielded:
            self._push(self._now, owner, _Entry(None, owner.stop, CANCEL))
            self._settle()

    def adopt(self, name: str) -> Owner | None:
        """Count the calling task too; its hanging is the program's. None where it is counted already."""
        owner = current.get()
        if owner is not None and owner.clock is self and owner.task is current_task():
            return None
        owner = Owner(self, name, main=True)
        self._running += 1
        self.entered(owner)
        return owner

    def disown(self, owner: Owner | None) -> None:
        """Stop counting it."""
        if owner is None:
            return
        self._owners.pop(owner, None)
        self._running -= 1
        current.set(None)

    async def tick(self) -> None:
        """The watchdog, by real time and uncounted: names who waits where virtual time can't see it."""
        seen, still = -1, 0.0
        while True:
            await anyio.sleep(self.patience)
            still = still + self.patience if self.releases == seen and self._running else 0.0
            seen = self.releases
            if still:
                names = ", ".join(o.name for o in self._owners if o.stop is None)
                self.outside(names)
                if still >= 6 * self.patience:
                    raise OutsideWait(
                        f"virtual time stands still for {still:g} real seconds, because this waits outside "
                        f"the kernel or never rests: {names}"
                    )


class _StopPark:
    """How a virtual waiter knows the wait that it ends."""

    __slots__ = ("stop",)

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def wake(self) -> None:
        self.stop.park.wake()

    def wait(self) -> Any:
        return self.stop.park.wait()


def _expired(exc: BaseException, scope: Scope) -> bool:
    """Whether it is nothing but the end of that scope."""
    if isinstance(exc, BaseExceptionGroup):
        return all(_expired(inner, scope) for inner in exc.exceptions)
    return isinstance(exc, ScopeExpired) and exc.scope is scope


def _nothing() -> None:
    """A dropped timer stays in the heap until it is skipped or swept."""
