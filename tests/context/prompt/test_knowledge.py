"""Knowledge: what is relevant is kept, whatever the language, and the order never jumps."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from helpers_messages import items, says, user
from perdure.context.prompt.knowledge import PASSAGE_CHARS, Note, query_of, select, split, words
from perdure.records import Item, Summary

MEMORY = Note(
    "MEMORY.md", "# People\n\nAnn likes green tea.\n\n# Servers\n\nThe staging host is db-7.internal."
)
OLD = Note("memory/2026-01-04.md", "Talked about the garden.\n\n数据库迁移在周五完成，备份放在冷存储。")
NEW = Note("memory/2026-01-05.md", "Ann asked about the invoice 4711.\n\nThe backup job failed at night.")
NOTES = (OLD, MEMORY, NEW)


def test_everything_is_kept_in_file_order_when_it_fits() -> None:
    found = select(NOTES, "", 10_000)
    heads = [
        found.text.index(f"## {path}")
        for path in ("MEMORY.md", "memory/2026-01-05.md", "memory/2026-01-04.md")
    ]
    assert heads == sorted(heads)
    assert found.kept == found.total == 6


def test_what_the_question_is_about_survives_a_small_budget() -> None:
    assert "4711" in select(NOTES, "what was that invoice again?", 70).text
    assert "staging" in select(NOTES, "Which HOST is staging?", 90).text


def test_a_view_is_asked_for_what_its_user_wanted_when_it_began() -> None:
    first, later = user("find the invoice", timestamp=1), user("and the garden", timestamp=5)
    assert query_of(items(says("hello"), first, later)) == "find the invoice"
    assert query_of(items(Summary("so far …", 900, 6), first, says("ok"), later)) == "and the garden"
    assert query_of(items(Summary("so far …", 900, 3), first, says("ok"), later)) == "find the invoice"
    assert query_of(items(Summary("so far …", 900, 3), later)) == "so far …"
    assert query_of(()) == ""


def test_what_a_view_is_asked_for_stays_while_it_grows() -> None:
    for head in (
        (user("find the invoice", timestamp=1),),
        (Summary("so far", 9, 3), user("go", timestamp=2)),
    ):
        view = items(*head)
        grown = (*view, *(Item(f"n{n}", user(f"other {n}", timestamp=10 + n)) for n in range(5)))
        assert query_of(grown) == query_of(view)


def test_chinese_questions_find_chinese_notes() -> None:
    found = select(NOTES, "数据库的备份在哪里？", 70)
    assert "冷存储" in found.text
    assert found.kept == 1


def test_without_a_question_memory_comes_before_notes_and_new_notes_before_old() -> None:
    text = select(NOTES, "", 110).text
    assert "green tea" in text
    assert "garden" not in text


def test_the_order_of_the_files_given_changes_nothing() -> None:
    for seed in range(10):
        notes = list(NOTES)
        random.Random(seed).shuffle(notes)
        assert select(tuple(notes), "backup Ann", 150) == select(NOTES, "backup Ann", 150)


def test_words_of_cjk_text_are_pairs() -> None:
    assert words("Backup 数据库 v2 안녕") == ["backup", "数据", "据库", "v2", "안녕"]


@given(st.lists(st.text(max_size=3_000), max_size=4), st.text(max_size=40), st.integers(0, 4_000))
def test_the_budget_holds_for_every_text(texts: list[str], query: str, budget: int) -> None:
    notes = tuple(Note(f"memory/2026-01-{n:02}.md", text) for n, text in enumerate(texts, 1))
    found = select(notes, query, budget)
    assert len(found.text) <= budget
    assert all(len(passage.text) <= 2 * PASSAGE_CHARS + 1 for note in notes for passage in split(note))
