"""Actors as most programs write them: a task each, around a queue, a stream or a channel.

python -m benchmarks.subjects.actors_tasks asyncio.Queue|stream|channel LOOP work | idle N
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import trio

from benchmarks.subjects import drill
from perdure.kernel.run import backend_options


class Future(drill.Answer):
    """asyncio's own answer slot."""

    def __init__(self) -> None:
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def give(self, count: int) -> None:
        self.future.set_result(count)


class Eventful(drill.Answer):
    """A value and an event, for the loops without futures."""

    def __init__(self, event: Any) -> None:
        self.event, self.count = event, 0

    def give(self, count: int) -> None:
        self.count = count
        self.event.set()


class Queues(drill.Design):
    """A task per actor around an `asyncio.Queue`, in a loop that begins again after a crash."""

    def __init__(self, _group: Any) -> None:
        super().__init__()
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self) -> asyncio.Queue[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.tasks.add(asyncio.create_task(self._supervise(queue)))
        return queue

    async def _supervise(self, queue: asyncio.Queue[Any]) -> None:
        while True:
            try:
                count = 0
                while True:
                    count = self.handle(count, await queue.get())
            except drill.Boom:
                continue

    def tell(self, actor: asyncio.Queue[Any], message: Any) -> None:
        actor.put_nowait(message)

    async def ask(self, actor: asyncio.Queue[Any]) -> int:
        slot = Future()
        actor.put_nowait(slot)
        return await slot.future

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    async def until(self, event: asyncio.Event) -> None:
        await event.wait()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Streams(drill.Design):
    """A task per actor around an anyio memory object stream."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def spawn(self) -> Any:
        send, receive = anyio.create_memory_object_stream[Any](math.inf)
        self.group.start_soon(self._supervise, receive)
        return send

    async def _supervise(self, receive: Any) -> None:
        while True:
            try:
                count = 0
                while True:
                    count = self.handle(count, await receive.receive())
            except drill.Boom:
                continue

    def tell(self, actor: Any, message: Any) -> None:
        actor.send_nowait(message)

    async def ask(self, actor: Any) -> int:
        slot = Eventful(self.event())
        actor.send_nowait(slot)
        await slot.event.wait()
        return slot.count

    def event(self) -> Any:
        return anyio.Event()

    async def until(self, event: Any) -> None:
        await event.wait()

    async def pause(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Channels(Streams):
    """The same on trio's own memory channel."""

    def spawn(self) -> Any:
        send, receive = trio.open_memory_channel[Any](math.inf)
        self.group.start_soon(self._supervise, receive)
        return send

    def event(self) -> Any:
        return trio.Event()

    async def pause(self, seconds: float) -> None:
        await trio.sleep(seconds)


DESIGNS: dict[str, Callable[[Any], drill.Design]] = {
    "asyncio.Queue": Queues,
    "stream": Streams,
    "channel": Channels,
}


async def run(design: str, what: str, count: int) -> None:
    """The drill in a task group of the loop's own kind."""
    group = trio.open_nursery() if design == "channel" else anyio.create_task_group()
    async with group as inner:
        made = DESIGNS[design](inner)
        await (drill.idle(made, count) if what == "idle" else drill.work(made))


def main(design: str, loop: str, what: str, count: str = "0") -> None:
    """One measurement on one loop."""
    name, options = backend_options(loop)  # type: ignore[arg-type]  # one of the three, from the area
    anyio.run(partial(run, design, what, int(count)), backend=name, backend_options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
