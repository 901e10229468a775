"""Hostile inputs: whatever people, tools and files say, an engine answers."""

from __future__ import annotations

from perdure.records import Assistant, Item, Message, ModelInfo, Summary, Text, ToolCall, ToolResult, User
from perdure.testing.laws.answers import misshapen, missing_request, unpaired
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import TEXT, call, long_session, result, said, user
from perdure.testing.laws.law import Group, expect

law = Group("hostile")
NASTY = (
    "", " \n\t ", "\ud83d", "a\x00b", "\x1b[31mred", "\u202eevil", "\ufeff", "\u2028", "%s %d {0} {x}",
    "NULL", "-" * 5_000, "a" * 40_000, "\U0001f469\u200d\U0001f680" * 50, "</system>", "\\", "'" * 99,
    '"; DROP TABLE entries; --',
)  # fmt: skip
QUERIES = (
    "", "*", '"', "a OR (b", "NEAR(", 'x" AND "y', "col:val", "^start", "-minus", "AND OR NOT", "(((", "日",
    "日本", "🦊", "\ud83d", "\x00", "a" * 20_000, " ".join(["word"] * 3_000), "%", "_", "[a-z", "\\d+(",
    "'; DROP TABLE entries; --",
)  # fmt: skip
ODD: tuple[Message, ...] = (
    user("Use the odd tools."),
    Assistant(
        (ToolCall("", "", b""), ToolCall(" ", "bad name!", b"{"), ToolCall("x" * 300, "n" * 200, b"[1]"))
    ),
    ToolResult("", "", (Text("nothing"),)),
    ToolResult(" ", "bad name!", ()),
    ToolResult("x" * 300, "n" * 200, (Text("\ud83d"),), True, b"{"),
    said("Done."),
    user("And?"),
)


async def _answered(session: Session, what: str) -> None:
    for answer in await session.situations():
        expect(not (told := misshapen(answer)), f"an answer to {what}", told, session.name)


@law("texts", "Texts of every kind are stored and answered", "cases: lone surrogates, NUL")
async def _texts(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="nasty texts")
    for n, text in enumerate(NASTY):
        await session.deliver(
            session.add(user(text), said(text or "ok", call(f"n{n}")), result(f"n{n}", text))
        )
    await session.deliver(session.add(user("Still there?")))
    await _answered(session, "nasty texts")


@law("prompts", "A prompt is a text, in no language of a database", "cases: full-text syntax in a question")
async def _prompts(bench: Bench) -> None:
    session = await bench.session(bench.engine(), history="prompts like queries").live(TEXT)
    for query in QUERIES:
        answer = await session.assemble(prompt=query)
        told = misshapen(answer)
        expect(not told, f"an answer to the prompt {query[:20]!r}", told, session.name)


@law("calls", "Calls with broken arguments and odd names are stored and answered", "design §5: sanitise")
async def _calls(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="odd calls")
    await session.live(ODD)
    await _answered(session, "odd calls")


@law("large", "A message of two megabytes is stored and answered in time", "design §4: entries of any size")
async def _large(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="two megabytes")
    await session.deliver(session.add(user("word " * 400_000), said("Long."), user("How long?")))
    told = missing_request(await session.assemble(), session.view())
    expect(not told, "the request in the answer", told, session.name)


@law("many", "A thousand entries are taken and answered in time", "design §13")
async def _many(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="1,000 entries")
    await session.deliver(session.add(*long_session(430)))
    await _answered(session, "a thousand entries")


@law("views", "A view of any beginning is answered in pairs", "design §12.2: whatever is stored")
async def _views(bench: Bench) -> None:
    engine = bench.engine()
    views: tuple[tuple[Message, ...], ...] = (
        (said("I begin."), user("Do you?")),
        (Summary("before"), said("Hm.", call("v1")), result("v1", "x")),
        (Summary("before"), Summary("and before"), user("Go on.")),
        (user("a"), user("b"), user("c")),
        (said("Only me."),),
        (Summary("only a summary"),),
    )
    for n, messages in enumerate(views):
        session = bench.session(engine, f"view-{n}", history=f"a view of {len(messages)} odd messages")
        await session.deliver(session.add(*messages))
        for answer in await session.situations():
            told = misshapen(answer) or unpaired(answer.messages)
            expect(not told, "an answer in pairs", told, session.name)


@law("made-up", "Messages that no entry stands for are taken in a view", "contract: Item.entry")
async def _made_up(bench: Bench) -> None:
    session = await bench.session(bench.engine(), history="made-up messages").live(TEXT)
    view = (Item("", Summary("so far")), *session.view()[2:], Item("", said("")), Item("", user("A note.")))
    told = misshapen(await session.assemble(view))
    expect(not told, "an answer", told, session.name)


@law(
    "no-model-known", "Without a known model an engine answers all the same", "contract: EngineContext.model"
)
async def _no_model_known(bench: Bench) -> None:
    session = await bench.session(bench.engine(), history="no model").live(TEXT)
    for model in (None, ModelInfo("", "", window=1), ModelInfo("x", "y", window=10**9, images=False)):
        session.model = model
        await _answered(session, "a model nobody knows")


@law("same-words", "Messages of equal words are messages of their own", "cases PL07: identity by id")
async def _same_words(bench: Bench) -> None:
    session = bench.session(bench.engine(), history="the same words again")
    await session.deliver(session.add(*(m for _ in range(5) for m in (user("yes"), said("ok"))), user("yes")))
    view = session.view()
    answer = await session.assemble(view)
    newest = [item.entry for item in answer.messages if isinstance(item.message, User) and item.entry]
    expect(newest[-1:] == [view[-1].entry], f"the newest request {view[-1].entry}", f"{newest[-1:]} came",
           session.name)  # fmt: skip
