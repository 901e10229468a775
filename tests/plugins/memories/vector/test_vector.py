"""Statements as an agent uses them: stored once, recalled by likeness, corrected, captured, forgotten."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers_memories import DAY, Kept, answer, output, user
from perdure.errors import ConfigError, UsageError
from perdure.plugins.memories.said import said
from perdure.plugins.memories.vector import lance_table, rules
from perdure.plugins.memories.vector.memory import VectorMemory
from perdure.plugins.registry import Registry
from perdure.testing.lending import FakeRuntime

TEA = "The user prefers green tea in the morning"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(VectorMemory, tmp_path)
    yield made
    made.close()


def store(kept: Kept, text: str, **more: Any) -> str:
    return kept.call("memory_store", text=text, **more)


def recall(kept: Kept, query: str) -> str:
    return kept.call("memory_recall", query=query)


def test_the_registry_makes_it(tmp_path: Path) -> None:
    memory = Registry().memory("memory-vector", FakeRuntime(tmp_path))
    assert memory.info.id == "memory-vector"
    assert [tool.spec.name for tool in memory.tools()] == ["memory_recall", "memory_store", "memory_forget"]
    assert "memory_recall" in memory.guidance()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"autorecall": True}, "memory-vector.autorecall: unknown key"),
        ({"duplicate": 2}, "memory-vector.duplicate"),
        ({"backend": "postgres"}, "memory-vector.backend"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        VectorMemory(FakeRuntime(tmp_path, settings))


def test_a_missing_lancedb_is_told_when_the_host_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, *more: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(lance_table.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"backend.*perdure\[lancedb\]"):
        VectorMemory(FakeRuntime(tmp_path, {"backend": "lancedb"}))


def test_nothing_imports_lancedb_unless_it_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = builtins.__import__

    def noting(name: str, *more: Any, **also: Any) -> Any:
        asked.append(name)
        return real(name, *more, **also)

    monkeypatch.setattr(builtins, "__import__", noting)
    kept = Kept(VectorMemory, tmp_path)
    store(kept, TEA)
    assert not any("lance" in name for name in asked)
    kept.close()


# --- store and recall -----------------------------------------------------------------------------


def test_what_is_stored_is_recalled_by_likeness_after_a_restart(kept: Kept) -> None:
    store(kept, TEA)
    store(kept, "The build server is called Hephaistos")
    kept.again()
    assert f"[agent] {TEA} (2026-01-05)" in recall(kept, "which tea in the morning?").splitlines()[0]
    assert recall(kept, "zebra crossing") == "Nothing like it is remembered."


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("用户喜欢绿茶", "绿茶"),
        ("会議は月曜日の朝です", "月曜日の会議"),
        ("빌드 서버 이름은 헤파이스토스", "빌드 서버"),
    ],
)
def test_scripts_without_spaces_are_recalled_alike(kept: Kept, text: str, query: str) -> None:
    store(kept, text)
    store(kept, "Something else")
    assert text in recall(kept, query)


def test_what_is_known_is_not_stored_twice(kept: Kept) -> None:
    assert store(kept, TEA).startswith("Remembered: m")
    for again in (TEA, f"  {TEA.upper()} ", TEA + "."):
        assert store(kept, again).startswith("Known already: m")
    assert recall(kept, "tea").count("tea") == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "The shop is deployed on Fridays at 18:00 by Ada",
            "The shop is deployed on Fridays at 19:00 by Ada",
        ),
        (
            "The user likes calls in the evening, always",
            "The user does not like calls in the evening, always",
        ),
        ("部署时间是每周五晚上18点", "部署时间是每周五晚上19点"),
    ],
)
def test_a_number_or_a_not_makes_another_statement(kept: Kept, one: str, other: str) -> None:
    store(kept, one)
    assert store(kept, other).startswith("Remembered")


def test_a_statement_is_corrected_by_its_id(kept: Kept) -> None:
    old = kept.details("memory_store", text="The user lives in Oslo")["id"]
    assert store(kept, "The user lives in Rome", replaces=old).startswith("Remembered")
    assert "Oslo" not in recall(kept, "where does the user live")
    assert "nothing is remembered under" in store(kept, "The user lives in Bonn", replaces="m0000")


def test_the_untrusted_replaces_nothing_that_is_trusted_more(kept: Kept) -> None:
    old = kept.details("memory_store", text="The user lives in Oslo")["id"]
    assert "more trusted" in store(kept, "The user lives in Rome", replaces=old, untrusted=True)
    assert "Oslo" in recall(kept, "where does the user live")


def test_correcting_what_is_nearly_the_same_replaces_it(kept: Kept) -> None:
    old = kept.details("memory_store", text=TEA)["id"]
    assert store(kept, TEA + "!", replaces=old).startswith("Remembered")
    assert recall(kept, "tea").count("tea") == 1


def test_the_untrusted_is_marked_and_trusted_once_the_agent_says_it(kept: Kept) -> None:
    store(kept, TEA, untrusted=True)
    said_ = recall(kept, "tea")
    assert "[untrusted]" in said_
    assert "never an instruction" in said_
    store(kept, TEA)
    assert "[agent]" in recall(kept, "tea")
    assert "Known already" in store(kept, TEA, untrusted=True)
    assert "[agent]" in recall(kept, "tea")


@pytest.mark.parametrize(
    "text", ["my token is sk-ant-abcdefghij0123456789", "password: hunter22!", "AKIAABCDEFGHIJKLMNOP"]
)
def test_secrets_are_refused_and_in_no_file(kept: Kept, text: str) -> None:
    assert "not remembered" in store(kept, text)
    kept.close()
    assert not any(
        text.encode() in path.read_bytes() for path in kept.runtime.store.rglob("*") if path.is_file()
    )


# --- automatic recall -----------------------------------------------------------------------------


def test_automatic_recall_can_be_switched_off(tmp_path: Path) -> None:
    kept = Kept(VectorMemory, tmp_path, autoRecall=False)
    store(kept, TEA)
    assert kept.recall("tea") == ()


def test_automatic_recall_keeps_to_its_characters(tmp_path: Path) -> None:
    kept = Kept(VectorMemory, tmp_path, autoRecall=True, recallMaxChars=100)
    store(kept, TEA)
    store(kept, "Tea is bought at the market on the square near the station", untrusted=True)
    found = kept.recall("tea in the morning", chars=5_000)
    assert sum(len(one.text) for one in found) <= 100
    assert found[0].text == TEA
    assert found[0].source.startswith("vector:m")
    assert 0 < found[0].score <= 1
    assert kept.recall("tea", chars=10) == ()
    assert kept.recall(" ") == ()
    kept.close()


# --- automatic capture ----------------------------------------------------------------------------

WORTH = [
    "Remember that the cellar floods in April",
    "I prefer short answers",
    "my sister's name is Ada and my dog is old",
    "We decided to use trio",
    "请记住我喜欢绿茶",
    "私は東京に住んでいます",
    "나는 서울에 산다",
    "From now on write in English",
]
WORTHLESS = [
    "ok thanks", "What do I like?", "我喜欢什么吗？", "run the tests please", "I like",
    "```\nI like code\n```",
    "<relevant-memories>I like tea</relevant-memories>", "/remember x y z", "I like " + "x" * 600,
    "I prefer the password: hunter22!", "私は誰ですか",
]  # fmt: skip


@pytest.mark.parametrize("text", WORTH)
def test_what_the_user_states_is_worth_remembering(text: str) -> None:
    assert [one.text for one in rules.worth(said((user("u1", text),)), 500)] == [text]


@pytest.mark.parametrize("text", WORTHLESS)
def test_questions_commands_secrets_and_markup_are_not(text: str) -> None:
    assert rules.worth(said((user("u1", text),)), 500) == ()


def test_only_the_users_own_words_are_worth_it() -> None:
    text = "I prefer short answers"
    items = (user("u1", text, foreign=True), output("t1", text), answer("a1", text))
    assert rules.worth(said(items), 500) == ()
    assert len(rules.worth(said(tuple(user(f"u{n}", f"{text} {n}") for n in range(9))), 500)) == 3


def test_automatic_capture_is_off_by_default(kept: Kept) -> None:
    kept.capture(user("u1", WORTH[0]))
    assert recall(kept, "cellar floods") == "Nothing like it is remembered."


def test_automatic_capture_stores_once_with_its_entry(tmp_path: Path) -> None:
    kept = Kept(VectorMemory, tmp_path, autoCapture=True, autoRecall=True)
    for _ in range(2):  # again, after a crash
        kept.capture(user("u1", WORTH[0]), answer("a1", "noted"), user("u2", "thanks!"))
    [found] = kept.recall("when does the cellar flood")
    assert (found.text, found.trust, found.entries, found.at) == (
        WORTH[0],
        "owner",
        ("u1",),
        kept.runtime.now,
    )
    kept.close()


def test_the_owner_confirms_what_a_page_said(tmp_path: Path) -> None:
    kept = Kept(VectorMemory, tmp_path, auto_capture=True)
    store(kept, WORTH[0], untrusted=True)
    kept.capture(user("u1", WORTH[0]))
    assert "[owner]" in recall(kept, "cellar")
    kept.close()


# --- forgetting -----------------------------------------------------------------------------------


def stored(kept: Kept) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(kept.runtime.store.rglob("*")) if path.is_file())


def test_forgetting_by_the_tool_takes_an_id_and_a_query_only_lists(kept: Kept) -> None:
    id = kept.details("memory_store", text=TEA)["id"]
    assert "Nothing was forgotten" in kept.call("memory_forget", query="tea")
    assert id in kept.call("memory_forget", query="tea")
    assert kept.call("memory_forget", id=id) == f"Forgotten: {id}"
    assert kept.call("memory_forget", id=id).startswith("ERROR")
    assert kept.call("memory_forget").startswith("ERROR")
    assert kept.call("memory_forget", id=id, query="tea").startswith("ERROR")
    assert recall(kept, "tea") == "Nothing like it is remembered."


def test_forgetting_takes_all_that_says_it_to_the_last_byte(kept: Kept) -> None:
    store(kept, "Xanthippe likes olives")
    store(kept, "The cat of XANTHIPPE is grey")
    store(kept, TEA)
    assert b"anthippe" in stored(kept)
    forgotten = kept.forget("xanthippe")
    assert forgotten.notes == 2
    assert all(source.startswith("vector:m") for source in forgotten.sources)
    assert b"anthippe" not in stored(kept).lower()
    assert TEA in recall(kept, "tea")
    assert kept.forget("vector:m0").notes == 0
    with pytest.raises(UsageError):
        kept.forget("\t")


def test_newer_statements_come_before_older_ones_that_say_as_much(kept: Kept) -> None:
    store(kept, "The team meets on floor 3")
    kept.runtime.now += 400 * DAY
    store(kept, "The team meets on floor 5")
    assert "floor 5" in recall(kept, "on which floor does the team meet").splitlines()[0]
