"""Run a program on a loop by name, with a kernel around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import anyio

from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.kernel import Kernel, OnEvent

T = TypeVar("T")
Backend = Literal["asyncio", "uvloop", "trio"]


def backend_options(backend: Backend) -> tuple[str, dict[str, Any]]:
    """What anyio.run wants for it."""
    if backend == "trio":
        return "trio", {}
    return "asyncio", {"use_uvloop": backend == "uvloop"}


def run(
    main: Callable[[Kernel], Awaitable[T]],
    *,
    backend: Backend = "asyncio",
    clock: Clock | None = None,
    on_event: OnEvent | None = None,
) -> T:
    """`await main(kernel)` as a counted task; its result. Under virtual time a hang raises Stuck."""

    async def root() -> T:
        async with Kernel(clock or RealClock(), on_event=on_event) as kernel:
            return await main(kernel)

    name, options = backend_options(backend)
    return anyio.run(root, backend=name, backend_options=options)
