"""Rules of the graph that hold whatever comes: settling, names, isolation, merges and their undoing."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_memories import DAY, Kept
from perdure.plugins.memories.graph import names
from perdure.plugins.memories.graph.memory import GraphMemory
from perdure.plugins.memories.graph.settling import Statement, settle
from perdure.plugins.memories.trust import rank

STATEMENTS = st.lists(
    st.builds(
        Statement,
        id=st.integers(),
        target=st.integers(0, 3),
        start=st.integers(0, 6),
        recorded=st.integers(0, 3),
        trust=st.sampled_from(["owner", "agent", "system", "untrusted"]),
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)


@given(STATEMENTS, st.randoms(use_true_random=False))
def test_settling_depends_on_what_is_told_and_not_on_the_order(told: list[Statement], chance: Any) -> None:
    shuffled = list(told)
    chance.shuffle(shuffled)
    assert settle(told) == settle(shuffled)


@given(STATEMENTS)
def test_at_no_moment_two_targets_hold_that_are_trusted_alike(told: list[Statement]) -> None:
    ends = settle(told)
    for moment in range(8):
        holding: dict[int, set[int]] = {}
        for one in told:
            end = ends[one.id]
            if one.start <= moment and (end is None or end.at > moment):
                holding.setdefault(rank(one.trust), set()).add(one.target)
        assert all(len(targets) == 1 for targets in holding.values())


@given(STATEMENTS)
def test_nothing_is_ended_by_what_is_trusted_less_or_came_before(told: list[Statement]) -> None:
    by_id = {one.id: one for one in told}
    for id, end in settle(told).items():
        if end is not None:
            one, by = by_id[id], by_id[end.by]
            assert rank(by.trust) >= rank(one.trust)
            assert by.target != one.target
            assert (by.start, by.recorded, by.id) > (one.start, one.recorded, one.id)
            assert end.at == by.start


@given(st.text(max_size=60))
def test_a_name_has_one_key_however_often_it_is_made(name: str) -> None:
    made = names.key(name)
    assert names.key(made) == made
    assert names.key(f"  {name} ") == made
    assert bool(made) == bool("".join(name.split())) or "\ud800" > name > ""


@given(st.sampled_from(["C", "C++", "C#", "1.2", "12", "1.2.3", "A/B", "AB", "R&D"]), st.data())
def test_signs_that_tell_names_apart_do(one: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(["C", "C++", "C#", "1.2", "12", "1.2.3", "A/B", "AB", "R&D"]))
    assert (names.key(one) == names.key(other)) == (one == other)


# --- one host, several agents ---------------------------------------------------------------------

AGENTS = ("ada", "ben", "cyd")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(AGENTS),
        st.sampled_from(["relate", "entity", "query", "tidy", "forget", "undo", "recall"]),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    max_size=30,
)


def session(agent: str) -> str:
    return f"agent:{agent}:cli:dm:x"


def step(kept: Kept, agent: str, what: str, one: int, other: int) -> str:
    """One call with names that carry their agent; e1 … and r1 … are references that others have."""
    name, second = (f"canary{agent}{n}" for n in (one, other))
    if what == "relate":
        return kept.call("memory_relate", session(agent), source=name, relation="WorksAt", target=second)
    if what == "entity":
        return kept.call("memory_entity", session(agent), name=name, aliases=[second])
    if what == "query":
        return kept.call("memory_query", session(agent), source=f"e{one + 1}", hops=2, past=True) + kept.call(
            "memory_query", session(agent), past=True, limit=100
        )
    if what == "tidy":
        return kept.call("memory_tidy", session(agent))
    if what == "undo":
        return kept.call("memory_tidy", session(agent), undo=one + 1)
    if what == "forget":
        return repr(kept.forget(f"r{one + 1}", session(agent)))
    return repr(kept.recall(" ".join(f"canary{who}{one}" for who in AGENTS), session=session(agent)))


def all_of(kept: Kept, agent: str) -> str:
    return kept.call("memory_query", session(agent), past=True, limit=100)


@settings(max_examples=15)
@given(STEPS)
def test_no_agent_sees_or_changes_what_is_anothers(steps: list[tuple[str, str, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        kept = Kept(GraphMemory, Path(folder))
        for agent, what, one, other in steps:
            others = [who for who in AGENTS if who != agent]
            before = [kept.recall(f"canary{who}{one}", session=session(who)) for who in others]
            said = step(kept, agent, what, one, other)
            assert not any(f"canary{who}" in said for who in others)
            assert before == [kept.recall(f"canary{who}{one}", session=session(who)) for who in others]
        kept.close()


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), max_size=10),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4),
    st.randoms(use_true_random=False),
)
def test_taking_all_merges_back_gives_the_graph_that_was(
    told: list[tuple[int, int, int]], also: list[tuple[int, int]], chance: Any
) -> None:
    with TemporaryDirectory() as folder:
        kept = Kept(GraphMemory, Path(folder))
        for source, target, days in told:
            kept.runtime.now += days * DAY
            kept.call("memory_relate", source=f"N{source}", relation="WorksAt", target=f"N{target}")
        for one, other in also:
            kept.call("memory_entity", name=f"N{one}", aliases=[f"N{other}"])
        before = holding(kept)
        merged = [*kept.details("memory_tidy")["merges"], *kept.details("memory_tidy")["merges"]]
        chance.shuffle(merged)
        for merge in merged:
            assert not kept.call("memory_tidy", undo=merge).startswith("ERROR")
        assert holding(kept) == before
        kept.close()


def holding(kept: Kept) -> list[list[str]]:
    """Which relations each entity has, by reference."""
    asked = [kept.details("memory_query", source=f"e{n}", past=True, limit=100) for n in range(1, 6)]
    return [sorted(one["found"]) for one in asked]
