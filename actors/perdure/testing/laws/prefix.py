"""Prefix stability: bytes once sent are sent again, so that the provider's cache lasts."""

from __future__ import annotations

from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import call, result, said, user
from perdure.testing.laws.law import Group, expect

law = Group("prefix")
RULE = "design §5: decisions are input and output"
STEPS = 6


@law("same-call", "The same call is answered the same", RULE)
async def _same_call(bench: Bench) -> None:
    for session in await bench.histories():
        first, second = await session.answers(), await session.answers()
        expect(first == second, "the same answers twice", "they differ", session.name)


@law("turn", "While a turn goes on and there is room, what was sent is sent again, and more behind it", RULE)
async def _turn(bench: Bench) -> None:
    for session in await bench.histories():
        session.add(user("Go through all of it, step by step."))
        before = (await session.assemble(budget=_wide(session))).messages
        for n in range(STEPS):
            await session.deliver(
                session.add(said(f"step {n}", call(f"s{n}")), result(f"s{n}", f"found {n}"))
            )
            sent = (await session.assemble(budget=_wide(session))).messages
            same = sent[: len(before)] == before
            expect(same, f"the {len(before)} messages of the step before first", "they changed", session.name)
            before = sent


@law("room", "A few tokens more or less of room change nothing while there is plenty", RULE)
async def _room(bench: Bench) -> None:
    for session in await bench.histories():
        wide = _wide(session)
        answers = [(await session.assemble(budget=wide + more)).messages for more in (0, 7, -13)]
        same = answers[0] == answers[1] == answers[2]
        expect(same, "the same messages", "they depend on a few tokens of room", session.name)


@law("delivery", "Delivering what is in the view already changes no message of it", RULE)
async def _delivery(bench: Bench) -> None:
    for session in await bench.histories():
        items = session.add(said("Here you are."), user("And one thing more: which was it?"))
        before = (await session.assemble(budget=_wide(session))).messages
        await session.deliver(items)
        after = (await session.assemble(budget=_wide(session))).messages
        expect(
            before == after, "the same messages before and after the delivery", "they differ", session.name
        )


@law("sleep", "Sleep and waking change nothing", "design §12.4")
async def _sleep(bench: Bench) -> None:
    for session in await bench.histories():
        before = await session.answers()
        for _ in range(2):
            await session.wake()
        expect(await session.answers() == before, "the same answers", "they changed by waking", session.name)


def _wide(session: Session) -> int:
    return max(100_000, session.room(session.view()))
