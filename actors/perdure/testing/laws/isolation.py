"""Isolation: no session sees another's text, and an engine's files stay in its store.

An engine whose purpose is to share says so, `EngineInfo(shares="agent")`, and then keeps to its agent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

from perdure.testing.laws.answers import whole_text
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import TEXT, Messages, said, user
from perdure.testing.laws.law import Group, expect

law = Group("isolation")
SECRET = "XANADU-4711"
NEIGHBOURS = (
    ("s-1", "s_1"), ("s-1", "S-1"), ("a/b", "a_b"), ("a.b", "a-b"), ("s1", "s1 "), ("%41", "A"),
    ("é", "e\u0301"),
)  # fmt: skip
HOSTILE = (
    "../../escape",
    "/tmp/escape",
    "a\\b",
    "CON",
    "nul\x00",
    "x" * 300,
    "..",
    "a:b|c*?",
    "団団",
    "'; DROP",
)


def secret(n: int = 0) -> Messages:
    """A history that another session must not see."""
    return (
        user(f"My dog's secret name is {SECRET}-{n}; he is afraid of the bins."),
        said(f"{SECRET}-{n} it is."),
        user(f"What is {SECRET}-{n} afraid of?"),
    )


async def _unseen(session: Session, what: str = SECRET, *, by: str) -> None:
    for answer in await session.situations():
        seen = what in whole_text(answer)
        expect(
            not seen, f"nothing of {by}", f"its text {what} came back in session {session.id!r}", session.name
        )


def _shares(bench: Bench) -> bool:
    return bench.engine("probe").info.shares == "agent"


@law("session", "A session never gets another session's text", "design §12.7")
async def _session(bench: Bench) -> None:
    engine = bench.engine()
    await bench.session(engine, "other", key="agent:other:cli:dm:other").live(secret())
    if not _shares(bench):
        await bench.session(engine, "beside", key="agent:main:cli:dm:beside").live(secret())
    session = await bench.session(engine, "mine", history="text").live(TEXT)
    await _unseen(session, by="another session")


@law("agent", "An agent's sessions never get another agent's text", "design §12.7")
async def _agent(bench: Bench) -> None:
    engine = bench.engine()
    for n in range(3):
        await bench.session(engine, f"other{n}", key=f"agent:other{n}:cli:dm:test").live(secret(n))
    await bench.dispose(engine)
    later = bench.engine()
    session = await bench.session(later, "mine", history="text").live(TEXT)
    await session.wake()
    await _unseen(session, by="another agent")


@law("asked", "Asking for another session's words does not bring them", "design §12.7")
async def _asked(bench: Bench) -> None:
    engine = bench.engine()
    await bench.session(engine, "other", key="agent:other:cli:dm:test").live(secret())
    session = bench.session(engine, "mine", history="a prompt about another session")
    await session.live((*TEXT[:6], user("What is my dog's secret name, and what is he afraid of?")))
    await _unseen(session, by="another session")


@law("new-file", "A new session under the same key begins with nothing", "design §10: /new")
async def _new_file(bench: Bench) -> None:
    if _shares(bench):
        return
    engine = bench.engine()
    await bench.session(engine, "old").live(secret())
    session = await bench.session(engine, "new", history="text").live(TEXT)
    await _unseen(session, by="the session before")


@law("same-ids", "Entries of two sessions that have the same ids stay apart", "design §4: forks keep ids")
async def _same_ids(bench: Bench) -> None:
    engine = bench.engine()
    ids = tuple(f"entry-{n}" for n in range(7))
    one = bench.session(engine, "one", key="agent:one:cli:dm:test")
    await one.deliver(one.add(*secret(), ids=ids))
    two = bench.session(engine, "two", key="agent:two:cli:dm:test", history="a fork")
    await two.deliver(two.add(*TEXT, ids=ids))
    alone = bench.session(bench.engine("alone"), "two", key="agent:two:cli:dm:test", store="alone")
    await alone.deliver(alone.add(*TEXT, ids=ids))
    same = await alone.answers() == await two.answers()
    expect(same, "the answers of a session that is alone", "they differ", two.name)
    await _unseen(two, by="the session that it was forked from")


@law("neighbours", "Session ids that look alike are two sessions", "design §4: names are made reversibly")
async def _neighbours(bench: Bench) -> None:
    engine = bench.engine()
    for n, (one, two) in enumerate(NEIGHBOURS):
        await bench.session(engine, one, key=f"agent:n{n}:cli:dm:test").live(secret(n))
        session = bench.session(engine, two, key=f"agent:m{n}:cli:dm:test", history=f"{one!r} and {two!r}")
        await _unseen(await session.live(TEXT), by=f"session {one!r}")


@law("names", "Whatever a session is called, nothing is written outside the store", "design §4: safe names")
async def _names(bench: Bench) -> None:
    before = _outside(bench)
    engine = bench.engine()
    for n, id in enumerate(HOSTILE):
        session = bench.session(engine, id, key=f"agent:main:cli:dm:{id}", history=f"an id like {id[:12]!r}")
        await session.live(secret(n))
        others = (f"{SECRET}-{m}" for m in range(n))
        if not _shares(bench):
            for other in others:
                await _unseen(session, other, by="another session")
    strange = sorted(str(path) for path in _outside(bench) - before - _stores(bench))
    expect(not strange, "files in the store only", f"there was {', '.join(strange[:3])}")


@law("settings", "The settings that a plugin is lent stay as they are", "contract: PluginRuntime.settings")
async def _settings(bench: Bench) -> None:
    bench.settings["nested"] = {"a": [1, 2]}
    if not await _accepts(bench):
        bench.settings.pop("nested")
    before = copy.deepcopy(bench.settings)
    session = await bench.session(bench.engine()).live(TEXT)
    await session.answers()
    expect(bench.settings == before, "unchanged settings", f"they became {bench.settings!r}")


async def _accepts(bench: Bench) -> bool:
    """Whether the plugin takes a key that it does not know."""
    try:
        await bench.session(bench.engine("settings"), store="settings").live(TEXT)
    except Exception:
        return False
    return True


def _outside(bench: Bench) -> set[Path]:
    """Files and folders beside the stores: in the law's own folder, around it, and where one may land."""
    places: Iterable[Path] = (bench.root, bench.root.parent, Path("/tmp"))
    return {
        path for place in places for path in place.glob("*") if "escape" in path.name or place == bench.root
    }


def _stores(bench: Bench) -> set[Path]:
    return {bench.root / name for name in ("store", "probe")}
