"""The one-shot answer that somebody waits for: set or failed once, the first wins, the rest is ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perdure.kernel.park import Park

T = TypeVar("T")


class Waiter(Generic[T]):
    """Made by `clock.waiter()`, awaited by `clock.wait(waiter, timeout)`, by one task at a time.

    A timeout ends the wait, not the waiter: it can be waited for again. `set` and `fail` belong to the
    loop's own thread.
    """

    __slots__ = ("_error", "_notify", "_value", "done", "label", "park", "ticket")

    def __init__(self, label: str = "", notify: Callable[[Waiter[Any]], None] | None = None) -> None:
        self.done = False
        self.label = label
        self.park: Park | None = None  # where somebody waits for it; the clock's business
        self.ticket = 0  # names that wait in the deadline heap, so that an old entry can't end a new wait
        self._value: T | None = None
        self._error: BaseException | None = None
        self._notify = notify

    def set(self, value: T | None = None) -> bool:
        """Answer it. False where it was answered before."""
        if self.done:
            return False
        self._value = value
        return self._finish()

    def fail(self, error: BaseException) -> bool:
        """Answer it with an error that the waiting task will see raised."""
        if self.done:
            return False
        self._error = error
        return self._finish()

    def _finish(self) -> bool:
        self.done = True
        if self._notify is not None:
            self._notify(self)
        elif self.park is not None:
            self.park.wake()
        return True

    def ready(self) -> bool:
        """`done`, asked anew after a wait."""
        return self.done

    def result(self) -> T:
        """The answer; raises the error it was failed with. Only where `done`."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
