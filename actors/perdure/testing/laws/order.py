"""Order: how entries arrive makes no difference, and the running turn keeps its order."""

from __future__ import annotations

from perdure.testing.laws.answers import running_turn
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.histories import HISTORIES, long_session
from perdure.testing.laws.law import Group, expect

law = Group("order")


@law("portions", "In which portions entries arrive makes no difference", "contract: entries come in order")
async def _portions(bench: Bench) -> None:
    for name, messages in HISTORIES.items():
        answers = []
        for size in (1, 3, 100):
            store = f"{name}-{size}"
            session = bench.session(bench.engine(store), store=store, history=name)
            items = session.add(*messages)
            for at in range(0, len(items), size):
                await session.deliver(items[at : at + size])
            answers.append(await session.answers())
        same = answers[0] == answers[1] == answers[2]
        expect(same, "the same answers after portions of 1, 3 and all", "they differ", name)


@law("interleaved", "Sessions that take turns are what they are one after another", "design §7: by session")
async def _interleaved(bench: Bench) -> None:
    answers = []
    for mixed in (False, True):
        store = f"mixed-{mixed}"
        engine = bench.engine(store)
        sessions = [
            bench.session(engine, f"s{n}", store=store, history=name) for n, name in enumerate(HISTORIES)
        ]
        pairs = list(zip(sessions, HISTORIES.values(), strict=True))
        steps = [(n, session, m) for session, messages in pairs for n, m in enumerate(messages)]
        for _, session, message in sorted(steps, key=lambda step: step[0]) if mixed else steps:
            await session.deliver(session.add(message))
        answers.append([await session.answers() for session in sessions])
    expect(answers[0] == answers[1], "the same answers", "they depend on what came between")


@law(
    "running-turn", "With room, the running turn is sent whole and in its order", "design §6: the newest turn"
)
async def _running_turn(bench: Bench) -> None:
    for session in await bench.histories():
        view = session.view()
        turn = [item.entry for item in running_turn(view) if item.entry]
        answer = await session.assemble(view)
        found = [item.entry for item in answer.messages if item.entry in turn]
        expect(
            found == turn,
            f"{', '.join(turn)}",
            f"it sent {', '.join(found) or 'nothing of it'}",
            session.name,
        )


@law(
    "newest-last", "What is newest in the view stands last, but for what the engine made up", "provider rule"
)
async def _newest_last(bench: Bench) -> None:
    for session in await bench.histories():
        view = session.view()
        answer = await session.assemble(view)
        own = [item.entry for item in answer.messages if item.entry]
        last = own[-1] if own else "nothing"
        expect(last == view[-1].entry, f"{view[-1].entry} to stand last", f"{last} did", session.name)


@law("long-turn", "A turn of many steps keeps its newest step under a small budget", "design §6")
async def _long_turn(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="a turn of 40 steps")
    messages = long_session(3)
    await session.live(messages)
    for n in range(40):
        step = HISTORIES["parallel calls"][1:5]
        await session.deliver(session.add(*step))
        if n % 8 == 7:
            view = session.view()
            answer = await session.assemble(view, 1_500)
            there = any(item.entry == view[-1].entry for item in answer.messages)
            expect(there, f"the newest result {view[-1].entry} in the answer", "it was missing", session.name)
