"""What the graph forgets when it is told to, and what it takes from messages by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers_memories import KEY, NOW, Kept, answer, output, user
from perdure.errors import ModelError, UsageError
from perdure.plugins.memories.graph.memory import GraphMemory


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(GraphMemory, tmp_path)
    yield made
    made.close()


def relate(kept: Kept, source: str, relation: str, target: str, **more: object) -> str:
    return kept.call("memory_relate", source=source, relation=relation, target=target, **more)


# --- forgetting -----------------------------------------------------------------------------------


def bytes_of(kept: Kept) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(kept.runtime.store.iterdir()))


def test_forgetting_an_entity_takes_all_that_says_its_name(kept: Kept) -> None:
    relate(kept, "Xanthippe", "WorksAt", "Acme")
    relate(kept, "Ada", "RelatedTo", "Xanthippe")
    relate(kept, "Ada", "WorksAt", "Acme")
    kept.call("memory_entity", name="Xan", kind="Person")
    kept.call("memory_entity", name="Xanthippe", aliases=["Xan"])
    kept.call("memory_tidy")
    assert b"anthippe" in bytes_of(kept)
    forgotten = kept.forget("xanthippe")
    assert (forgotten.notes, forgotten.chunks, forgotten.derived) == (2, 2, 1)
    assert b"anthippe" not in bytes_of(kept).lower()
    assert kept.details("memory_query", source="Ada")["found"] == ["r3"]
    assert kept.recall("Xanthippe") == ()


def test_forgetting_what_ended_a_relation_lets_it_hold_again(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", valid_from="2024")
    relate(kept, "Ada", "WorksAt", "Beta", valid_from="2025")
    assert kept.forget("Ada works at Beta").sources == ("graph:r2",)
    assert kept.details("memory_query", source="Ada")["found"] == ["r1"]


def test_forgetting_by_reference_and_by_a_part_of_the_name(kept: Kept) -> None:
    relate(kept, "Ada", "Uses", "Rust")
    relate(kept, "東京電機", "Uses", "Rust")
    relate(kept, "Bobby", "Uses", "Rust")
    assert kept.forget("graph:r1").sources == ("graph:r1",)
    assert kept.forget("電機").notes == 1
    assert kept.forget("Bob").notes == 0  # a word, not a part of one
    assert kept.forget("e999").sources == ()
    with pytest.raises(UsageError):
        kept.forget("  ")


# --- capture --------------------------------------------------------------------------------------

FOUND = json.dumps(
    [
        {"source": "Ada", "source_kind": "Person", "relation": "works at", "target": "Acme"},
        {"source": "Ada", "relation": "WorksAt", "target": "Invented"},
        {"source": "", "relation": "WorksAt", "target": "Acme"},
        {"source": "Ada", "relation": None, "target": "Acme"},
        "no object",
    ]
)


def test_capture_is_off_by_default(kept: Kept) -> None:
    kept.capture(user("u1", "Ada works at Acme"))
    assert kept.runtime.asked == []


def capturing(tmp_path: Path, reply: str) -> Kept:
    kept = Kept(GraphMemory, tmp_path, capture=True, tidy_after=1)
    kept.runtime.answer = lambda prompt, system: reply
    return kept


def test_capture_takes_what_the_user_said_and_nothing_that_stands_elsewhere(tmp_path: Path) -> None:
    kept = capturing(tmp_path, f"Here it is: {FOUND}")
    items = (user("u1", "ada works at ACME"), output("t1", "Ada works at Invented"), answer("a1", "noted"))
    kept.capture(*items)
    kept.capture(*items)  # again, after a crash
    assert len(kept.runtime.asked) == 2
    [found] = kept.recall("Ada")
    assert (found.text, found.trust, found.entries) == ("Ada WorksAt Acme", "agent", ("u1",))
    kept.close()


def test_what_another_session_wrote_is_untrusted(tmp_path: Path) -> None:
    kept = capturing(tmp_path, FOUND)
    kept.capture(user("u1", "Ada works at Acme", foreign=True))
    assert [one.trust for one in kept.recall("Ada")] == ["untrusted"]
    kept.close()


@pytest.mark.parametrize("reply", ["", "[]", "I can't do that.", "[{", '{"source": 1}', "[" * 5_000])
def test_an_answer_that_is_of_no_use_stores_nothing(tmp_path: Path, reply: str) -> None:
    kept = capturing(tmp_path, reply)
    kept.capture(user("u1", "Ada works at Acme"))
    assert kept.recall("Ada Acme") == ()
    kept.close()


def test_a_model_that_fails_costs_nothing_but_a_line_in_the_log(tmp_path: Path) -> None:
    kept = capturing(tmp_path, "")

    def fail(prompt: str, system: str) -> str:
        raise ModelError("overloaded", "busy")

    kept.runtime.answer = fail
    kept.capture(user("u1", "Ada works at Acme"))
    assert [event for event, _ in kept.runtime.logged] == ["memory.not_captured"]
    kept.close()


def test_now_is_when_nothing_else_is_told(kept: Kept) -> None:
    relate(kept, "Ada", "WorksAt", "Acme", session=KEY)
    assert kept.recall("Ada")[0].at == NOW
