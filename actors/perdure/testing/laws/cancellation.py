"""Cancellation: a call that is cut off ends at once, and harms nothing that comes later.

It is cut off at everything that it awaits of its runtime, one after another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import TEXT
from perdure.testing.laws.law import Group, expect

law = Group("cancellation")
MOST = 12  # places that are tried
RULE = "design §7: deadlines cut calls off"


async def _cut(bench: Bench, at: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Do the work and cancel it at its n-th wait; whether it came so far."""
    with anyio.CancelScope() as scope:
        bench.trap.set(at, scope)
        await work()
    swallowed, sprung = bench.trap.swallowed, bench.trap.sprung
    bench.trap.set(0)
    expect(not swallowed, "a call that is cut off to end", "it caught the cancellation and went on")
    return sprung


async def _at_once(bench: Bench, work: Callable[[], Awaitable[object]]) -> None:
    """Cancelled before it begins to wait."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await work()


@law("ends", "A call that is cut off ends", RULE, loops=("asyncio", "trio"))
async def _ends(bench: Bench) -> None:
    for at in range(1, MOST):
        store = f"ends-{at}"
        session = bench.session(bench.engine(store), store=store)
        if not await _cut(bench, at, lambda s=session: _everything(s)):  # type: ignore[misc]
            return


@law("delivery", "A delivery that was cut off and comes again is whole and single", RULE)
async def _delivery(bench: Bench) -> None:
    expected = await (await bench.session(bench.engine("whole"), store="whole").live(TEXT)).answers()
    for at in range(MOST):
        store = f"cut-{at}"
        session = bench.session(bench.engine(store), store=store, history="text")
        items = session.add(*TEXT)
        sprung = True
        if at:
            sprung = await _cut(bench, at, lambda s=session, i=items: s.deliver(i))  # type: ignore[misc]
        else:
            await _at_once(bench, lambda s=session, i=items: s.deliver(i))  # type: ignore[misc]
        await session.deliver(items)
        same = await session.answers() == expected
        expect(same, "the answers as after one whole delivery", "they differ", session.name)
        if not sprung:
            return


@law("assemble", "An assembly that was cut off changes no later answer", RULE)
async def _assemble(bench: Bench) -> None:
    session = await bench.session(bench.engine(), history="text").live(TEXT)
    before = await session.answers()
    for at in range(MOST):
        sprung = True
        if at:
            sprung = await _cut(bench, at, session.answers)
        else:
            await _at_once(bench, session.answers)
        expect(await session.answers() == before, "the answers as before", "they changed", session.name)
        if not sprung:
            return


@law("others", "A call that is cut off leaves other sessions as they were", RULE)
async def _others(bench: Bench) -> None:
    engine = bench.engine()
    well = await bench.session(engine, "well", key="agent:well:cli:dm:test", history="text").live(TEXT)
    before = await well.answers()
    for at in range(1, MOST):
        ill = bench.session(engine, f"ill-{at}", key="agent:ill:cli:dm:test")
        sprung = await _cut(bench, at, lambda s=ill: _everything(s))  # type: ignore[misc]
        expect(await well.answers() == before, "another session's answers as before", "they changed", "text")
        if not sprung:
            return


@law("wakes", "A waking that was cut off is made good by the next", RULE)
async def _wakes(bench: Bench) -> None:
    lived = await bench.session(bench.engine(), history="text").live(TEXT)
    before = await lived.answers()
    for at in range(1, MOST):
        store = f"woken-{at}"
        session = bench.again(lived, bench.engine(store), store)
        session.cursor = ""
        sprung = await _cut(bench, at, session.wake)
        session.cursor = "" if sprung else session.cursor
        await session.wake()
        if session.engine.info.shares == "session":
            expect(await session.answers() == before, "the answers as before", "they differ", session.name)
        if not sprung:
            return


async def _everything(session: Session) -> None:
    await session.live(TEXT)
    await session.answers()
    await session.maintain("turn")
