"""Maintenance and the report behind a turn: where entries may be rewritten, and it comes to rest."""

from __future__ import annotations

from typing import get_args

from perdure.contracts import Maintained, Moment
from perdure.records import Assistant, Stop, ToolCall, ToolResult
from perdure.testing.laws.answers import missing_request, unpaired
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import ROUNDS
from perdure.testing.laws.histories import long_session
from perdure.testing.laws.law import Group, expect

law = Group("maintain")
MOMENTS: tuple[Moment, ...] = get_args(Moment)
STOPS: tuple[Stop, ...] = get_args(Stop)


@law("answers", "`maintain` answers a Maintained at every moment", "contract: Maintains")
async def _answers(bench: Bench) -> None:
    for session in await bench.histories():
        for moment in MOMENTS:
            found = await session.maintain(moment)
            expect(found.rewritten >= 0, "a count of what was rewritten", f"{found.rewritten}", session.name)


@law(
    "only-there",
    "Entries are rewritten in `maintain` and nowhere else",
    "contract: rewrite_transcript_entries",
)
async def _only_there(bench: Bench) -> None:
    for session in await bench.histories():
        await session.wake()
        await session.answers()
        await session.after_turn(tuple(session.log[-2:]))
        told = f"it was asked for {len(bench.misplaced)} times elsewhere"
        expect(not bench.misplaced, "no rewriting outside of `maintain`", told, session.name)


@law("known", "What it rewrites are entries of the session, each once", "contract: Replacement")
async def _known(bench: Bench) -> None:
    for session in await bench.histories():
        for moment in MOMENTS:
            await session.maintain(moment)
        for made in session.rewrites:
            ids = [each.entry for _, each in made]
            strange = [each.entry for old, each in made if old is None]
            expect(not strange, "ids of the session's entries", f"it named {strange[:3]}", session.name)
            expect(len(set(ids)) == len(ids), "each entry once", "one came twice", session.name)


@law(
    "faithful", "A rewritten entry keeps its kind, and calls and results keep their ids", "design §5: repair"
)
async def _faithful(bench: Bench) -> None:
    for session in await bench.histories():
        await session.maintain("turn")
        for old, each in (pair for made in session.rewrites for pair in made):
            new = each.message
            same = old is None or (type(old) is type(new) and _calls(old) == _calls(new))
            told = f"{each.entry} became a {type(new).__name__} with {', '.join(_calls(new)) or 'no call'}"
            expect(same, "a message of the same kind with the same calls", told, session.name)


@law("rests", "Maintenance comes to rest when nothing is new", "cases: maintenance that never ends")
async def _rests(bench: Bench) -> None:
    for session in await bench.histories():
        found = await session.maintain("turn")
        told = f"it rewrote {found.rewritten} more"
        expect(not found.rewritten, f"no more rewriting after {ROUNDS} rounds", told, session.name)


@law("unchanged", "Maintenance that says nothing changed changed nothing", "contract: Maintained.changed")
async def _unchanged(bench: Bench) -> None:
    for session in await bench.histories():
        before = await session.answers()
        found = await session.maintain("compaction")
        if found == Maintained(reason=found.reason):
            same = await session.answers() == before
            expect(same, "the same answers", "they changed", session.name)


@law("after", "Behind maintenance the session is answered as before", "design §12.2")
async def _after(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="20 turns")
    await session.live(long_session(20))
    for moment in MOMENTS:
        await session.maintain(moment)
        answer = await session.assemble()
        told = missing_request(answer, session.view()) or unpaired(answer.messages)
        expect(not told, "the request, and pairs", told, session.name)


@law("turn", "`after_turn` takes every end of a turn and answers nothing", "contract: AfterTurns")
async def _turn(bench: Bench) -> None:
    for session in await bench.histories():
        for stop in STOPS:
            await session.after_turn(tuple(session.log[-2:]), stop)
        await session.after_turn(())


def _calls(message: object) -> tuple[str, ...]:
    if isinstance(message, ToolResult):
        return (message.call_id,)
    if isinstance(message, Assistant):
        return tuple(block.id for block in message.content if isinstance(block, ToolCall))
    return ()
