"""Shortening: what stays, what the notice tells, and that bytes are replayable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.numbers import OMISSION_MARKER
from perdure.context.results.shorten import parts, plan, plan_cut, shorten
from perdure.context.results.tails import has_important_tail

LOG = "all is well\n" * 2_000


def cut_to(text: str, limit: int, ref: str = "e7") -> str:
    cut = plan(text, limit, ref)
    return shorten(text, cut.head, cut.tail, ref)


def test_a_text_within_the_limit_is_left_as_it_is() -> None:
    assert cut_to("short", 5) == "short"


def test_a_text_whose_end_says_nothing_keeps_its_head_and_says_how_to_read_on() -> None:
    short = cut_to("word " * 1_000, 1_000)
    assert len(short) <= 1_000
    assert OMISSION_MARKER not in short
    assert short.endswith("more characters truncated; `recall e7` reads them]")


def test_a_failure_at_the_end_of_a_long_log_stays_readable() -> None:
    short = cut_to(LOG + "3 tests failed, 47 passed", 2_000)
    assert "3 tests failed, 47 passed" in short
    assert "⚠️ [... middle content omitted — showing head and tail ...]" in short


def test_head_and_tail_share_the_budget_seventy_to_thirty_whatever_its_size() -> None:
    cut = plan_cut("x" * 200_000 + "}", 100_000)
    assert cut.tail == 30_000
    assert cut.head == 70_000 - len(OMISSION_MARKER)


@pytest.mark.parametrize(
    "end",
    ["Fehler: Platte voll", "エラーが発生しました", "错误：磁盘已满", "테스트 3개 실패", "échec à la fin",
     "ошибка записи", "error错误", "合计 12 条", '{"ok": true}', "Process finished with exit code 1",
     "FAIL src/app.test.ts", "3 pruebas fallaron", "Os testes falharam", "i test sono falliti",
     "тест провалено", "ΣΦΑΛΜΑ: δεν υπάρχει χώρος", "BAŞARISIZ: 3 test", "Chyba: disk je plný",
     "virhe: levy täynnä", "Lỗi: đĩa đầy", "kiểm thử thất bại", "galat: gagal menulis", "फ़ाइल लिखना विफल",
     "اكتمل الاختبار", "הבדיקה הושלמה: נכשל", "การทดสอบล้มเหลว", "测试通过 47 项", "保存に失敗しました",
     "e\u0301chec de l'essai", "ｅｒｒｏｒ：磁盘已满"],
)  # fmt: skip
def test_the_end_matters_in_every_language(end: str) -> None:
    assert has_important_tail(LOG + end)


@pytest.mark.parametrize("end", ["abandoned", "terrorist", "the story goes on", ""])
def test_a_word_inside_another_word_is_no_outcome(end: str) -> None:
    assert not has_important_tail("all is well\n" * 500 + end)


def test_only_the_last_two_thousand_characters_are_looked_at() -> None:
    assert not has_important_tail("error " + "z " * 1_000)


def test_a_shortened_text_is_cut_further_but_never_noticed_twice() -> None:
    once = cut_to("word " * 4_000, 4_000, "e1")
    twice = cut_to(once, 1_000, "e2")
    assert twice.count("more characters truncated") == 1
    assert "`recall e1`" in twice
    missing = parts(twice).missing
    assert missing + len(parts(twice).body) == 20_000


def test_a_text_the_reference_shortened_is_recognised() -> None:
    assert parts("abc[... 20037 more characters truncated]").missing
    assert not parts("he wrote [... and more] here").missing


def test_where_nothing_fits_the_notice_still_says_that_something_is_missing() -> None:
    assert "5,000 more characters truncated" in cut_to("x" * 5_000, 10)


MARKS = st.text(alphabet="ae\u0301\u0308\u200d\ufe0f👨👩👧🇩🇫\ud83d\ude00各\n각ㄱ\u1100\u1161", max_size=400)


@given(MARKS, st.integers(0, 300))
def test_no_cut_parts_a_base_from_its_marks(text: str, budget: int) -> None:
    if budget >= len(text):
        return
    cut = plan_cut(text, budget)
    for at in (cut.head, len(text) - cut.tail):
        if 0 < at < len(text):
            assert not unicodedata.category(text[at]).startswith("M")
            assert text[at - 1] != "\u200d"
            assert not ("\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff")


@given(st.text(max_size=3_000), st.integers(0, 2_500), st.sampled_from(["", "e1"]))
def test_a_stored_cut_replays_to_the_same_bytes_and_stays_within_the_limit(
    text: str, limit: int, ref: str
) -> None:
    cut = plan(text, limit, ref)
    once = shorten(text, cut.head, cut.tail, ref)
    assert shorten(text, cut.head, cut.tail, ref) == once
    assert shorten(once, cut.head, cut.tail, ref) == once
    assert len(once) <= max(limit, 120)
