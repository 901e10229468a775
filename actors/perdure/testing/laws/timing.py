"""Time: an engine reads the runtime's clock, and what it answers can be repeated."""

from __future__ import annotations

import random
import time
from unittest.mock import patch

from perdure.contracts import Assembled
from perdure.errors import PerdureError
from perdure.testing.laws.answers import misshapen, missing_request
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised
from perdure.testing.laws.histories import START, TEXT, user
from perdure.testing.laws.law import Group, expect

law = Group("time")
YEAR = 365 * 24 * 3600


async def _told(bench: Bench, store: str) -> list[tuple[Assembled, ...]]:
    engine = bench.engine(store)
    return [await session.answers() for session in await bench.histories(engine)]


@law("repeatable", "The same session gives the same answers", "design §3, §11: replay is deterministic")
async def _repeatable(bench: Bench) -> None:
    first = await _told(bench, "first")
    random.seed(random.random())
    expect(await _told(bench, "second") == first, "the same answers", "a second run differs")


@law("machine", "The machine's clock makes no difference", "contract: PluginRuntime.wall_ms")
async def _machine(bench: Bench) -> None:
    first, now = await _told(bench, "now"), time.time

    def ahead() -> float:
        return now() + YEAR

    with patch.object(time, "time", ahead), patch.object(time, "time_ns", lambda: int(ahead() * 1e9)):
        later = await _told(bench, "later")
    expect(later == first, "the same answers", "they depend on the machine's clock")


@law("backwards", "A clock that goes back does no harm", "design §3: wall clocks are set")
async def _backwards(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="a clock that goes back")
    for n, message in enumerate((*TEXT, *TEXT)):
        bench.now = START + (n * 60_000 if n % 3 else -n * 3_600_000)
        await session.deliver(session.add(message))
        answer = await session.assemble()
        told = misshapen(answer) or missing_request(answer, session.view())
        expect(not told, "a whole answer", told, session.name)


@law("long-rest", "A session that rested for a year goes on", "design §1: sessions last")
async def _long_rest(bench: Bench) -> None:
    for session in await bench.histories():
        await session.assemble()
        bench.now = START + YEAR * 1_000
        await session.wake()
        await session.deliver(session.add(user("I am back. What was it?")))
        told = missing_request(await session.assemble(), session.view())
        expect(not told, "the request in the answer", told, session.name)
        bench.now = START


@law("epoch", "A clock that stands at its beginning does no harm", "design §3")
async def _epoch(bench: Bench) -> None:
    bench.now = 0
    session = await bench.session(bench.engine(), history="text").live(TEXT)
    told = missing_request(await session.assemble(), session.view())
    expect(not told, "the request in the answer", told, session.name)


@law(
    "virtual", "In virtual time it works without threads, or refuses in words", "design §3: everything inline"
)
async def _virtual(bench: Bench) -> None:
    real = await _told(bench, "real")
    bench.virtual = True
    try:
        inline = await _told(bench, "inline")
    except Raised as raised:
        refused = isinstance(raised.error, PerdureError) and bool(str(raised.error))
        expect(refused, "an answer, or a PerdureError that says why not", raised.happened)
        return
    expect(inline == real, "the same answers as in real time", "they differ")
