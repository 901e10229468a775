"""Actors of the kernel, and the sleeping sessions of a host.

python -m benchmarks.subjects.actors_ours LOOP work | idle N | sessions N FOLDER
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measure import cpu, fresh, report, resident
from benchmarks.subjects import drill
from benchmarks.subjects.turn import QUIET, Instant, turn
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.intensity import Intensity
from perdure.kernel.kernel import Kernel
from perdure.kernel.mailbox import Ref
from perdure.kernel.run import backend_options
from perdure.kernel.waiter import Waiter

ASK_SECONDS = 5.0
OFTEN = Intensity(1_000_000, 60.0)  # the drill crashes one actor hundreds of times


class Counter:
    """One actor."""

    __slots__ = ("count", "drill")

    def __init__(self, design: drill.Design) -> None:
        self.count, self.drill = 0, design

    def handle(self, message: Any) -> None:
        """Synchronous, as all handlers are."""
        self.count = self.drill.handle(self.count, message)


class Slot(drill.Answer):
    """The kernel's one-shot answer."""

    def __init__(self, waiter: Waiter[int]) -> None:
        self.waiter = waiter

    def give(self, count: int) -> None:
        self.waiter.set(count)


class KernelActors(drill.Design):
    """Handlers on the kernel's run queue; every ask has a deadline."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def spawn(self) -> Ref:
        return self.kernel.actor("a", Counter(self).handle)

    def tell(self, actor: Ref, message: Any) -> None:
        if not actor.tell(message):
            raise AssertionError("the mailbox was full: the drill needs a larger bound")

    async def ask(self, actor: Ref) -> int:
        return int(await self.kernel.ask(actor, Slot, ASK_SECONDS))

    def event(self) -> Waiter[Any]:
        return self.kernel.waiter("the drill")

    async def until(self, event: Waiter[Any]) -> None:
        await self.kernel.wait(event)

    async def pause(self, seconds: float) -> None:
        await self.kernel.clock.sleep(seconds)


async def kernel_main(what: str, count: int) -> None:
    """The drill on a kernel of its own."""
    kernel = Kernel(RealClock(), mailbox_bound=drill.TELLS, actor_intensity=OFTEN)
    async with kernel:
        design = KernelActors(kernel)
        await (drill.idle(design, count) if what == "idle" else drill.work(design))


async def sessions(count: int, folder: Path) -> None:
    """Sessions a host knows and that sleep: their keys, addresses and what wakes them."""
    async with Host(folder, settings=QUIET, model=Instant(), workspace=folder, environ={}) as host:
        await turn(host, "agent:main:bench:dm:warm")
        before, spent = resident(), cpu()
        for number in range(count):
            host.directory.ref(f"agent:main:bench:dm:{number}")
        used = cpu() - spent
        report(bytes_each=(resident() - before) / count, per_second=count / used)


def main(loop: str, what: str, *others: str) -> None:
    """One measurement on one loop."""
    name, options = backend_options(loop)  # type: ignore[arg-type]  # one of the three, from the area
    work = partial(kernel_main, what, int(others[0]) if others else 0)
    if what == "sessions":
        work = partial(sessions, int(others[0]), fresh(others[1]))
    anyio.run(work, backend=name, backend_options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
