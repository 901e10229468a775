"""Compaction: delegated as it is, or done; a success that is told is one."""

from __future__ import annotations

from perdure.contracts import EngineCompaction
from perdure.errors import PerdureError
from perdure.testing.laws.answers import misshapen, missing_request, strange_ids
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised, Session
from perdure.testing.laws.histories import TEXT, long_session, user
from perdure.testing.laws.law import Group, expect

law = Group("compaction")
DONE = EngineCompaction(True, True, summary="so far", tokens_before=9_000, tokens_after=2_000)
REFUSED = EngineCompaction(False, False, reason="the runtime could not")


class Runtime:
    """The runtime's own compaction: counts its calls."""

    def __init__(self, answer: EngineCompaction = DONE, error: Exception | None = None) -> None:
        self.answer, self.error, self.calls = answer, error, 0

    async def __call__(self) -> EngineCompaction:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.answer


async def _long(bench: Bench, turns: int = 150) -> Session:
    session = bench.session(bench.engine(), history=f"{turns} turns")
    await session.deliver(session.add(*long_session(turns)))
    await session.assemble()
    return session


@law("answers", "`compact` answers an EngineCompaction that agrees with itself", "contract: EngineCompaction")
async def _answers(bench: Bench) -> None:
    for session in await bench.histories():
        found = await session.compact(Runtime())
        expect(found.ok or not found.compacted, "`ok` where it compacted", "it was not", session.name)
        numbers = (found.tokens_before, found.tokens_after)
        expect(min(numbers) >= 0, "sizes of 0 or more", f"they are {numbers}", session.name)


@law(
    "delegates",
    "An engine that does not own compaction leaves it to the runtime",
    "contract: ContextEngine.compact",
)
async def _delegates(bench: Bench) -> None:
    session = await _long(bench)
    if session.engine.info.owns_compaction:
        return
    runtime = Runtime()
    found = await session.compact(runtime)
    expect(runtime.calls == 1, "one call of `delegate`", f"there were {runtime.calls}", session.name)
    expect(found.compacted and found.ok, "the runtime's success to be told", f"it told {found}", session.name)


@law(
    "refused",
    "A compaction that the runtime could not do is not told as done",
    "cases: compacted, nothing changed",
)
async def _refused(bench: Bench) -> None:
    session = await _long(bench)
    runtime = Runtime(REFUSED)
    before = session.size(await session.assemble())
    found = await session.compact(runtime)
    if runtime.calls and found.compacted:
        shrank = session.size(await session.assemble()) < before
        expect(shrank, "no success where the runtime refused", "it told `compacted`", session.name)


@law(
    "failed",
    "What the runtime's compaction raises is passed on or told as not done",
    "design §6: typed errors",
)
async def _failed(bench: Bench) -> None:
    session = await _long(bench)
    runtime = Runtime(error=PerdureError("the model does not answer"))
    before = session.size(await session.assemble())
    try:
        found = await session.compact(runtime)
    except Raised as raised:
        typed = isinstance(raised.error, PerdureError)
        expect(typed, "the runtime's own error", f"{type(raised.error).__name__} came", session.name)
        return
    if runtime.calls and found.compacted:
        shrank = session.size(await session.assemble()) < before
        expect(shrank, "no success where the runtime raised", "it told `compacted`", session.name)


@law("shrinks", "An engine that compacted by itself sends less than before", "design §12.5")
async def _shrinks(bench: Bench) -> None:
    session, runtime = await _long(bench), Runtime()
    before = session.size(await session.assemble())
    found = await session.compact(runtime)
    if found.compacted and not runtime.calls:  # what the runtime does shows in the file, not here
        after = session.size(await session.assemble())
        expect(after < before, f"less than {before:,} tokens", f"it sends {after:,}", session.name)


@law("numbers", "The sizes it tells shrink where it compacted", "design §12.5")
async def _numbers(bench: Bench) -> None:
    session = await _long(bench)
    found = await session.compact(Runtime())
    if found.compacted and found.tokens_before and found.tokens_after:
        smaller = found.tokens_after < found.tokens_before
        expect(smaller, "fewer tokens after than before",
               f"{found.tokens_before:,} became {found.tokens_after:,}", session.name)  # fmt: skip


@law(
    "known-id", "`first_kept` is an entry of the session, or nothing", "contract: EngineCompaction.first_kept"
)
async def _known_id(bench: Bench) -> None:
    session = await _long(bench)
    found = await session.compact(Runtime())
    known = {"", *(item.entry for item in session.log)}
    told = f"it was {found.first_kept!r}"
    expect(found.first_kept in known, "an entry of the session", told, session.name)


@law("little", "Where there is nothing to compact, nothing breaks", "cases: nothing to compact wedges")
async def _little(bench: Bench) -> None:
    engine = bench.engine()
    for n, messages in enumerate(((), TEXT[:1])):
        session = bench.session(engine, f"little-{n}", history=f"{len(messages)} messages")
        await session.deliver(session.add(*messages))
        for force in (False, True):
            await session.compact(Runtime(), force=force)
        told = missing_request(await session.assemble(), session.view())
        expect(not told, "the message in the answer", told, session.name)


@law("again", "Compacting again and again makes nothing larger", "design §12.5")
async def _again(bench: Bench) -> None:
    session = await _long(bench)
    sizes = []
    for _ in range(4):
        await session.compact(Runtime())
        sizes.append(session.size(await session.assemble()))
    expect(sizes == sorted(sizes, reverse=True), "sizes that never grow", f"they were {sizes}", session.name)


@law("request", "What the user asked is still there behind a compaction", "design §6: pins")
async def _request(bench: Bench) -> None:
    for session in await bench.histories():
        await session.compact(Runtime())
        answer = await session.assemble()
        told = misshapen(answer) or missing_request(answer, session.view())
        told = told or strange_ids(answer.messages, tuple(session.log))
        expect(not told, "a well-formed answer with the request in it", told, session.name)


@law(
    "no-model",
    "Without a model compaction says so, and the session goes on",
    "design §6: an unreachable model",
)
async def _no_model(bench: Bench) -> None:
    session = await _long(bench)
    bench.no_model = True
    try:
        await session.compact(Runtime())
    except Raised as raised:
        typed = isinstance(raised.error, PerdureError)
        expect(typed, "an answer or a PerdureError", raised.happened, session.name)
    await session.deliver(session.add(user("Are you still there?")))
    told = missing_request(await session.assemble(), session.view())
    expect(not told, "the next message to be answered", told, session.name)
