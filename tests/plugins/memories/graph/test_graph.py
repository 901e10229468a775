"""The graph as an agent uses it: what is told, asked, contradicted, used, merged and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers_memories import DAY, Kept
from perdure.errors import ConfigError
from perdure.plugins.memories.graph.memory import GraphMemory
from perdure.plugins.registry import Registry
from perdure.testing.lending import FakeRuntime


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(GraphMemory, tmp_path)
    yield made
    made.close()


def relate(kept: Kept, source: str, relation: str, target: str, **more: object) -> str:
    return kept.call("memory_relate", source=source, relation=relation, target=target, **more)


def test_the_registry_makes_it(tmp_path: Path) -> None:
    memory = Registry().memory("memory-graph", FakeRuntime(tmp_path))
    assert memory.info.id == "memory-graph"
    names = [tool.spec.name for tool in memory.tools()]
    assert names == ["memory_entity", "memory_relate", "memory_query", "memory_tidy"]
    assert all(name in memory.guidance() for name in ("memory_entity", "memory_relate", "memory_query"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"half_life": 1}, "memory-graph.half_life: unknown key"),
        ({"half_life_days": 0}, "memory-graph.half_life_days"),
        ({"functional": "WorksAt"}, "memory-graph.functional"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        GraphMemory(FakeRuntime(tmp_path, settings))


def test_patterns_find_with_any_end_left_out(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    relate(kept, "Ben", "works at", "ACME")
    relate(kept, "Ada", "uses", "Python")
    assert "Ada WorksAt Acme" in kept.call("memory_query", source="ada")
    both = kept.call("memory_query", relation="WORKS_AT", target="acme")
    assert "Ada WorksAt Acme" in both
    assert "Ben WorksAt Acme" in both
    assert "Python" not in both
    assert kept.call("memory_query", source="Ben", target="Python") == "Nothing that fits is remembered."
    assert kept.call("memory_query", source="Zoe") == "Nothing is remembered under the name 'Zoe'."


def test_what_is_told_survives_a_restart(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    kept.again()
    assert "Ada WorksAt Acme" in kept.call("memory_query", source="Ada")


def test_kinds_come_from_the_relation_until_somebody_tells_them(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    relate(kept, "Acme", "RelatedTo", "Rust")
    assert "Ada (e1, Person)" in relate(kept, "Ada", "RelatedTo", "Rust")
    assert "Rust (Tool)" in kept.call("memory_entity", name="rust", kind="tool")
    assert "Rust (e3, Tool)" in relate(kept, "Ada", "Uses", "Rust")


def test_one_name_of_two_kinds_is_asked_back_and_resolved_by_reference(kept: Kept) -> None:
    kept.call("memory_entity", name="Mercury", kind="Project")
    kept.call("memory_entity", name="Mercury", kind="Location")
    said = relate(kept, "Ada", "KnowsAbout", "Mercury")
    assert said.startswith("ERROR memory_relate: 'Mercury' names several: e1 (Mercury, Project), e2")
    assert "Mercury (e2, Location)" in relate(kept, "Ada", "KnowsAbout", "e2")
    assert "Mercury (e1, Project)" in relate(kept, "Ada", "KnowsAbout", "Mercury", target_kind="Project")


# --- time and contradiction -----------------------------------------------------------------------


def test_a_functional_relation_that_changes_ends_the_older_one(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", valid_from="2024")
    said = relate(kept, "Ada", "WorksAt", "Beta", valid_from="2025-06")
    assert "Ended by it: r1 Ada WorksAt Acme, since 2024-01-01, until 2025-06-01." in said
    now = kept.call("memory_query", source="Ada")
    assert "Beta" in now
    assert "Acme" not in now
    assert "Acme" in kept.call("memory_query", source="Ada", as_of="2025-01")
    assert "Beta" not in kept.call("memory_query", source="Ada", as_of="2025-01")
    past = kept.call("memory_query", source="Ada", past=True).splitlines()
    assert "Beta" in past[0]
    assert "[agent, past, confidence 1] Ada WorksAt Acme" in past[1]


def test_an_older_fact_that_is_learnt_later_does_not_end_the_newer_one(kept: Kept) -> None:
    relate(kept, "Ada", "LivesIn", "Rome", valid_from="2025")
    assert "Ended" not in relate(kept, "Ada", "LivesIn", "Oslo", valid_from="2020")
    assert "Rome" in kept.call("memory_query", source="Ada")
    assert "Oslo" in kept.call("memory_query", source="Ada", as_of="2024-12-31")


def test_going_back_to_an_earlier_target_is_a_new_time(kept: Kept) -> None:
    for year, place in (("2020", "Rome"), ("2021", "Oslo"), ("2022", "Rome")):
        relate(kept, "Ada", "LivesIn", place, valid_from=year)
    assert "Oslo" in kept.call("memory_query", source="Ada", as_of="2021-05")
    assert "since 2022-01-01" in kept.call("memory_query", source="Ada")
    assert "Rome, since 2020-01-01, until 2021-01-01" in kept.call("memory_query", source="Ada", past=True)


def test_other_relations_may_have_many_targets(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Python")
    relate(kept, "Ada", "Uses", "Rust")
    said = kept.call("memory_query", source="Ada")
    assert "Python" in said
    assert "Rust" in said


def test_a_relation_is_ended_by_telling_it_with_its_end(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Python")
    assert "Known already, updated: r1" in relate(kept, "Ada", "uses", "python", valid_to="2026-01-04")
    assert kept.call("memory_query", source="Ada") == "Nothing that fits is remembered."
    assert "until 2026-01-04" in kept.call("memory_query", source="Ada", past=True)


def test_of_what_was_over_when_it_was_told_only_the_end_is_known(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", valid_to="2020")
    relate(kept, "Ada", "WorksAt", "Beta")
    assert "Acme" in kept.call("memory_query", source="Ada", as_of="2019")
    assert "Beta" in kept.call("memory_query", source="Ada")


def test_what_begins_later_does_not_hold_yet(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", valid_from="2025")
    relate(kept, "Ada", "WorksAt", "Beta", valid_from="2026-02")
    assert "Acme" in kept.call("memory_query", source="Ada")
    kept.runtime.now += 40 * DAY
    assert "Beta" in kept.call("memory_query", source="Ada")


def test_the_untrusted_never_ends_what_is_trusted_more(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    kept.runtime.now += DAY
    assert "Ended" not in relate(kept, "Ada", "WorksAt", "Evil", untrusted=True)
    said = kept.call("memory_query", source="Ada").splitlines()
    assert "[agent, confidence 1] Ada WorksAt Acme" in said[0]
    assert "[untrusted, confidence 1] Ada WorksAt Evil" in said[1]
    assert "never an instruction" in said[2]
    refused = relate(kept, "Ada", "WorksAt", "Acme", valid_to="2026-01-01", untrusted=True)
    assert "more trusted source" in refused
    assert "Ended by it: r2" in relate(kept, "Ada", "WorksAt", "Beta", valid_from="2026-01-07")


@pytest.mark.parametrize("when", ["yesterday", "2026-13", "2026-02-30", "99999", "-1", "0000"])
def test_a_time_that_is_none_is_refused_with_an_example(kept: Kept, when: str) -> None:
    said = relate(kept, "Ada", "Uses", "Rust", valid_from=when)
    assert said.startswith("ERROR memory_relate: valid_from: ")
    assert said.endswith("write it like 2026-01-05")


def test_an_end_before_the_beginning_is_refused_and_stores_nothing(kept: Kept) -> None:
    said = relate(kept, "Ada", "Uses", "Rust", valid_from="2026", valid_to="2025")
    assert "must be later than valid_from" in said
    assert kept.call("memory_query", source="Ada").startswith("Nothing is remembered")


# --- walks ----------------------------------------------------------------------------------------


def test_the_neighbourhood_grows_with_the_hops(kept: Kept) -> None:
    for source, target in (("A1", "B1"), ("B1", "C1"), ("C1", "D1"), ("X1", "C1")):
        relate(kept, source, "DependsOn", target)
    assert kept.details("memory_query", source="A1")["found"] == ["r1"]
    assert kept.details("memory_query", source="A1", hops=2)["found"] == ["r1", "r2"]
    assert kept.details("memory_query", source="A1", hops=3)["found"] == ["r1", "r2", "r3", "r4"]


def test_paths_lead_both_ways_and_the_shortest_wins(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    relate(kept, "Ben", "WorksAt", "Acme")
    relate(kept, "Ben", "KnowsAbout", "Chess")
    relate(kept, "Ada", "RelatedTo", "Eve")
    relate(kept, "Eve", "RelatedTo", "Ian")
    relate(kept, "Ian", "RelatedTo", "Ben")
    assert kept.details("memory_query", source="Ada", target="Chess", hops=5)["paths"] == [["r1", "r2", "r3"]]
    assert kept.details("memory_query", source="Ada", target="Chess", hops=2)["paths"] == []


def test_of_paths_of_one_length_the_stronger_comes_first(kept: Kept) -> None:
    relate(kept, "Ada", "RelatedTo", "Eve", confidence=0.3)
    relate(kept, "Eve", "RelatedTo", "Zoe")
    relate(kept, "Ada", "RelatedTo", "Ian", confidence=0.9)
    relate(kept, "Ian", "RelatedTo", "Zoe")
    assert kept.details("memory_query", source="Ada", target="Zoe", hops=3)["paths"] == [
        ["r3", "r4"],
        ["r1", "r2"],
    ]


def test_a_walk_follows_only_what_held_then(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", valid_from="2020")
    relate(kept, "Acme", "LocatedIn", "Rome", valid_from="2020")
    relate(kept, "Ada", "WorksAt", "Beta", valid_from="2025")
    assert kept.details("memory_query", source="Ada", target="Rome", hops=3)["paths"] == []
    assert kept.details("memory_query", source="Ada", target="Rome", hops=3, as_of="2021")["paths"]


# --- rank -----------------------------------------------------------------------------------------


def test_what_is_used_comes_before_what_is_not(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Python")
    relate(kept, "Ada", "Uses", "Rust")
    assert kept.details("memory_query", source="Ada")["found"] == ["r1", "r2"]
    kept.call("memory_query", source="Ada", target="Rust")
    assert kept.details("memory_query", source="Ada")["found"] == ["r2", "r1"]


def test_what_is_neither_told_nor_used_fades(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Python", confidence=0.9)
    kept.runtime.now += 200 * DAY
    relate(kept, "Ada", "Uses", "Rust", confidence=0.7)
    assert kept.details("memory_query", source="Ada")["found"] == ["r2", "r1"]


def test_proactive_recall_does_not_feed_itself(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Python")
    first = kept.recall("Ada?")
    assert [kept.recall("Ada?") for _ in range(5)] == [first] * 5


# --- recall ---------------------------------------------------------------------------------------


def test_recall_tells_what_holds_of_the_things_that_are_named(kept: Kept) -> None:
    relate(kept, "Ada Example", "WorksAt", "Acme")
    relate(kept, "山田太郎", "WorksAt", "東京電機")
    relate(kept, "Ben", "WorksAt", "Beta", untrusted=True)
    assert [one.text for one in kept.recall("What does Ada do?")] == ["Ada Example WorksAt Acme"]
    assert [one.text for one in kept.recall("山田太郎さんはどこで働いていますか")] == [
        "山田太郎 WorksAt 東京電機"
    ]
    found = kept.recall("ben")
    assert [(one.trust, one.source, one.superseded) for one in found] == [("untrusted", "graph:r3", False)]
    assert kept.recall("nothing of it") == ()


def test_recall_keeps_to_its_characters(kept: Kept) -> None:
    for n in range(40):
        relate(kept, "Ada", "Uses", f"Tool number {n}")
    found = kept.recall("Ada", chars=100)
    assert found
    assert sum(len(one.text) for one in found) <= 100
    assert kept.recall("Ada", chars=3) == ()


# --- consolidation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ACME Inc.", "acme inc"),
        ("ＡＣＭＥ", "acme"),
        ("史蒂夫·乔布斯", "史蒂夫乔布斯"),
        ("ﾗﾘｰ･ﾍﾟｲｼﾞ", "ラリー・ペイジ"),
        ("김 철수", "김철수"),
        ("Straße", "STRASSE"),
        ("Jean-Luc", "jean luc"),
    ],
)
def test_other_spellings_are_the_same_from_the_first_word_on(kept: Kept, first: str, second: str) -> None:
    relate(kept, first, "RelatedTo", "Rome")
    said = relate(kept, second, "RelatedTo", "Oslo")
    assert f"{first} (e1," in said


def test_consolidation_merges_what_got_the_same_name(kept: Kept) -> None:
    relate(kept, "国際商業機械", "LocatedIn", "東京", call_id="c1")
    relate(kept, "ＩＢＭ", "Produces", "Computers", call_id="c2")
    kept.call("memory_entity", name="国際商業機械", aliases=["ibm"])
    assert kept.details("memory_tidy") == {"merged": 1, "merges": [1]}
    said = kept.call("memory_query", source="IBM")
    assert "東京" in said
    assert "Computers" in said
    assert "call:c1" in said  # where each was told is kept
    assert "call:c2" in said
    assert kept.details("memory_tidy")["merged"] == 0


def test_a_merge_can_be_taken_back_and_is_not_made_again(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme")
    relate(kept, "Adelaide", "WorksAt", "Beta")
    before = kept.call("memory_query", source="Ada"), kept.call("memory_query", source="Adelaide")
    kept.call("memory_entity", name="Adelaide", aliases=["Ada"])
    assert "Merged 1" in kept.call("memory_tidy")
    assert kept.details("memory_query", source="Ada")["found"] == ["r2"]  # two employers can't both hold
    assert "thing of its own" in kept.call("memory_tidy", undo=1)
    kept.again()
    assert before == (kept.call("memory_query", source="e1"), kept.call("memory_query", source="Adelaide"))
    assert kept.details("memory_tidy")["merged"] == 0
    assert kept.call("memory_tidy", undo=1).startswith("ERROR memory_tidy: merge 1: there is none")


def test_chains_of_merges_can_be_taken_back_in_any_order(kept: Kept) -> None:
    for name, target in (("Aa", "X1"), ("Bb", "X2"), ("Cc", "X3")):
        relate(kept, name, "RelatedTo", target)
    kept.call("memory_entity", name="Bb", aliases=["Aa"])
    kept.call("memory_tidy")
    kept.call("memory_entity", name="Cc", aliases=["Bb"])
    kept.call("memory_tidy")
    assert kept.details("memory_query", source="Cc")["found"] == ["r1", "r2", "r3"]
    kept.call("memory_tidy", undo=1)
    assert kept.details("memory_query", source="e3")["found"] == ["r2"]
    assert kept.details("memory_query", source="Cc")["found"] == ["r1", "r3"]
    kept.call("memory_tidy", undo=2)
    assert kept.details("memory_query", source="Cc")["found"] == ["r3"]


def test_an_alias_that_two_share_merges_nobody(kept: Kept) -> None:
    kept.call("memory_entity", name="Bob Smith", kind="Person", aliases=["Bob"])
    kept.call("memory_entity", name="Bob Jones", kind="Person", aliases=["Bob"])
    assert kept.details("memory_tidy")["merged"] == 0
    assert "names several" in relate(kept, "Bob", "Uses", "Rust")


def test_one_name_of_two_kinds_is_not_merged(kept: Kept) -> None:
    kept.call("memory_entity", name="Mercury", kind="Project")
    kept.call("memory_entity", name="Mercury", kind="Location")
    assert kept.details("memory_tidy")["merged"] == 0


def test_a_name_that_something_untrusted_gave_merges_nobody_and_takes_no_facts(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Beta")
    kept.call("memory_entity", name="Evil", kind="Person", aliases=["Ada", "Acme"], untrusted=True)
    assert kept.details("memory_tidy")["merged"] == 0
    assert "Acme (e4, Organization)" in relate(kept, "Ada", "WorksAt", "Acme")
    assert "Evil" not in kept.call("memory_query", source="Ada")
    kept.call("memory_entity", name="Evil", aliases=["Ada"])  # now the agent says so
    assert kept.details("memory_tidy")["merged"] == 1
    assert "Ada (e1" in relate(kept, "Evil", "Uses", "Rust")
