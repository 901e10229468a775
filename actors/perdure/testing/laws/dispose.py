"""Dispose: it ends, and leaves nothing running or open."""

from __future__ import annotations

import anyio

from perdure.errors import PerdureError
from perdure.testing.laws.answers import misshapen
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised
from perdure.testing.laws.histories import TEXT
from perdure.testing.laws.law import Broken, Group, expect
from perdure.testing.laws.traces import Traces

law = Group("dispose")


@law("ends", "`dispose` ends in time", "contract: ten seconds at most")
async def _ends(bench: Bench) -> None:
    engine = bench.engine()
    for session in await bench.histories(engine):
        await session.answers()
    await bench.dispose(engine)


@law("unused", "An engine that was never used is disposed", "contract: Disposes")
async def _unused(bench: Bench) -> None:
    await bench.dispose(bench.engine())


@law("twice", "A second `dispose` does no harm", "design §7: at least once")
async def _twice(bench: Bench) -> None:
    engine = bench.engine()
    await bench.session(engine).live(TEXT)
    for _ in range(2):
        await bench.dispose(engine)


@law(
    "leaves-nothing",
    "Nothing is left running or open: no task, thread, process or file of the store",
    "design §12.10",
    loops=("asyncio", "trio"),
)
async def _leaves_nothing(bench: Bench) -> None:
    traces = Traces(bench.root)
    engine = bench.engine()
    session = await bench.session(engine).live(TEXT)
    await session.answers()
    await bench.dispose(engine)
    if not (left := traces.since()):
        return
    await anyio.sleep(0.1)  # a process that was killed is gone in a moment
    left = traces.since()
    expect(not left, "nothing left behind", left)


@law(
    "beside",
    "A call that runs while the engine is disposed ends, too",
    "design §12.10: no wait without a deadline",
)
async def _beside(bench: Bench) -> None:
    engine = bench.engine()
    session = await bench.session(engine).live(TEXT)
    told: list[str] = []

    async def ask() -> None:
        try:
            told.append(misshapen(await session.assemble()))
        except Raised as raised:
            told.append("" if isinstance(raised.error, Exception) else raised.happened)
        except Broken as broken:
            told.append(broken.happened)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
        await bench.dispose(engine)
    told = [each for each in told if each]
    expect(not told, "an answer or an error in time", told[0] if told else "")


@law(
    "after", "What is called behind `dispose` is answered or refused, and doesn't hang", "contract: Disposes"
)
async def _after(bench: Bench) -> None:
    engine = bench.engine()
    session = await bench.session(engine).live(TEXT)
    await bench.dispose(engine)
    try:
        await session.assemble()
    except Raised as raised:
        expect(bool(str(raised.error)) or isinstance(raised.error, PerdureError), "a reason", raised.happened)
