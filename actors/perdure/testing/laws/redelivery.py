"""Redelivery: entries may come again after a crash; a second time changes nothing, and none is missing."""

from __future__ import annotations

from pathlib import Path

from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised
from perdure.testing.laws.histories import HISTORIES, TEXT, long_session
from perdure.testing.laws.law import Group, expect

law = Group("redelivery")
SLACK = 1 << 20  # bytes that a store may grow by without holding anything: logs, free pages
SAME, DIFFER = "the same answers as when it came once", "they differ"


@law("last", "The last entry delivered again changes nothing", "contract: ContextEngine.ingest")
async def _last(bench: Bench) -> None:
    for session in await bench.histories():
        before = await session.answers()
        await session.deliver(tuple(session.log[-1:]), single=True)
        expect(await session.answers() == before, SAME, DIFFER, session.name)


@law("all", "Everything delivered again changes nothing", "contract: ContextEngine.ingest")
async def _all(bench: Bench) -> None:
    for session in await bench.histories():
        before = await session.answers()
        await session.deliver(tuple(session.log))
        expect(await session.answers() == before, SAME, DIFFER, session.name)


@law("overlap", "Of a batch that begins with known entries the new ones count", "contract: at least once")
async def _overlap(bench: Bench) -> None:
    for name, messages in HISTORIES.items():
        answers = []
        for again in (0, 3):
            store = f"{name}-{again}"
            session = bench.session(bench.engine(store), store=store, history=name)
            items = session.add(*messages)
            await session.deliver(items[:5])
            await session.deliver(items[5 - again :])
            answers.append(await session.answers())
        expect(answers[0] == answers[1], SAME, DIFFER, name)


@law("restart", "Entries delivered again by a new host change nothing", "cases PL07; design §12.1")
async def _restart(bench: Bench) -> None:
    engine = bench.engine()
    sessions = list(await bench.histories(engine))
    before = [await session.answers() for session in sessions]
    await bench.dispose(engine)
    later = bench.engine()
    for session, expected in zip(sessions, before, strict=True):
        again = bench.again(session, later)
        await again.wake()
        await again.deliver(tuple(again.log[-4:]))
        expect(await again.answers() == expected, SAME, DIFFER, session.name)


@law("full-disk", "A delivery that failed is made good when it comes again", "design §12.1")
async def _full_disk(bench: Bench) -> None:
    expected = await (await bench.session(bench.engine("well"), store="well").live(TEXT)).answers()
    for at in range(1, 9):
        store = f"full-{at}"
        session = bench.session(bench.engine(store), store=store, history="text")
        bench.trap.set(at)
        for item in session.add(*TEXT):
            try:
                await session.deliver((item,), single=True)
            except Raised:
                await session.deliver((item,), single=True)  # a host hands over again what was refused
        sprung = bench.trap.sprung
        bench.trap.set(0)
        same = await session.answers() == expected
        expect(same, "nothing to be missing after one write that failed", DIFFER, "text")
        if not sprung:
            return


@law("turn", "`after_turn` told again changes nothing", "contract: a crash may repeat it")
async def _turn(bench: Bench) -> None:
    for session in await bench.histories():
        items = tuple(session.log[-2:])
        await session.after_turn(items)
        before = await session.answers()
        await session.after_turn(items)
        expect(await session.answers() == before, SAME, DIFFER, session.name)


@law("growth", "Entries that come again do not fill the store", "cases PL07")
async def _growth(bench: Bench) -> None:
    engine = bench.engine()
    session = bench.session(engine)
    items = session.add(*long_session(120, "word " * 60))
    await session.deliver(items)
    await bench.dispose(engine)
    before, later = _bytes(bench.folder("store")), bench.engine()
    again = bench.again(session, later)
    for _ in range(12):
        await again.deliver(items)
    await bench.dispose(later)
    after = _bytes(bench.folder("store"))
    kept = after <= 3 * before + SLACK
    expect(kept, f"a store of about {before:,} bytes", f"it had {after:,} after twelve redeliveries")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
