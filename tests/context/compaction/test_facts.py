"""Progress, to-dos and the last request: found by shape, compared by string, carried where lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_messages import call, items, result, says, user
from perdure.context.compaction.facts import Facts, blocks, collect, lost
from perdure.context.text.secrets import REDACTED
from perdure.context.tokens.estimator import Estimator
from perdure.records import Items

PLAIN = Estimator()
NOTHING: Items = ()


def found(covered: Items, kept: Items = NOTHING, previous: str = "", budget: int = 10_000) -> Facts:
    return collect(covered, kept, previous, budget=budget, estimator=PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "5/17 files are done", "progress: 5 / 17", "5 of 17 done", "now at 5 out of 17", "5 von 17 fertig",
        "5 sur 17 faits", "hechos 5 de 17", "готово 5 из 17", "已完成5个，共17个",
        "第5项，共17项", "共17项，已完成5项",
        "17件中5件が完了", "17개 중 5개 완료", "完成了 5／17", "(5/17)",
    ],
)  # fmt: skip
def test_a_count_of_batch_work_is_found_in_any_language_and_carried_if_lost(text: str) -> None:
    facts = found(items(says(text)))
    assert len(facts.progress) == 1
    assert lost("The batch goes on.", facts) == facts
    assert lost(f"So far: {text}", facts).count == 0
    assert lost("5/17 of them", facts).count == 0
    assert lost("7/17 of them", facts) == facts


@pytest.mark.parametrize(
    "text", ["on 2026/05/17", "see a/5/17.txt", "version 1.5/17.2", "24/7", "1/2 of it", "http://x/5/17"]
)
def test_dates_paths_and_fractions_are_no_progress(text: str) -> None:
    assert found(items(says(text))).progress == ()


def test_the_newest_count_of_a_whole_holds_and_what_the_tail_says_again_is_not_carried() -> None:
    covered = items(
        says("2/17 done"), says("3/40 uploaded"), result("c", "downloaded 9/60"), says("5/17 done")
    )
    assert found(covered).progress == ("5/17 done", "3/40 uploaded", "downloaded 9/60")
    assert found(covered, items(says("6/17 now"))).progress == ("3/40 uploaded", "downloaded 9/60")
    assert found(items(says("go on")), previous="## Progress\n- 4/17 done").progress == ("4/17 done",)


def test_boxes_that_were_not_ticked_are_open_in_whatever_way_they_are_drawn() -> None:
    said = "- [ ] write the tests\n- [x] port a.py\n* [ ] 更新文档\n1. [ ] third\n☐ call Ann\n☑ call Bob"
    assert set(found(items(says(said))).todos) == {"write the tests", "更新文档", "third", "call Ann"}
    later = items(says(said), says("- [x] write the tests"))
    assert "write the tests" not in found(later).todos
    assert "write the tests" not in found(items(says(said)), items(says("- [X]  write the  tests"))).todos


def tasks(name: str, key: str, said: str, state: str, rows: list[tuple[str, Any]]) -> Any:
    listed = [{said: text, state: value} for text, value in rows]
    return says(call("c1", name, json.dumps({key: listed})), stop="toolUse")


@pytest.mark.parametrize(
    ("name", "key", "said", "state", "open_", "closed"),
    [
        ("TodoWrite", "todos", "content", "status", "in_progress", "completed"),
        ("update_plan", "plan", "step", "status", "pending", "completed"),
        ("todo_write", "items", "title", "done", False, True),
    ],
)
def test_the_newest_list_of_a_task_tool_replaces_its_older_ones(
    name: str, key: str, said: str, state: str, open_: Any, closed: Any
) -> None:
    older = tasks(name, key, said, state, [("port a.py", open_), ("gone by now", open_)])
    newer = tasks(name, key, said, state, [("port a.py", closed), ("port b.py", open_)])
    assert found(items(older, newer)).todos == ("port b.py",)
    assert found(items(older), items(newer)).todos == ()


def test_the_last_request_is_carried_word_for_word_unless_the_tail_holds_it() -> None:
    asked = "Rename ALL of them,\n  日本語 too, not the tests!"
    covered = items(user("first"), user(asked), says("working"))
    assert found(covered).request == asked
    assert asked in "\n".join(blocks(lost("A summary.", found(covered))))
    assert lost(f"They said: {asked}", found(covered)).request == ""
    assert found(covered, items(user("newer"))).request == ""
    assert collect(covered, (), "", budget=1_000, estimator=PLAIN, pinned=[asked]).request == ""
    again = "\n\n".join(["S1", *blocks(found(covered)), "## Other\nx"])
    assert found(items(says("goes on")), previous=again).request == asked


def test_a_long_request_is_carried_by_its_head_and_tail() -> None:
    asked = "Do this: " + "x" * 9_000 + " but never on Fridays"
    request = found(items(user(asked))).request
    assert len(request) < 1_700
    assert request.startswith("Do this: ")
    assert request.endswith(" but never on Fridays")


def test_secrets_are_not_carried() -> None:
    facts = found(
        items(user("- [ ] rotate sk-ant-api03-abcdefghijklmnopqrst\nuse ghp_abcdefghijklmnopqrst1234"))
    )
    text = "\n".join(blocks(facts))
    assert "sk-ant" not in text
    assert "ghp_" not in text
    assert REDACTED in text


@given(st.lists(st.sampled_from(["- [ ] t{n}", "{n}/90 done", "prose"]), max_size=60), st.integers(0, 300))
def test_facts_stay_within_their_tokens_and_what_is_composed_loses_none(
    lines: list[str], budget: int
) -> None:
    text = "\n".join(line.format(n=n) for n, line in enumerate(lines))
    facts = found(items(user(text)), budget=budget)
    told = "\n\n".join(blocks(facts))
    assert lost(told, facts).count == 0
    body = [facts.request, *facts.todos, *facts.progress]
    assert sum(PLAIN.text(line) for line in body) <= budget
