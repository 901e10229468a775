"""Budget: an engine makes nothing larger than it may be, and counts honestly."""

from __future__ import annotations

from perdure.records import Item, Text, User
from perdure.testing.laws.answers import misshapen
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import long_session
from perdure.testing.laws.law import Group, expect

law = Group("budget")
HONEST = 4  # times that an engine's own count and the session's may differ: other tokenizers are fine
FRAME = 60  # tokens of slack: a message's frame is counted differently


async def _long(bench: Bench) -> Session:
    session = bench.session(bench.engine(), history="120 turns")
    await session.deliver(session.add(*long_session(120)))
    return session


@law(
    "kept",
    "An answer over the budget is never larger than the view was",
    "contract: EngineContext.token_budget",
)
async def _kept(bench: Bench) -> None:
    session = await _long(bench)
    view = session.view()
    came = session.runtime.estimate(view)
    for budget in (400, 900, 2_000, 5_000, 20_000):
        size = session.size(await session.assemble(view, budget))
        kept = size <= max(budget, came) + FRAME
        expect(kept, f"at most {max(budget, came):,} tokens at a budget of {budget:,}", f"it had {size:,}",
               session.name)  # fmt: skip


@law("stored", "What it adds of its own store fits the budget", "contract: EngineContext.token_budget")
async def _stored(bench: Bench) -> None:
    session = await _long(bench)
    view = session.covered()
    for budget in (400, 700, 1_500, 3_000, 8_000):
        size = session.size(await session.assemble(view, budget))
        expect(size <= budget + FRAME, f"at most {budget:,} tokens", f"it had {size:,}", session.name)


@law("addition", "The addition counts against the budget", "contract: messages and addition together")
async def _addition(bench: Bench) -> None:
    session = await _long(bench)
    for budget in (300, 600, 1_200, 3_000):
        answer = await session.assemble(session.covered(), budget)
        size = session.runtime.estimate((Item("", User((Text(answer.addition),))),))
        expect(
            size <= budget + FRAME, f"an addition below {budget:,} tokens", f"it had {size:,}", session.name
        )


@law("honest", "`estimated_tokens` is 0 or an honest count", "contract: Assembled.estimated_tokens")
async def _honest(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            told, size = answer.estimated_tokens, session.size(answer)
            honest = not told or (told <= HONEST * size + FRAME and size <= HONEST * told + FRAME)
            expect(honest, f"0 or about {size:,}", f"it told {told:,}", session.name)


@law("none", "A budget of nothing is answered", "contract: 0 where a call has none")
async def _none(bench: Bench) -> None:
    session = await _long(bench)
    for budget in (0, 1):
        context = session.context(budget)
        answer = await session.call("assemble", context, session.view())
        told = (
            misshapen(answer) if type(answer).__name__ == "Assembled" else f"a {type(answer).__name__} came"
        )
        expect(not told, f"an Assembled at a budget of {budget}", told, session.name)


@law("growing", "A session that grows is not sent larger and larger", "contract: EngineContext.token_budget")
async def _growing(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="a session that grows")
    for n in range(6):
        await session.deliver(session.add(*long_session(40, f"part {n} ")))
        size = session.size(await session.assemble(session.covered(), 1_000))
        expect(size <= 1_000 + FRAME, "at most 1,000 tokens each time", f"it had {size:,}", session.name)
