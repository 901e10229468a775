"""Answers that are no summaries are told apart, and good summaries are let through."""

from __future__ import annotations

import pytest

from helpers_messages import call, items, result, says, user
from helpers_summaries import BAD, GOOD, HISTORIES
from perdure.context.compaction.judge import is_cut, judge
from perdure.context.compaction.language import Spoken, is_foreign, spoken
from perdure.context.compaction.prompts import SYSTEM
from perdure.context.compaction.serialize import serialize
from perdure.edges.models.summaries import summarise
from perdure.records import Items


@pytest.mark.parametrize(("flaw", "text"), [(flaw, text) for flaw, texts in BAD.items() for text in texts])
def test_an_answer_that_is_no_summary_is_recognised(flaw: str, text: str) -> None:
    assert judge(text) == flaw


@pytest.mark.parametrize("language", GOOD)
@pytest.mark.parametrize("kind", ["headed", "plain"])
def test_a_good_summary_passes_in_any_language(language: str, kind: str) -> None:
    text = GOOD[language][kind]
    history = HISTORIES[language]
    assert judge(text, heard=spoken(history), material="[User]: go on\n\n" * 400) is None


@pytest.mark.parametrize("told", GOOD)
@pytest.mark.parametrize("spoke", GOOD)
def test_a_summary_in_a_language_nobody_spoke_is_foreign_and_no_other(spoke: str, told: str) -> None:
    heard = spoken(HISTORIES[spoke])
    for text in GOOD[told].values():
        assert is_foreign(text, heard) == (spoke != told), text


def heard(*messages: object) -> Spoken:
    return spoken(items(*messages))  # type: ignore[arg-type]


def test_a_history_of_code_and_pasted_logs_says_nothing_about_the_language() -> None:
    code = "```python\ndef main(args):\n    return run(args)\n```\n" * 40
    log = "\n".join(
        f"2026-01-05T08:{n:02}:00 INFO worker[{n}] GET /api/v1/items/{n} 200 12ms" for n in range(50)
    )
    for paste in (code, log):
        told = heard(user(paste), says(call("c1")), result("c1", log), says("```\nok\n```"))
        assert not is_foreign(GOOD["zh"]["headed"], told)
        assert not is_foreign(GOOD["en"]["headed"], told)


def test_a_chinese_user_whose_agent_works_in_english_may_get_either() -> None:
    english = [says(GOOD["en"]["plain"]) for _ in range(4)]
    told = heard(*HISTORY_ZH, *english)
    assert not is_foreign(GOOD["zh"]["headed"], told)
    assert not is_foreign(GOOD["en"]["headed"], told)
    assert is_foreign(GOOD["ru"]["headed"], told)


HISTORY_ZH = [item.message for item in HISTORIES["zh"]]


def test_chinese_full_of_english_names_is_chinese() -> None:
    text = (
        "用 Kubernetes 部署 PostgreSQL 与 Redis，Grafana dashboard 已更新，Prometheus alert rule 待办，"
        "CI pipeline 用 GitHub Actions，release branch 已 merge。"
    )
    assert not is_foreign(text, spoken(HISTORIES["zh"]))


def test_headings_in_english_over_a_text_in_another_language_are_no_fault() -> None:
    for language in ("zh", "ja", "ko", "ru", "ar", "de"):
        body = GOOD[language]["plain"]
        text = f"## Goal\n{body}\n\n## State and progress\n{body}\n\n## Last request\n{body}"
        assert judge(text, heard=spoken(HISTORIES[language])) is None


def test_a_short_history_or_a_short_summary_is_never_foreign() -> None:
    assert not is_foreign(GOOD["ru"]["headed"], heard(user("go"), says("ok")))
    assert not is_foreign("ok", spoken(HISTORIES["zh"]))


def test_a_summary_longer_than_what_it_summarises_is_one_no_more() -> None:
    short = " ".join(f"word{n} and more of it." for n in range(80))
    long = " ".join(f"Step {n} was looked at from side {n * 7}." for n in range(120))
    assert judge(long, material=short) == "longer"
    assert judge(long, material="and so on " * 4_000) is None
    assert judge(GOOD["en"]["headed"], material="[User]: hi") is None  # a template has a length of its own


def test_the_conversation_or_the_task_said_again_is_an_echo() -> None:
    told = serialize(HISTORIES["en"])
    material = f"[User]: The lemon tree needs water. {GOOD['en']['plain']} And so on."
    assert judge(told, material=told) == "echo"
    assert judge(material.removeprefix("[User]: ")[:400], material=material) == "echo"
    assert judge(SYSTEM, material=told) == "echo"


def test_what_the_scripted_summariser_extracts_passes() -> None:
    for language, history in HISTORIES.items():
        long: Items = history * 6
        text = summarise(serialize(long), "", 3_000)
        assert judge(text, material=serialize(long), heard=spoken(long)) is None, (language, text)


@pytest.mark.parametrize(
    "text",
    [
        "- fixed src/a.py\n- ran the tests: 5/17 pass\n- next: db-2.internal:6543",
        "The port is 8080 and the host is db-2.internal:6543",
        "## Goal\nPort the parser\n\n## State and progress\nHalf of it is done",
        "Everything else is as it was before, and the person asked to wait",
        "| file | state |\n|---|---|\n| a.py | done |",
        "All done; run it with:\n```\nmake test\n```",
        'The user said: "go on"',
        "1. First we looked at the tree.\n2. Then we watered it.\n3. Ticket #45123",
    ],
)
def test_a_text_without_a_full_stop_at_its_end_is_not_cut_for_that(text: str) -> None:
    assert not is_cut(text)
    assert judge(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "The user asked: can you delete the backup? The assistant said: I'm sorry, I can't help with that "
        "request, because the folder is read-only. Then the user made it writable and all went well. " * 3,
        "## Goal\nHelp to write an apology\n\n## State and progress\nSorry letter drafted; I cannot send it "
        "without the address.\n\n## Last request\nPlease share the text of the letter again.",
        "Agent could not process 3 of 17 files; the user will provide the text later.",
    ],
)
def test_a_summary_of_a_refusal_is_no_refusal(text: str) -> None:
    assert judge(text) is None
