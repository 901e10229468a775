"""The estimator: the plain weights, content that is denser than prose, and what usage teaches."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_messages import case_view, items, result, says, user
from perdure.context.tokens.estimator import (
    CAREFUL,
    Estimator,
    Gauge,
    Measure,
    estimator_of,
    measure,
    measure_text,
    with_learned,
)
from perdure.edges.models.tokenizer import Tokenizer
from perdure.records import Bash, Image, Item, Summary, Text, Thinking, ToolCall, ToolResult

PLAIN = Estimator()
REAL = Tokenizer()


def tokens(found: Any) -> int:
    return PLAIN.item(Item("e", found))


def test_prose_is_four_characters_a_token_and_tool_output_two() -> None:
    assert tokens(user("x" * 400)) == 100
    assert tokens(result("c1", "x" * 400)) == 200


def test_an_image_has_one_price_whatever_its_bytes() -> None:
    shot = user("what colour?")
    large = type(shot)((*shot.content, Image("QUJD" * 400_000, "image/png")))
    assert tokens(large) == tokens(type(shot)((*shot.content, Image("QUJD", "image/png")))) < 10_000


def test_summaries_commands_and_thinking_count_by_their_length_never_flat() -> None:
    assert tokens(Summary("x" * 40_000)) == 10_000
    assert tokens(Bash("ls", "x" * 398)) == 100
    assert tokens(says(Thinking("x" * 400, "signature"))) == 100


def test_a_call_counts_with_its_name_id_and_arguments() -> None:
    assert tokens(says(ToolCall("call_1", "read", b'{"path":"a"}'))) == -(-(6 + 4 + 12) // 4)


def test_details_never_count() -> None:
    assert tokens(ToolResult("c", "t", (Text("ok"),), details=b"x" * 9_000)) == tokens(result("c", "ok"))


def test_every_chinese_character_is_at_least_a_token_before_anything_is_learned() -> None:
    text = "在这一步请检查库存清单并记录差异。" * 40
    assert PLAIN.text(text) >= len(text)
    assert PLAIN.text(text) >= REAL.count(text)


PIECES = st.one_of(st.characters(max_codepoint=127), st.sampled_from(["a" * 40, "9f" * 30, "\n    ", "x_"]))


@given(st.lists(PIECES).map("".join))
def test_plain_text_weighs_the_same_beside_a_letter_beyond_ascii(text: str) -> None:
    alone, beside = measure_text(text), measure_text(text + "ééééé")
    assert beside == alone + Measure(seed=10, raw=5, wide=120)


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog and goes home again. " * 30,
        "def f(a, b):\n    return {'k1': a[0] + b, \"w\": None}\n" * 40,
        '{"id":48213,"name":"x","tags":["a","b"],"ok":true}' * 30,
        "9fceb02d0ae598e95dc970b74767f19372d61af8 " * 30,
        "Пример текста на русском языке, который длиннее обычного. " * 20,
        "これは日本語の文章です。漢字とかなが混ざっています。" * 20,
        "한국어 문장은 이렇게 생겼습니다. " * 30,
        "🙂🚀👍🏽 done " * 30,
    ],
)
def test_the_careful_estimate_is_not_below_a_real_tokenizer(text: str) -> None:
    assert CAREFUL.text(text) >= REAL.count(text)


def test_a_request_whose_size_is_known_has_that_size_and_only_what_is_new_is_estimated() -> None:
    size, tail = measure_text("some words of prose " * 2_000), measure_text("and some more " * 50)
    estimator = PLAIN.learn(size, 500, 9_000)
    assert abs(estimator.forecast(size, 500) - 9_000) <= 1
    assert abs(estimator.forecast(size + tail, 500) - 9_000 - 150) < 60
    assert estimator.whole(size, 500) == PLAIN.whole(size, 500) == 10_500  # above what is known


def test_what_a_request_costs_beside_its_messages_is_learned_and_stays_after_a_compaction() -> None:
    estimator, view = PLAIN, Measure()
    for n in range(1, 30):
        view += measure_text("plain words of a long talk " * 400)
        estimator = estimator.learn(view, 0, 15_000 + 2_500 * n)
    small = measure_text("a short summary of it all " * 40)
    assert abs(estimator.forecast(small, 0) - 15_250) < 800
    assert estimator.whole(small, 0) > 15_250


def test_each_kind_of_content_has_a_density_of_its_own() -> None:
    estimator, view, real = PLAIN, Measure(), 0
    for n in range(40):
        text = "words and words " * 200 if n % 2 else "QUJDRA9z" * 300
        view, real = view + measure_text(text), real + (600 if n % 2 else 2_400)
        estimator = estimator.learn(view, 0, real)
    for text, tokens in (("words and words " * 400, 1_200), ("QUJDRA9z" * 600, 4_800)):
        found = estimator.forecast(view + measure_text(text), 0) - real
        assert abs(found - tokens) < 0.1 * tokens


def test_a_piece_is_never_below_the_plain_weights_whatever_was_learned() -> None:
    estimator = PLAIN
    for n in range(1, 11):
        estimator = estimator.learn(measure_text("x " * 2_000 * n), 0, 100 * n)
    assert estimator.text("x" * 400) >= 100
    assert estimator.whole(measure_text("x" * 400_000), 0) >= 100_000


def test_a_prompt_without_numbers_teaches_nothing() -> None:
    assert PLAIN.learn(Measure(), 0, 500) is PLAIN
    assert PLAIN.learn(Measure(seed=9, words=9), 0, 0) is PLAIN


def test_models_are_learned_apart_and_the_oldest_is_forgotten() -> None:
    learned: tuple[Estimator, ...] = ()
    for name in "abcdea":
        learned = with_learned(learned, Estimator(name, samples=1))
    assert [each.model for each in learned] == ["c", "d", "e", "a"]
    assert estimator_of(learned, "d") is learned[1]
    assert estimator_of(learned, "b") == Estimator("b")


@pytest.mark.parametrize("lie", [10**6, 10**18, 10**320])
def test_a_size_that_no_content_can_have_teaches_nothing(lie: int) -> None:
    size = measure_text("a word or two " * 100)
    learned = PLAIN.learn(size, 0, 300)
    for known in (PLAIN, learned):
        assert known.learn(size, 0, lie) is known
        assert known.refused(size, 0, lie) is known
    assert PLAIN.learn(size, 0, 20_000).whole(size, 0) >= 20_000  # a provider may put much before it


@given(st.lists(st.tuples(st.text(max_size=200), st.integers(1, 10**6)), max_size=8))
def test_any_usage_leaves_an_estimator_that_works(calls: list[tuple[str, int]]) -> None:
    estimator = PLAIN
    for text, real in calls:
        estimator = estimator.learn(measure_text(text), 0, real)
        size = measure_text(text * 2)
        assert msgspec.convert(msgspec.to_builtins(estimator), Estimator) == estimator
        assert estimator.whole(size, 0) >= estimator.forecast(size, 0) - 1
        assert estimator.whole(size, 0) >= PLAIN.whole(size, 0)
        assert estimator.forecast(size, 0) >= 1


def test_the_whole_view_is_never_above_the_sum_of_its_items() -> None:
    view = items(user("abc"), says("defg"), user("h"))
    assert PLAIN.items(view) == 2 <= sum(map(PLAIN.item, view))


def test_a_gauge_measures_an_entry_again_when_its_message_was_replaced() -> None:
    gauge = Gauge()
    first = gauge.measure(Item("e1", user("x" * 400)))
    assert gauge.measure(Item("e1", user("x" * 40))).seed == 40 != first.seed


@given(st.text(max_size=300), st.text(max_size=300))
def test_measures_add_up_and_grow_with_the_text(one: str, two: str) -> None:
    whole, parts = measure_text(one + two), measure_text(one) + measure_text(two)
    assert parts.raw == whole.raw
    assert abs(parts.seed - whole.seed) <= 1
    assert whole.seed >= measure_text(one).seed
    assert Measure() == measure_text("")


# --- recorded sessions ----------------------------------------------------------------


def test_usage_recorded_before_a_compaction_says_nothing_about_the_view_after_it() -> None:
    view = case_view(
        [
            {"type": "message", "id": "e1", "message": {"role": "user", "content": "a"}},
            {
                "type": "message",
                "id": "e2",
                "message": {"role": "assistant", "content": "b", "usage": {"input": 170_000, "output": 10}},
            },
            {
                "type": "compaction",
                "id": "e3",
                "summary": "Summary: task T-41 open.",
                "firstKeptEntryId": "e2",
            },
            {"type": "message", "id": "e4", "message": {"role": "user", "content": "c"}},
        ]
    )
    assert PLAIN.items(view) < 100


SESSIONS = os.environ.get("PERDURE_SESSIONS", "")


@pytest.mark.skipif(not SESSIONS, reason="PERDURE_SESSIONS names no folder of recorded sessions")
def test_real_texts_are_not_denser_than_the_careful_estimate_by_much() -> None:
    worst = []
    for path in sorted(Path(SESSIONS).glob("*.jsonl")):
        careful = real = 0
        for line in path.read_bytes().split(b"\n"):
            try:
                found = json.loads(line).get("message")
            except (ValueError, AttributeError):
                continue
            for block in found.get("content", []) if isinstance(found, dict) else []:
                if isinstance(block, dict) and isinstance(block.get("text"), str):
                    careful += CAREFUL.tokens(measure(user(block["text"])))
                    real += REAL.count(block["text"].encode("utf-8", "replace").decode())
        if real:
            worst.append((real / max(1, careful), path.name))
    assert all(ratio < 1.6 for ratio, _ in worst), worst
