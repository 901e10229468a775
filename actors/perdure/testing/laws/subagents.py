"""Subagents: a spawn is prepared and taken back; an end is heard, whatever came before."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import get_args

from perdure.contracts import SpawnEnd, SpawnMode
from perdure.testing.laws.answers import missing_request, whole_text
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import user
from perdure.testing.laws.isolation import SECRET, secret
from perdure.testing.laws.law import Group, expect

law = Group("subagents")
MODES: tuple[SpawnMode, ...] = get_args(SpawnMode)
ENDS: tuple[SpawnEnd, ...] = get_args(SpawnEnd)
TASK = (user("Count the boxes."),)


async def _family(bench: Bench, n: int = 0) -> tuple[Session, Session]:
    engine = bench.engine(f"family{n}")
    parent = bench.session(engine, "parent", store=f"family{n}", history="a parent and its child")
    await parent.live(secret())
    key = f"agent:main:subagent:{n}"
    return parent, bench.session(engine, f"child-{n}", key=key, store=f"family{n}", history=parent.name)


async def _taken_back(back: object) -> None:
    if back is None:
        return
    expect(callable(back), "a function that takes it back", f"a {type(back).__name__} came")
    found = back() if callable(back) else None
    expect(inspect.isawaitable(found), "an async function", f"it answered {type(found).__name__}")
    if isinstance(found, Awaitable):
        await found


@law("prepares", "A spawn is answered with an async rollback, or nothing", "contract: PreparesSpawns")
async def _prepares(bench: Bench) -> None:
    for n, mode in enumerate(MODES):
        parent, child = await _family(bench, n)
        await _taken_back(await parent.spawn(child, mode))


@law("rollback", "A spawn that is taken back leaves nothing", "contract: the answer takes it back")
async def _rollback(bench: Bench) -> None:
    for n, mode in enumerate(MODES):
        parent, child = await _family(bench, n)
        before = await parent.answers()
        await _taken_back(await parent.spawn(child, mode))
        expect(await parent.answers() == before, "the parent as before", "its answers changed", parent.name)
        await child.live(TASK)
        seen = any(SECRET in whole_text(answer) for answer in await child.situations())
        expect(
            not seen, "nothing of the parent in a child that never began", "its text was there", parent.name
        )


@law("twice", "A rollback that comes twice does no harm", "design §7: at least once")
async def _twice(bench: Bench) -> None:
    parent, child = await _family(bench)
    before = await parent.answers()
    back = await parent.spawn(child, "forked")
    for _ in range(2):
        await _taken_back(back)
    expect(await parent.answers() == before, "the parent as before", "its answers changed", parent.name)


@law("isolated", "An isolated child gets nothing of its parent", "contract: SpawnMode")
async def _isolated(bench: Bench) -> None:
    parent, child = await _family(bench)
    if parent.engine.info.shares == "agent":
        return
    await parent.spawn(child, "isolated")
    await child.live(TASK)
    for answer in await child.situations():
        expect(SECRET not in whole_text(answer), "nothing of the parent", "its text was there", parent.name)


@law("begins", "A prepared child is answered with its task", "contract: PreparesSpawns")
async def _begins(bench: Bench) -> None:
    for n, mode in enumerate(MODES):
        parent, child = await _family(bench, n)
        await parent.spawn(child, mode)
        await child.live(TASK)
        told = missing_request(await child.assemble(), child.view())
        expect(not told, f"the task of a child that is {mode}", told, parent.name)


@law(
    "ends",
    "Every end of a child is heard, of one that nobody knows and a second time, too",
    "contract: EndsSubagents",
)
async def _ends(bench: Bench) -> None:
    parent, child = await _family(bench)
    await parent.spawn(child, "isolated")
    for end in ENDS:
        await parent.ended(child.key, end)
        await parent.ended(child.key, end)
        await parent.ended("agent:main:subagent:unknown", end)
    told = missing_request(await parent.assemble(), parent.view())
    expect(not told, "the parent to go on", told, parent.name)


@law("child-alone", "A child's end takes nothing from its parent", "contract: EndsSubagents")
async def _child_alone(bench: Bench) -> None:
    parent, child = await _family(bench)
    before = [answer.messages for answer in await parent.answers()]
    await parent.spawn(child, "isolated")
    await child.live(TASK)
    await parent.ended(child.key, "deleted")
    after = [answer.messages for answer in await parent.answers()]
    expect(after == before, "the parent's messages as before", "they changed", parent.name)
