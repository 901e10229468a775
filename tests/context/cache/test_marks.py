"""Marks against an exact account of a provider's cache: each call reads all that the last one left there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.cache.contract import MAX_MARKS, Retention
from perdure.context.policy import policy_for
from perdure.context.prompt.boundary import BOUNDARY
from perdure.context.wire import Memo, render
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.strict import validate
from perdure.records import Items, Message, ModelInfo, Text, ToolSpec, User

MODEL = replace(SONNET, cache_minimum=16)
READ = ToolSpec("read", "Reads", b'{"type":"object"}')
WORDS = "a lemon tree in row seven "


class Provider:
    """Counts each request as the provider would, one second after the other."""

    def __init__(self, retention: Retention = "short") -> None:
        self.books, self.memo, self.now, self.left = Accounting(), Memo(), 0.0, 0
        self.retention: Retention = retention

    def ask(self, view: Items, model: ModelInfo = MODEL) -> tuple[int, int]:
        """Tokens read from the cache, and tokens left in it for the next call."""
        body = render(
            view,
            system=f"stable {WORDS * 3}\n{BOUNDARY}\nnow",
            tools=(READ,),
            model=model,
            policy=policy_for(model),
            max_tokens=4_000,
            retention=self.retention,
            memo=self.memo,
        )
        found = json.loads(body)
        validate(found, model=model)
        check_marks(found)
        plan = self.books.plan(found, model, self.now)
        self.books.commit(plan, self.now)
        self.now += 1
        return plan.read, plan.read + plan.write_5m + plan.write_1h


def check_marks(body: dict[str, Any]) -> None:
    """Four at most, longer lives first."""
    blocks = [*body["tools"], *body["system"], *(b for m in body["messages"] for b in m["content"])]
    lives = [b["cache_control"].get("ttl", "5m") for b in blocks if "cache_control" in b]
    assert 1 <= len(lives) <= MAX_MARKS
    assert lives == sorted(lives, key=["1h", "5m"].index)


def step(n: int, width: int) -> list[Message]:
    """An answer that calls tools in parallel, and their results."""
    made = [call(f"c{n}x{k}") for k in range(width)]
    return [says(*made, stop="toolUse"), *(result(each.id, WORDS) for each in made)]


STEPS = st.lists(st.one_of(st.integers(1, 45), st.integers(1, 3)), min_size=1, max_size=14)


@given(STEPS, st.sampled_from(["short", "long"]))
def test_each_step_reads_all_that_the_one_before_left_however_many_calls_it_made(
    widths: list[int], retention: Retention
) -> None:
    provider, view = Provider(retention), [user("go " + WORDS)]
    _, left = provider.ask(items(*view))
    for n, width in enumerate(widths):
        view += step(n, width)
        read, now = provider.ask(items(*view))
        assert read == left
        left = now


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=1, max_size=8))
def test_each_turn_reads_all_that_the_one_before_left_however_much_was_said(
    turns: list[tuple[int, int]],
) -> None:
    provider, view, left = Provider(), list[Message](), 0
    for n, (width, parts) in enumerate(turns):
        view.append(User(tuple(Text(f"{WORDS}{n} {k}") for k in range(parts)), 1))
        if width:
            view += step(n, width)
        read, now = provider.ask(items(*view))
        if n:
            assert read == left
        left = now
        view.append(says(WORDS))


@given(st.integers(1, 60), st.integers(1, 60))
def test_what_is_said_after_a_call_that_failed_costs_no_more_than_the_message_it_joins(
    first: int, more: int
) -> None:
    """The failed request ended inside the message that now goes on: up to twenty blocks back it is found."""
    provider, view = Provider(), [user("go " + WORDS), says(WORDS)]
    view.append(User(tuple(Text(f"{WORDS}{k}") for k in range(first)), 1))
    _, left = provider.ask(items(*view))
    before = provider.ask(items(*view[:1]))[1]
    view.append(User(tuple(Text(f"{WORDS}more {k}") for k in range(more)), 1))
    read, _ = provider.ask(items(*view))
    assert read == left if more < 20 else read >= before


@pytest.mark.parametrize("boundary", [True, False])
def test_the_marks_have_one_owner_and_a_second_render_moves_none(boundary: bool) -> None:
    view = items(user("go"), *step(0, 40), says("on"), user("more"), *step(1, 40), user("and"))
    system = f"stable\n{BOUNDARY}\nnow" if boundary else "stable"
    bodies = {
        render(view, system=system, tools=(READ,), model=MODEL, policy=policy_for(MODEL), max_tokens=9)
        for _ in range(2)
    }
    assert len(bodies) == 1
    check_marks(json.loads(bodies.pop()))
