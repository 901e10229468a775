"""Pairs: every call has its one result right behind it, however little room there is."""

from __future__ import annotations

from perdure.contracts import EngineCompaction
from perdure.testing.laws.answers import garbled_arguments, unpaired
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.histories import call, long_session, result, said, user
from perdure.testing.laws.law import Group, expect

law = Group("pairs")
PAIRED = "each call with its result right behind it"
RULE = "provider rule: tool_use is answered by tool_result; design §12.2"


@law("whole", "Calls and results that are sent are paired", RULE)
async def _whole(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            expect(not (told := unpaired(answer.messages)), PAIRED, told, session.name)


@law("tight", "They stay paired under every budget", RULE)
async def _tight(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="60 turns")
    await session.deliver(session.add(*long_session(60)))
    view = session.view()
    for budget in (1, 50, 200, 333, 500, 800, 1_000, 1_300, 2_000, 4_000):
        answer = await session.assemble(view, budget)
        expect(not (told := unpaired(answer.messages)), f"{PAIRED} at {budget} tokens", told, session.name)


@law("step", "They are paired in the middle of a tool loop, too", RULE)
async def _step(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="a tool loop")
    await session.live((*long_session(4), said("one", call("p1"), call("p2"))))
    for n in range(1, 5):
        await session.deliver(session.add(result(f"p{n * 2 - 1}", "left"), result(f"p{n * 2}", "right")))
        for answer in await session.situations():
            expect(not (told := unpaired(answer.messages)), PAIRED, told, session.name)
        more = said("again", call(f"p{n * 2 + 1}"), call(f"p{n * 2 + 2}"))
        await session.deliver(session.add(more))


@law("reused", "Ids that a provider uses again each turn stay apart", RULE)
async def _reused(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="ids used again")
    for n in range(12):
        step = (
            said("", call("call_0"), call("call_1")),
            result("call_0", f"a{n}"),
            result("call_1", f"b{n}"),
        )
        await session.deliver(session.add(user(f"Turn {n}?"), *step, said(f"Done {n}.")))
    await session.deliver(session.add(user("And?")))
    for budget in (150, 300, 600, 24_000):
        answer = await session.assemble(budget=budget)
        expect(not (told := unpaired(answer.messages)), PAIRED, told, session.name)


@law("compacted", "They stay paired behind a compaction", RULE)
async def _compacted(bench: Bench) -> None:
    for session in await bench.histories():
        await session.compact(_delegated)
        for answer in await session.situations():
            expect(not (told := unpaired(answer.messages)), PAIRED, told, session.name)


@law("arguments", "The arguments of a call are a JSON object", "provider rule: tool_use.input")
async def _arguments(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            told = garbled_arguments(answer.messages)
            expect(not told, "an object as arguments", told, session.name)


async def _delegated() -> EngineCompaction:
    return EngineCompaction(True, True, summary="so far", tokens_before=900, tokens_after=300)
