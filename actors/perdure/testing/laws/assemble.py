"""Assemble: an answer of the contract's type, about this session, that holds what was asked."""

from __future__ import annotations

import copy

from perdure.records import Image, Thinking
from perdure.testing.laws.answers import (
    altered,
    changed_kind,
    misshapen,
    missing_request,
    strange_ids,
    whole_text,
)
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import TEXT, long_session, user
from perdure.testing.laws.law import Group, expect

law = Group("assemble")


@law("answers", "`assemble` answers an Assembled of Items, text and a count", "contract: Assembled")
async def _answers(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            expect(not (told := misshapen(answer)), "a well-formed Assembled", told, session.name)


@law("request", "What the user asked is in the answer", "design §6: the running turn's message is a pin")
async def _request(bench: Bench) -> None:
    for session in await bench.histories():
        for view in (session.view(), session.covered()):
            told = missing_request(await session.assemble(view), view)
            expect(not told, "the request in the answer", told, session.name)


@law("view-kept", "The view that is handed over stays as it is", "contract: frozen records")
async def _view_kept(bench: Bench) -> None:
    for session in await bench.histories():
        view = session.view()
        before = copy.deepcopy(view)
        await session.assemble(view)
        await session.assemble(view, 700)
        expect(view == before, "the view unchanged", "a message was edited in place", session.name)


@law("known-ids", "Every entry it names is the session's, and none comes twice", "design §12.3")
async def _known_ids(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            told = strange_ids(answer.messages, tuple(session.log))
            expect(not told, 'known ids, each once, or ""', told, session.name)


@law(
    "kind",
    "A message under an entry's id is of that entry's kind",
    "design §12.3: the ledger tells the truth",
)
async def _kind(bench: Bench) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            told = changed_kind(answer.messages, tuple(session.log))
            expect(not told, "made-up messages to have no entry's id", told, session.name)


@law("empty", "A view of nothing is answered", "case: a session's first moment")
async def _empty(bench: Bench) -> None:
    answer = await bench.session(bench.engine()).assemble(())
    expect(not (told := misshapen(answer)), "a well-formed Assembled", told)


@law("first", "The first message of a session is answered before anything was delivered", "design §7: ingest")
async def _first(bench: Bench) -> None:
    session = bench.session(bench.engine())
    session.add(user("This is the very first question."))
    told = missing_request(await session.assemble(), session.view())
    expect(not told, "the first message in the answer", told)


@law("behind", "Entries of the view count though their delivery is still on its way", "design §7: ingest")
async def _behind(bench: Bench) -> None:
    for session in await bench.histories():
        session.add(*TEXT[:2], user("This is asked before it was delivered."))
        told = missing_request(await session.assemble(), session.view())
        expect(not told, "the message that is not yet delivered in the answer", told, session.name)


@law("pictures", "A picture is sent as it is, or not at all", "provider rule: images")
async def _pictures(bench: Bench) -> None:
    await _unaltered(bench, Image)


@law("thoughts", "A signed thought is sent as it is, or not at all", "provider rule: thinking")
async def _thoughts(bench: Bench) -> None:
    await _unaltered(bench, Thinking)


async def _unaltered(bench: Bench, kind: type[Image] | type[Thinking]) -> None:
    for session in await bench.histories():
        for answer in await session.situations():
            told = altered(answer.messages, tuple(session.log), kind)
            expect(not told, f"each {kind.__name__} unchanged", told, session.name)


@law("text", "Text is not cut inside a character", "design §5: seal")
async def _text(bench: Bench) -> None:
    for session in await bench.histories():
        session.add(user("🦊" * 3_000 + " and " + "漢字" * 3_000))
        for answer in await session.situations():
            whole = whole_text(answer)
            half = sum("\ud800" <= c <= "\udfff" for c in whole)
            expect(
                not half and "\ufffd" not in whole, "whole characters", "one was cut in half", session.name
            )


@law("often", "An answer does not depend on how often it is asked for", "design §12.4")
async def _often(bench: Bench) -> None:
    asked = await bench.session(bench.engine("asked"), store="asked").live(TEXT)
    for _ in range(5):
        await asked.assemble()
    quiet = await bench.session(bench.engine("quiet"), store="quiet").live(TEXT)
    for session in (asked, quiet):
        await session.deliver(session.add(*TEXT[:3]))
    same = await asked.answers() == await quiet.answers()
    expect(same, "the same answers as of an engine that was asked less often", "they differ", "text")


@law("long", "A long session is answered", "design §1: sessions last for weeks")
async def _long(bench: Bench) -> None:
    session: Session = bench.session(bench.engine(), history="300 turns")
    await session.deliver(session.add(*long_session(300)))
    for answer in await session.situations():
        told = misshapen(answer) or missing_request(answer, session.view())
        expect(not told, "a well-formed answer with the request in it", told, session.name)
