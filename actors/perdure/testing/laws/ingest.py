"""Ingest: committed entries are taken as they are, whatever they hold."""

from __future__ import annotations

import copy

from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from perdure.testing.laws.answers import missing_request
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.histories import HEARTBEATS, HISTORIES, PIXEL, TEXT, user
from perdure.testing.laws.law import Group, expect

law = Group("ingest")
EVERY_KIND = (
    User((Text("hello"), Image(PIXEL, "image/png")), 1, Provenance("inter_session", "s", None, "tool")),
    Assistant((Thinking("hm", "sig"), Thinking("", "opaque", redacted=True), ToolCall("k1", "read"))),
    ToolResult("k1", "read", (Image(PIXEL, "image/png"), Opaque("video", b'{"a": 1}')), True, b"{}"),
    Summary("before"),
    BranchSummary("beside", "x"),
    Bash("ls", "", None, cancelled=True),
    Custom("note", (Text("a note"),), display=False),
    User(()),
    Assistant((), stop="length"),
)


@law("answers", "`ingest` answers with a bool", "contract: ContextEngine.ingest")
async def _answers(bench: Bench) -> None:
    session = bench.session(bench.engine())
    for item in session.add(*TEXT):
        await session.typed(bool, "ingest", session.context(0), item)


@law("counts", "`ingest_batch` answers how many of its entries it stored", "contract: IngestsBatches")
async def _counts(bench: Bench) -> None:
    session = bench.session(bench.engine())
    if not session.has("ingest_batch"):
        return
    items = session.add(*TEXT)
    for part in (items, items, items[2:5]):
        count = await session.typed(int, "ingest_batch", session.context(0), part)
        expect(0 <= count <= len(part), f"a number from 0 to {len(part)}", f"it answered {count}")


@law("nothing", "A batch of nothing is nothing", "contract: IngestsBatches")
async def _nothing(bench: Bench) -> None:
    session = bench.session(bench.engine())
    if not session.has("ingest_batch"):
        return
    count = await session.typed(int, "ingest_batch", session.context(0), ())
    expect(count == 0, "0 for no entries", f"it answered {count}")


@law("every-kind", "Entries of every kind are taken", "design §4: types of entries")
async def _every_kind(bench: Bench) -> None:
    session = bench.session(bench.engine())
    for item in session.add(*EVERY_KIND):
        await session.deliver((item,))
    await session.deliver(session.add(*TEXT))
    answer = await session.assemble()
    told = missing_request(answer, session.view())
    expect(not told, "the newest request behind them to be answered", told)


@law("single", "Entries handed over one by one or as a batch make the same", "contract: IngestsBatches")
async def _single(bench: Bench) -> None:
    if not callable(getattr(bench.engine("probe"), "ingest_batch", None)):
        return
    for name, messages in HISTORIES.items():
        answers = []
        for single in (True, False):
            store = f"{name}-{single}"
            session = bench.session(bench.engine(store), store=store, history=name)
            await session.deliver(session.add(*messages), single=single)
            answers.append(await session.answers())
        expect(answers[0] == answers[1], "the same answers", "they differ", name)


@law("kept-as-is", "Entries that are handed over stay as they are", "contract: frozen records")
async def _kept_as_is(bench: Bench) -> None:
    for session in await bench.histories():
        items = session.add(*HISTORIES[session.name.partition(", ")[0]])
        before = copy.deepcopy(items)
        await session.deliver(items)
        expect(items == before, "the entries unchanged", "one was edited in place", session.name)


@law("newest", "The newest entry counts at once", "contract: before every model call")
async def _newest(bench: Bench) -> None:
    for session in await bench.histories():
        for n in range(3):
            await session.deliver(session.add(user(f"Something new, number {n}, is asked here.")))
            told = missing_request(await session.assemble(), session.view())
            expect(not told, "the message just delivered in the answer", told, session.name)


@law("heartbeat", "A heartbeat's turn is taken like any other", "contract: EngineContext.heartbeat")
async def _heartbeat(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="heartbeats")
    await session.turn(*HEARTBEATS[:2])
    await session.turn(*HEARTBEATS[2:4], heartbeat=True)
    await session.deliver(session.add(HEARTBEATS[4]))
    told = missing_request(await session.assemble(heartbeat=True), session.view())
    expect(not told, "the heartbeat's prompt in the answer", told, "heartbeats")
