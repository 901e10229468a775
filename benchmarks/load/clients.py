"""The clients of one phase: each has a session, a stream of events, and something to say now and then."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from urllib.parse import quote

from benchmarks.load.figures import Phase, Tally
from benchmarks.load.wire import Gone, Line, Place

WORDS = ("the report", "last week's numbers", "the plan for spring", "a letter to the council", "the budget")
PAUSE = (10.0, 30.0)  # seconds between the end of an answer and the next message
PATIENCE = 120.0  # seconds for the end of a turn
SLOW_READ = 512  # bytes that a slow client takes at once …
SLOW_EVERY = 1.0  # … and how often


class Client:
    """One of a thousand. `slow`: reads its stream drop by drop; `vanishes`: is cut off now and then."""

    def __init__(
        self, place: Place, number: int, tally: Tally, mark: str, *, slow: bool, vanishes: bool
    ) -> None:
        self._place, self._tally, self._mark = place, tally, f"{mark}-{number}"
        self._rng = random.Random(self._mark)
        self._slow, self._vanishes = slow, vanishes
        key = quote(f"agent:main:load:dm:{number}", safe="")
        self._path = f"/v1/sessions/{key}"
        self._said = 0
        self._first: asyncio.Event = asyncio.Event()
        self._ended: asyncio.Event = asyncio.Event()
        self._last = ""
        self._stream: Line | None = None

    async def run(self, until: float) -> None:
        """Talk until the clock says so."""
        listening = asyncio.ensure_future(self._listen())
        line = Line(self._place)
        try:
            await asyncio.sleep(self._rng.uniform(0, PAUSE[1]))
            while time.monotonic() < until:
                with suppress(Gone, OSError, asyncio.TimeoutError):
                    await self._turn(line)
                await asyncio.sleep(self._rng.uniform(*PAUSE))
        finally:
            listening.cancel()
            line.vanish()
            if self._stream is not None:
                self._stream.vanish()

    async def _turn(self, line: Line) -> None:
        self._first.clear()
        self._ended.clear()
        self._said += 1
        text = f"Message {self._said}: remember {self._rng.choice(WORDS)}, and tell me what you think of it."
        began = time.monotonic()
        status, _ = await line.post(f"{self._path}/messages", {"text": text}, f"{self._mark}-{self._said}")
        if status != 202:
            self._tally.refused += 1
            return
        try:
            await asyncio.wait_for(self._first.wait(), PATIENCE)
            self._tally.first.append(time.monotonic() - began)
            if self._vanishes and self._rng.random() < 0.5 and self._stream is not None:
                self._stream.vanish()
            await asyncio.wait_for(self._ended.wait(), PATIENCE)
            self._tally.whole.append(time.monotonic() - began)
        except TimeoutError:
            self._tally.lost += 1

    async def _listen(self) -> None:
        while True:
            self._stream = Line(self._place, most=SLOW_READ if self._slow else 65_536)
            try:
                await self._hear(self._stream)
            except (Gone, OSError, RuntimeError):
                self._tally.reconnected += 1
                await asyncio.sleep(self._rng.uniform(0.2, 2.0))

    async def _hear(self, stream: Line) -> None:
        async for ident, event, _data in stream.events(f"{self._path}/events", after=self._last):
            self._last = ident or self._last
            self._first.set()
            if event in ("turn.finished", "resync"):
                self._ended.set()
            if self._slow:
                await asyncio.sleep(SLOW_EVERY)


async def phase(
    name: str, place: Place, clients: int, seconds: float, *, slow: float = 0.0, vanishing: float = 0.0
) -> Phase:
    """All of them at once, for so many seconds; shares of them slow and vanishing."""
    found = Phase(name, seconds, Tally(), Tally(), Tally())
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            is_slow = number < slow * clients
            gone = not is_slow and number < (slow + vanishing) * clients
            tally = found.slow if is_slow else found.vanishing if gone else found.good
            client = Client(place, number, tally, name, slow=is_slow, vanishes=gone)
            group.create_task(client.run(until))
    return found
