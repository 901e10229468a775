"""The same drill on pykka, which gives each actor a thread.

python -m benchmarks.subjects.actors_pykka work | idle N
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import pykka

from benchmarks.subjects import drill

FAILED = threading.Event()


class Counter(pykka.ThreadingActor):
    """One actor; pykka starts no new one after a crash, so whoever cares does."""

    use_daemon_thread = True

    def __init__(self, design: PykkaActors) -> None:
        super().__init__()
        self.design, self.count = design, 0

    def on_receive(self, message: Any) -> Any:
        if message == "ask":
            return self.count
        self.count = self.design.handle(self.count, message)
        return None

    def on_failure(self, *_: Any) -> None:
        FAILED.set()


class Box:
    """An address that survives its actor."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any) -> None:
        self.ref = ref


class PykkaActors(drill.Design):
    """Nothing here waits on a loop: threads do the work, the drill's own thread blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def spawn(self) -> Box:
        return Box(Counter.start(self))

    def tell(self, actor: Box, message: Any) -> None:
        if type(message) is not drill.Crash:
            actor.ref.tell(message)
            return
        FAILED.clear()
        actor.ref.tell(message)
        FAILED.wait()
        actor.ref = Counter.start(self)

    async def ask(self, actor: Box) -> int:
        return int(actor.ref.ask("ask"))

    def hit(self) -> None:
        with self.lock:
            super().hit()

    def event(self) -> threading.Event:
        return threading.Event()

    async def until(self, event: threading.Event) -> None:
        event.wait()

    async def pause(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)  # noqa: ASYNC251  # there is no loop to hold up


def main(what: str, count: str = "0") -> None:
    """One measurement."""
    logging.disable(logging.CRITICAL)
    made = PykkaActors()
    asyncio.run(drill.idle(made, int(count)) if what == "idle" else drill.work(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
