"""The only reader of time. Every wait on someone else goes through a clock and has a deadline.

`RealClock` here; `VirtualClock`, under which a week passes at once and in the same order on every loop, in
`virtual`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import anyio

from perdure.kernel.deadlines import Deadlines, Timer
from perdure.kernel.errors import DeadlineExceeded, KernelError
from perdure.kernel.park import Park, new_park, park_type
from perdure.kernel.waiter import Waiter

T = TypeVar("T")


class Clock(ABC):
    """Time, waits and timers. One clock may serve several kernels, together or one after another."""

    virtual: bool
    steady = True  # the wall's time and the machine's never part: nobody suspends or sets this clock

    def __init__(self) -> None:
        self.report: Callable[[BaseException], None] = _ignore  # where a failing timer is told
        self.outside: Callable[[str], None] = _ignore  # where tasks that wait outside the kernel are named

    @abstractmethod
    def now(self) -> float:
        """Seconds, never going back; only differences mean something."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what is written down."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def waiter(self, label: str = "") -> Waiter[Any]:
        """A one-shot answer; `label` says what it is, for the message of a stuck program."""

    @abstractmethod
    async def wait(self, waiter: Waiter[T], timeout: float | None = None) -> T:
        """The waiter's value. Raises its error, or DeadlineExceeded after `timeout` seconds."""

    @abstractmethod
    def fail_after(self, seconds: float) -> AbstractContextManager[None]:
        """Everything awaited inside is cut off after so long, then DeadlineExceeded is raised here.

        Nests; the nearest deadline acts. Catch the error outside of the `with`.
        """

    @abstractmethod
    def shield(self) -> AbstractContextManager[None]:
        """Waits inside ignore cancellation and outer deadlines: for clean-up, with deadlines of its own."""

    @abstractmethod
    def call_at(self, when: float, fn: Callable[[], object]) -> Timer:
        """Call the synchronous `fn` at `when` (of `now`). It must not wait; what it raises is reported."""

    def call_after(self, seconds: float, fn: Callable[[], object]) -> Timer:
        """`call_at`, counted from now."""
        return self.call_at(self.now() + seconds, fn)

    # --- for the kernel alone -------------------------------------------------------------------------

    def enrol(self, name: str) -> Any:
        """The token of a task to be; a real clock needs none."""
        return None

    def schedule(self, owner: Any, release: Callable[[], None]) -> None:
        """Start a task: at once, or when virtual time lets it."""
        release()

    def entered(self, owner: Any) -> None:
        """That task runs now, in the calling task."""
        return

    def ended(self, owner: Any) -> None:
        """That task has come to its end."""
        return

    def cancel(self, owner: Any) -> None:
        """Fail the wait that task is in, and all later ones."""
        return

    def adopt(self, name: str) -> Any:
        """Count the calling task too. None where that isn't needed."""
        return None

    def disown(self, owner: Any) -> None:
        """Stop counting it."""
        return

    @abstractmethod
    async def tick(self) -> None:
        """What must run beside for as long as a kernel lives."""


class RealClock(Clock):
    """The machine's time. With `start_ms`, wall time is counted from there by the monotonic clock."""

    virtual = False

    def __init__(self, start_ms: int | None = None) -> None:
        super().__init__()
        self._start = start_ms
        self.steady = start_ms is not None
        self._began = time.monotonic()
        self._deadlines = Deadlines(time.monotonic, lambda exc: self.report(exc))
        self._turn: anyio.Lock | None = None
        self._tickers = 0
        self._new_park: Callable[[], Park] = new_park

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        if self._start is None:
            return time.time_ns() // 1_000_000
        return self._start + int((time.monotonic() - self._began) * 1000)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def waiter(self, label: str = "") -> Waiter[Any]:
        return Waiter(label)

    async def wait(self, waiter: Waiter[T], timeout: float | None = None) -> T:
        if waiter.done:
            return waiter.result()
        if waiter.park is not None:
            raise KernelError(
                f"two tasks wait for one answer ({waiter.label or 'unnamed'}): give each its own"
            )
        park = waiter.park = self._new_park()
        try:
            if timeout is None:
                await park.wait()
            elif self._deadlines.running:
                self._deadlines.watch(time.monotonic() + timeout, waiter)
                try:
                    await park.wait()
                finally:
                    self._deadlines.leave(waiter)
            else:
                with anyio.move_on_after(timeout):
                    await park.wait()
        finally:
            waiter.park = None
        if waiter.ready():
            return waiter.result()
        raise DeadlineExceeded(
            f"no answer within {timeout:g} s" + (f": {waiter.label}" if waiter.label else "")
        )

    @contextmanager
    def fail_after(self, seconds: float) -> Iterator[None]:
        with anyio.move_on_after(seconds) as scope:
            yield
        if scope.cancelled_caught:
            raise DeadlineExceeded(f"not done within {seconds:g} s")

    @contextmanager
    def shield(self) -> Iterator[None]:
        with anyio.CancelScope(shield=True):
            yield

    def call_at(self, when: float, fn: Callable[[], object]) -> Timer:
        return self._deadlines.call_at(when, fn)

    def adopt(self, name: str) -> Any:
        """Remembers the kind of loop for as long as a kernel lives on it."""
        self._new_park = park_type()

    def disown(self, owner: Any) -> None:
        self._new_park = new_park

    @property
    def deadlines(self) -> Deadlines:
        """The heap, for statistics."""
        return self._deadlines

    async def tick(self) -> None:
        """One kernel's ticker serves all kernels of the clock; when that one ends, the next takes over."""
        if self._turn is None or not self._tickers:
            self._turn = anyio.Lock()  # a lock belongs to one loop, a clock may see several in its life
        self._tickers += 1
        try:
            async with self._turn:
                await self._deadlines.run()
        finally:
            self._tickers -= 1


def monotonic() -> float:
    """Seconds of the machine, for who watches the loop itself and can't ask a clock that it serves."""
    return time.monotonic()


def cpu_seconds() -> float:
    """CPU time that this process has used, in all threads."""
    return time.process_time()


def _ignore(_: object) -> None:
    return None
