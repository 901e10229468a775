"""What every actor design is put through, and the figures it reports: one drill, so that they compare.

An actor counts messages: `None` counts, a time is answered by noting its age, a `Crash` raises once, an
answer slot gets the count. A design says how to make one, tell it, ask it, and let the loop run.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.measure import cpu, median, percentile, report, resident, wall

TELLS, FANOUT, ROUNDS, ASKS, RESTARTS = 50_000, 10_000, 5, 2_000, 200
PER_SECOND, SECONDS = 5_000, 2


class Boom(Exception):
    """What a crash raises."""


class Crash:
    """Raises on the first delivery; a design may deliver it again."""

    def __init__(self) -> None:
        self.left = 1


class Answer(ABC):
    """A slot for the count."""

    @abstractmethod
    def give(self, count: int) -> None: ...


class Design(ABC):
    """One way to make actors. `event` gives something with `set()`, `pause` waits on the design's loop."""

    def __init__(self) -> None:
        self.left = 0
        self.done: Any = None
        self.ages: list[float] = []

    # --- what a design brings ---------------------------------------------------------------------

    @abstractmethod
    def spawn(self) -> Any:
        """A new actor."""

    @abstractmethod
    def tell(self, actor: Any, message: Any) -> None:
        """Deliver and go on."""

    @abstractmethod
    async def ask(self, actor: Any) -> int:
        """Its count."""

    @abstractmethod
    def event(self) -> Any: ...

    @abstractmethod
    async def until(self, event: Any) -> None: ...

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    # --- what all share ---------------------------------------------------------------------------

    def handle(self, count: int, message: Any) -> int:
        """The actor's behaviour; the new count."""
        if message is None:
            self.hit()
            return count + 1
        if type(message) is float:
            self.ages.append(wall() - message)
            self.hit()
        elif type(message) is Crash:
            if message.left:
                message.left = 0
                raise Boom
        else:
            message.give(count)
        return count

    def expect(self, messages: int) -> None:
        """`done` is set after so many."""
        self.left, self.done = messages, self.event()

    def hit(self) -> None:
        """One was handled."""
        self.left -= 1
        if not self.left:
            self.done.set()


async def idle(design: Design, actors: int) -> None:
    """Resident bytes of an actor that has nothing to do, and how fast they are made."""
    warm = [design.spawn() for _ in range(10)]
    await design.pause(0)
    before, spent = resident(), cpu()
    made = [design.spawn() for _ in range(actors)]
    await design.pause(0)
    await design.pause(0)
    used = cpu() - spent
    held = resident() - before
    await design.ask(made[-1])
    assert warm
    report(bytes_each=held / actors, per_second=actors / used)


async def work(design: Design) -> None:
    """Throughput, latency, restarts, and mailbox latency under an open load."""
    actor = design.spawn()
    await design.ask(actor)
    tells = await _tells(design, actor)
    asks = [await _timed(lambda: design.ask(actor)) for _ in range(ASKS)]
    restarts = [await _timed(lambda: _restart(design, actor)) for _ in range(RESTARTS)]
    many = [design.spawn() for _ in range(FANOUT)]
    await design.pause(0)
    await design.pause(0)
    fanout = median([await _fanout(design, many) for _ in range(ROUNDS)])
    await _load(design, many)
    report(
        tells=tells,
        fanout=fanout,
        ask_us=median(asks) * 1e6,
        restart_us=median(restarts) * 1e6,
        load_us=median(design.ages) * 1e6,
        load_p99_us=percentile(design.ages, 0.99) * 1e6,
    )


async def _timed(step: Callable[[], Awaitable[Any]]) -> float:
    began = wall()
    await step()
    return wall() - began


async def _tells(design: Design, actor: Any) -> float:
    design.expect(TELLS)
    spent = cpu()
    for number in range(TELLS):
        design.tell(actor, None)
        if not number % 1000:
            await design.pause(0)  # let it run, as a real sender would
    await design.until(design.done)
    return TELLS / (cpu() - spent)


async def _restart(design: Design, actor: Any) -> None:
    design.tell(actor, Crash())
    await design.ask(actor)


async def _fanout(design: Design, many: list[Any]) -> float:
    design.expect(len(many))
    spent = cpu()
    for actor in many:
        design.tell(actor, None)
    await design.until(design.done)
    return len(many) / (cpu() - spent)


async def _load(design: Design, many: list[Any]) -> None:
    """Messages come by the clock, to actors at random, whether the earlier ones were handled or not."""
    rng, messages, sent, began = random.Random(1), PER_SECOND * SECONDS, 0, wall()
    design.expect(messages)
    while sent < messages:
        due = min(messages, int((wall() - began) * PER_SECOND))
        while sent < due:
            design.tell(many[rng.randrange(len(many))], wall())
            sent += 1
        await design.pause(0.001)
    await design.until(design.done)
