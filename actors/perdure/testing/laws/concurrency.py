"""Concurrency: sessions at once are what they are one by one; nothing holds the loop; both loops do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from perdure.contracts import Assembled
from perdure.testing.laws.answers import misshapen, missing_request
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised, Session
from perdure.testing.laws.histories import HISTORIES, TEXT, long_session, said, user
from perdure.testing.laws.law import Group, expect

law = Group("concurrency")
MANY = 12
HELD = 0.5  # seconds that the loop may be held: far more than is allowed, for machines under load
TICK = 0.005


@law("sessions", "Sessions at once are what they are one after another", "design §7: keyed by session",
     loops=("asyncio", "trio"))  # fmt: skip
async def _sessions(bench: Bench) -> None:
    async def live(engine_store: str, together: bool) -> list[tuple[Assembled, ...]]:
        engine = bench.engine(engine_store)
        answers: dict[int, tuple[Assembled, ...]] = {}

        async def one(n: int) -> None:
            messages = list(HISTORIES.values())[n % len(HISTORIES)]
            session = bench.session(engine, f"s{n}", key=f"agent:a{n}:cli:dm:test", store=engine_store)
            await session.live(messages)
            answers[n] = await session.answers()

        if together:
            async with anyio.create_task_group() as tasks:
                for n in range(MANY):
                    tasks.start_soon(one, n)
        else:
            for n in range(MANY):
                await one(n)
        return [answers[n] for n in range(MANY)]

    alone, together = await live("alone", False), await live("together", True)
    expect(alone == together, "the same answers", "they differ when sessions run at once")


@law(
    "beside",
    "A view is assembled while entries of its session are delivered",
    "design §7: ingest is a worker",
)
async def _beside(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="a delivery beside")
    await session.live(long_session(20))
    told: list[str] = []

    async def ask() -> None:
        for _ in range(8):
            view = session.view()
            answer = await session.assemble(view)
            told.append(misshapen(answer) or missing_request(answer, view))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        for n in range(8):
            await session.deliver(session.add(said(f"And {n}."), user(f"More, number {n}?")))
    told = [each for each in told if each]
    expect(not told, "whole answers", told[0] if told else "", session.name)


@law("same-session", "Two calls for one session at once are both answered", "design §7: no dead lock")
async def _same_session(bench: Bench) -> None:
    session = await bench.session(bench.engine()).live(TEXT)
    expected, answers = await session.assemble(), list[Assembled]()

    async def ask() -> None:
        answers.append(await session.assemble())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    same = all(answer == expected for answer in answers)
    expect(same and len(answers) == 5, "five equal answers", "they differ", "text")


@law("loop", "No method holds the event loop", "design §3: nothing above 25 ms")
async def _loop(bench: Bench) -> None:
    engine = bench.engine()
    session = bench.session(engine, history="120 turns")
    for what in ("its first call", "its calls"):
        async with _watched() as held:
            await session.deliver(session.add(*long_session(60)))
            await session.assemble()
            await session.after_turn(tuple(session.log[-2:]))
            await session.maintain("turn")
        expect(
            held() < HELD,
            f"the loop to be free during {what}",
            f"it was held for {held():.2f} s",
            session.name,
        )
    async with _watched() as held:
        await bench.dispose(engine)
    expect(held() < HELD, "the loop to be free while it is disposed", f"it was held for {held():.2f} s")


class _Held:
    """The longest time that the loop was late, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    def __call__(self) -> float:
        return self.longest


@asynccontextmanager
async def _watched() -> AsyncIterator[_Held]:
    held = _Held()

    async def tick() -> None:
        while True:
            before = anyio.current_time()
            await anyio.sleep(TICK)
            held.longest = max(held.longest, anyio.current_time() - before - TICK)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await anyio.lowlevel.checkpoint()
        yield held
        await anyio.sleep(TICK)
        tasks.cancel_scope.cancel()


@law("loops", "It works on asyncio and on trio", "design §3", loops=("asyncio", "trio"))
async def _loops(bench: Bench) -> None:
    engine = bench.engine()
    for session in await bench.histories(engine):
        await session.wake()
        for answer in await session.situations():
            expect(not (told := misshapen(answer)), "a well-formed Assembled", told, session.name)
    await bench.dispose(engine)


@law("alone", "What fails for one session fails for it alone", "design §12.6")
async def _alone(bench: Bench) -> None:
    engine = bench.engine()
    well = await bench.session(engine, "well", key="agent:well:cli:dm:test", history="text").live(TEXT)
    before = await well.answers()
    for at in range(1, 5):
        ill = bench.session(engine, f"ill-{at}", key="agent:ill:cli:dm:test")
        bench.trap.set(at)
        await _tried(ill)
        bench.trap.set(0)
        same = await well.answers() == before
        expect(same, "the answers as before another session's disk failed", "they changed", "text")


async def _tried(session: Session) -> None:
    try:
        await session.live(TEXT)
        await session.answers()
    except Raised:
        pass  # its own failure is allowed
