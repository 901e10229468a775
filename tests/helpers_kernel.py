"""Runs kernel tests on a named loop, and makes sure that it really is that loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import sniffio

from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend, run
from perdure.kernel.virtual import VirtualClock

T = TypeVar("T")
LOOPS: tuple[Backend, ...] = ("asyncio", "uvloop", "trio")
each_loop = pytest.mark.parametrize("loop", LOOPS)


def running_loop() -> str:
    """Which loop runs this task, by its own word."""
    if sniffio.current_async_library() == "trio":
        return "trio"
    return "uvloop" if type(asyncio.get_running_loop()).__module__.startswith("uvloop") else "asyncio"


class Events:
    """What the kernel reported, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def __call__(self, name: str, fields: dict[str, object]) -> None:
        self.seen.append((name, fields))

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


def run_on(
    loop: Backend,
    main: Callable[[Kernel], Awaitable[T]],
    clock: Clock | None = None,
    events: Callable[[str, dict[str, object]], None] | None = None,
) -> T:
    """`main(kernel)` under virtual time unless told otherwise."""

    async def checked(kernel: Kernel) -> T:
        assert running_loop() == loop
        return await main(kernel)

    return run(checked, backend=loop, clock=clock or VirtualClock(), on_event=events)


def run_real(loop: Backend, main: Callable[[Kernel], Awaitable[T]], events: Any = None) -> T:
    """The same by the machine's time; a safety net of ten seconds stands around it."""

    async def bounded(kernel: Kernel) -> T:
        with kernel.clock.fail_after(10):
            return await main(kernel)

    return run_on(loop, bounded, RealClock(), events)
