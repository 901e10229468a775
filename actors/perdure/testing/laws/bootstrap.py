"""Bootstrap and rebuild: a restart, a kill, a lost store change nothing; the log is the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

from perdure.contracts import Assembled, Bootstrapped
from perdure.errors import PerdureError
from perdure.testing.laws.answers import misshapen, missing_request, unpaired
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Raised, Session
from perdure.testing.laws.histories import TEXT, said, user
from perdure.testing.laws.law import Group, expect

law = Group("bootstrap")
SAME, DIFFER = "the same answers as before", "they differ"
Answers = tuple[Assembled, ...]


async def _lived(bench: Bench, store: str = "store") -> tuple[list[Session], list[Answers]]:
    """Sessions of all histories on one store, and their answers; the engine is closed."""
    engine = bench.engine(store)
    sessions = list(await bench.histories(engine))
    answers = [await session.answers() for session in sessions]
    await bench.dispose(engine)
    return sessions, answers


async def _woken(bench: Bench, sessions: list[Session], store: str = "store") -> list[Session]:
    engine = bench.engine(store)
    woken = [bench.again(session, engine, store) for session in sessions]
    for session in woken:
        await session.wake()
    return woken


@law(
    "answers",
    "`bootstrap` answers a Bootstrapped whose cursor is an entry of the session",
    "contract: Bootstrapped",
)
async def _answers(bench: Bench) -> None:
    for session in await bench.histories():
        if not session.has("bootstrap"):
            return
        told = await session.typed(Bootstrapped, "bootstrap", session.context(0))
        known = {None, "", *(item.entry for item in session.log)}
        expect(told.cursor in known, "a cursor of the session", f"it was {told.cursor!r}", session.name)
        expect(told.imported >= 0, "a count of what was imported", f"it was {told.imported}", session.name)


@law("restart", "A restart changes no answer", "design §12.4")
async def _restart(bench: Bench) -> None:
    sessions, before = await _lived(bench)
    for session, expected in zip(await _woken(bench, sessions), before, strict=True):
        expect(await session.answers() == expected, SAME, DIFFER, session.name)


@law("killed", "A killed process changes no answer", "design §12.1, §12.4")
async def _killed(bench: Bench) -> None:
    engine = bench.engine()
    sessions = list(await bench.histories(engine))
    before = [await session.answers() for session in sessions]
    left = bench.crashed()
    for session, expected in zip(await _woken(bench, sessions, left), before, strict=True):
        expect(await session.answers() == expected, SAME, DIFFER, session.name)


@law("missed", "What was committed while the engine was away arrives", "cases PL09")
async def _missed(bench: Bench) -> None:
    sessions, _ = await _lived(bench)
    there = await bench.histories(bench.engine("there"))
    for session in there:
        await session.answers()
    news = (said("Yes."), user("What came while you were away?"), said("A parcel."), user("And then?"))
    for session in (*sessions, *there):
        session.add(*news)
    for session, other in zip(await _woken(bench, sessions), there, strict=True):
        await other.catch_up()
        same = await session.answers() == await other.answers()
        expect(same, "the answers of an engine that was there", DIFFER, session.name)


@law("deleted", "A store that was deleted is rebuilt from the session", "design §4: the log is the truth")
async def _deleted(bench: Bench) -> None:
    if bench.engine("probe").info.shares == "agent":
        return
    sessions, before = await _lived(bench)
    shutil.rmtree(bench.folder("store"))
    for session, expected in zip(await _woken(bench, sessions), before, strict=True):
        if _summarised(session, expected):
            continue
        same = await session.answers() == expected
        expect(same, "the same answers after the store was deleted", DIFFER, session.name)


@law("damaged", "A damaged store is rebuilt or refused, never believed", "design §8: faults of an engine")
async def _damaged(bench: Bench) -> None:
    sessions, _ = await _lived(bench)
    for path in bench.folder("store").rglob("*"):
        if path.is_file():
            _spoil(path)
    try:
        woken = await _woken(bench, sessions)
        for session in woken:
            for answer in await session.situations():
                told = (
                    misshapen(answer) or missing_request(answer, session.view()) or unpaired(answer.messages)
                )
                expect(not told, "a whole answer, or an error", told, session.name)
    except Raised as raised:
        clear = isinstance(raised.error, PerdureError | OSError) or bool(str(raised.error).strip())
        expect(clear, "an error that says what is wrong", raised.happened, raised.history)


@law("cut", "A store that was cut off in the middle of a write is rebuilt or refused", "design §12.1")
async def _cut(bench: Bench) -> None:
    sessions, _ = await _lived(bench)
    for path in bench.folder("store").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data[: max(0, len(data) - 7)])
    try:
        for session in await _woken(bench, sessions):
            told = missing_request(await session.assemble(), session.view())
            expect(not told, "the request in the answer, or an error", told, session.name)
    except Raised as raised:
        expect(
            bool(str(raised.error).strip()),
            "an error that says what is wrong",
            raised.happened,
            raised.history,
        )


@law(
    "late", "An engine that comes to a session later is as one that was there", "design §8: swap without loss"
)
async def _late(bench: Bench) -> None:
    sessions, before = await _lived(bench)
    engine = bench.engine("late")
    for session, expected in zip(sessions, before, strict=True):
        later = bench.again(session, engine, "late")
        later.cursor = ""
        if engine.info.shares == "agent" or _summarised(session, expected):
            continue
        await later.wake()
        same = await later.answers() == expected
        expect(same, "the answers of an engine that was there", DIFFER, session.name)


@law("before-any", "A session without a message is woken", "contract: Bootstraps")
async def _before_any(bench: Bench) -> None:
    session = bench.session(bench.engine())
    if session.has("bootstrap"):
        await session.typed(Bootstrapped, "bootstrap", session.context(0))
    await session.deliver(session.add(*TEXT))
    told = missing_request(await session.assemble(), session.view())
    expect(not told, "its first messages to be answered", told)


def _summarised(session: Session, answers: Answers) -> bool:
    """Whether an answer holds messages that the engine made: made anew, they may be cut elsewhere."""
    given = {*session.view(), *session.covered()}
    return any(not item.entry and item not in given for answer in answers for item in answer.messages)


def _spoil(path: Path) -> None:
    """The same number of other bytes."""
    path.write_bytes(b"\x00\xff{]" * (path.stat().st_size // 4 + 1))
