"""Tokens and the prompt cache, to the token and to the second."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_models import INFO, assistant, body, result, text, tool, use, user
from perdure.edges.models.accounting import Accounting, Plan
from perdure.edges.models.tokenizer import PIECE, TOKENIZER, Tokenizer, pieces

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SYSTEM = "You are careful. " * 20


def marked(value: str, mark: dict[str, Any] = MARK) -> dict[str, Any]:
    return text(value, cache_control=mark)


def ask(books: Accounting, data: dict[str, Any], now: float = 0.0, model: Any = INFO) -> Plan:
    plan = books.plan(data, model, now)
    books.commit(plan, now)
    return plan


def test_the_second_request_reads_what_the_first_wrote() -> None:
    books, data = Accounting(), body(user("hi"), system=[marked(SYSTEM)], tools=[tool()])
    first, second = ask(books, data), ask(books, data)
    assert first.read == 0
    assert first.write_5m == second.read > INFO.cache_minimum
    assert second.write_5m == 0
    assert first.tokens == second.tokens == books.count(data)


def test_the_three_counters_sum_up_to_the_prompt() -> None:
    books = Accounting()
    data = body(user("hi"), user(marked("more words")), system=[marked(SYSTEM, HOUR)], tools=[tool()])
    for now in (0.0, 1.0, 400.0, 4000.0):
        used = ask(books, data, now).usage(INFO, 1)
        assert used.prompt == books.count(data)


def test_an_entry_lives_five_minutes_and_each_hit_renews_it() -> None:
    books, data = Accounting(), body(system=[marked(SYSTEM)])
    ask(books, data, 0)
    assert ask(books, data, 299).read > 0
    assert ask(books, data, 299 + 299).read > 0
    assert ask(books, data, 299 + 299 + 300).read == 0


def test_an_hour_is_an_hour_and_costs_twice_the_input() -> None:
    books, data = Accounting(), body(system=[marked(SYSTEM, HOUR)])
    first = ask(books, data, 0)
    assert first.write_1h > 0 == first.write_5m
    assert ask(books, data, 3599).read == first.write_1h
    cost = first.usage(INFO, 0).cost_usd
    assert cost == pytest.approx((first.input + 2 * first.write_1h) * INFO.price_input / 1e6)


def test_both_lives_in_one_request_are_billed_apart() -> None:
    books = Accounting()
    plan = ask(books, body(user(marked("tail " * 50)), system=[marked(SYSTEM, HOUR)]))
    assert plan.write_1h == ask(Accounting(), body(system=[marked(SYSTEM, HOUR)])).write_1h
    assert plan.write_5m >= 50


def test_a_prefix_below_the_minimum_is_neither_written_nor_read() -> None:
    books, data = Accounting(), body(system=[marked("short")])
    for _ in range(2):
        plan = ask(books, data)
        assert (plan.read, plan.write_5m, books.entries) == (0, 0, 0)


def test_parallel_first_requests_all_miss() -> None:
    books, data = Accounting(), body(system=[marked(SYSTEM)])
    plans = [books.plan(data, INFO, 0.0) for _ in range(3)]
    for plan in plans:
        books.commit(plan, 1.0)
    assert [plan.read for plan in plans] == [0, 0, 0]
    assert ask(books, data, 2.0).read > 0


@pytest.mark.parametrize(("new", "hit"), [(19, True), (20, False)])
def test_a_mark_looks_back_over_twenty_blocks_itself_included(new: int, hit: bool) -> None:
    books = Accounting()
    first = [text(f"block {n} {SYSTEM}") for n in range(3)]
    ask(books, body(user(*first[:2], {**first[2], "cache_control": MARK})))
    later = [text(f"new {n}") for n in range(new)]
    later[-1] = {**later[-1], "cache_control": MARK}
    assert (ask(books, body(user(*first, *later))).read > 0) is hit


def test_an_earlier_mark_serves_where_the_last_one_reaches_nothing() -> None:
    books = Accounting()
    ask(books, body(user("x"), system=[marked(SYSTEM)]))
    far = [text(f"new {n}") for n in range(40)]
    far[-1] = {**far[-1], "cache_control": MARK}
    plan = ask(books, body(user(*far), system=[marked(SYSTEM)]))
    assert plan.read > 0
    assert plan.write_5m > 80


def turn(*more: dict[str, Any], **options: Any) -> dict[str, Any]:
    return body(
        user(marked("question " + SYSTEM)), *more, system=[marked(SYSTEM)], **{"tools": [tool()], **options}
    )


BASE = {"tools": 0, "system": 1, "messages": 2}
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": (turn(), "messages"),
    "more messages": (turn(assistant(text("a")), user("b")), "messages"),
    "max_tokens and temperature": (turn(max_tokens=5, temperature=0.5, stream=True), "messages"),
    "tool choice": (turn(tool_choice={"type": "auto"}), "system"),
    "thinking": (turn(thinking={"type": "adaptive"}), "system"),
    "a tool's description": (turn(tools=[tool(), tool("write")]), "nothing"),
    "the order of keys": (
        turn(tools=[{"input_schema": {"type": "object"}, "description": "Reads.", "name": "read"}]),
        "nothing",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_costs_of_the_cache(name: str) -> None:
    changed, kept = CHANGES[name]
    books = Accounting()
    whole = ask(books, turn())
    system_only = ask(Accounting(), body(system=[marked(SYSTEM)], tools=[tool()])).write_5m
    read = ask(books, changed).read
    assert read == {"messages": whole.write_5m, "system": system_only, "nothing": 0}[kept]


def test_another_model_shares_nothing() -> None:
    books = Accounting()
    ask(books, body(system=[marked(SYSTEM)]))
    other = msgspec.structs.replace(INFO, id="other")
    assert ask(books, body(system=[marked(SYSTEM)], model="other"), model=other).read == 0


def test_a_moved_mark_leaves_the_bytes_alone() -> None:
    books = Accounting()
    ask(books, body(user(marked(SYSTEM), text("tail"))))
    assert ask(books, body(user(text(SYSTEM), marked("tail")))).read > 0


def test_the_automatic_mark_stands_on_the_last_block() -> None:
    books = Accounting()
    data = body(user(SYSTEM), cache_control=MARK)
    assert ask(books, data).write_5m > 0
    assert ask(books, data).input == 3  # all but the framing of the request


def test_memory_of_entries_and_counts_is_bounded() -> None:
    counts = Tokenizer(remembered=10)
    books = Accounting(counts, limit=8)
    for n in range(50):
        ask(books, body(system=[marked(f"{n} {SYSTEM}")]))
        books.text(f"answer {n}")
    assert books.entries == 8
    assert len(counts._counts) == 10


def test_results_and_calls_are_counted_with_their_contents() -> None:
    books = Accounting()
    loop = body(user("a"), assistant(use("A", path="notes.md")), user(result("A", [text("word " * 100)])))
    assert books.count(loop) > books.count(body(user("a"))) + 100


@pytest.mark.parametrize("unit", ["a", " ", "ab", "的", "\n", "0", "!", "😀", "\ud83d", "é́"])
def test_hostile_repetition_is_counted_in_linear_time(unit: str) -> None:
    TOKENIZER.count("warm")
    start = time.process_time()
    assert TOKENIZER.count(unit * (600_000 // len(unit))) > 0
    assert time.process_time() - start < 2.0


@given(st.text(max_size=40).map(lambda s: s * 400))
@settings(max_examples=50, deadline=None)
def test_a_long_text_is_cut_into_pieces_that_make_it_up(value: str) -> None:
    cut = pieces(value)
    assert "".join(cut) == value
    assert all(0 < len(piece) <= PIECE for piece in cut) or not value


def test_a_text_is_cut_at_a_number_of_tokens() -> None:
    assert TOKENIZER.cut("one two three four", 2) == "one two"
    assert TOKENIZER.cut("short", 100) == "short"
    assert TOKENIZER.count(TOKENIZER.cut("word " * 9000, 5000)) == 5000


def test_a_large_history_is_planned_in_a_fraction_of_a_second() -> None:
    books = Accounting()
    turns = [m for n in range(5000) for m in (assistant(use(f"t{n}", path=f"{n}.md")), user(result(f"t{n}")))]
    data = body(user("go"), *turns, user(marked("now")), tools=[tool()])
    ask(books, data)
    start = time.process_time()
    ask(books, data)
    assert time.process_time() - start < 0.6
