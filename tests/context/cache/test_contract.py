"""The cache: marks within the provider's rules, breaks by the seed's test, changes by their codes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.cache.contract import (
    SPACING,
    Observation,
    differences,
    digest,
    is_break,
    marked_messages,
    snapshot,
)
from perdure.context.cache.prefix import Parting, Prefix
from perdure.context.policy import policy_for
from perdure.context.prompt import boundary
from perdure.context.prompt.boundary import BOUNDARY
from perdure.context.wire import Memo, render, render_dict
from perdure.records import Items, Text, Thinking, ToolSpec

READ = ToolSpec("read", "Reads", b'{"type":"object"}')

# --- the boundary -------------------------------------------------------------------------------------


def test_our_marker_and_the_foreign_one_mean_the_same() -> None:
    ours = f"a\n{BOUNDARY}\nb"
    theirs = "a\n<!-- OPENCLAW_CACHE_BOUNDARY -->\nb"
    assert boundary.split(ours) == boundary.split(theirs) == ("a", "b")
    assert boundary.insert_after_boundary(ours, "x") == f"a\n{BOUNDARY}\nx\n\nb"


# --- observations -------------------------------------------------------------------------------------


def test_what_changed_before_a_call_that_never_completed_is_not_forgotten() -> None:
    one, two = snapshot(SONNET, "a", ["read"]), snapshot(SONNET, "b", ["read"])
    seen = Observation().begin(one).complete(50_000)[0].begin(two).begin(two)
    broke = seen.complete(0)[1]
    assert broke is not None
    assert [change.code for change in broke.changes] == ["systemPrompt"]


@pytest.mark.parametrize(
    ("previous", "read", "broke"),
    [
        (50_000, 47_500, False),
        (50_000, 47_499, True),
        (10_000, 9_001, False),
        (10_000, 9_000, True),
        (0, 0, False),
    ],
)
def test_a_break_is_a_drop_below_95_percent_and_by_1000_tokens(previous: int, read: int, broke: bool) -> None:
    assert is_break(previous, read) is broke


def test_the_order_of_tools_is_no_change_but_their_names_are() -> None:
    one, other = snapshot(SONNET, "s", ["a", "b"]), snapshot(SONNET, "s", ["b", "a"])
    assert differences(one, other) == ()
    assert [c.detail for c in differences(one, snapshot(SONNET, "s", ["a"]))] == ["2 -> 1 tools"]
    assert digest("s") == one.system_digest


# --- marks --------------------------------------------------------------------------------------------


def body(view: Items, **more: Any) -> bytes:
    wanted: dict[str, Any] = {"system": f"stable\n{BOUNDARY}\nnow", "tools": (READ,), "max_tokens": 4000}
    return render(view, model=SONNET, policy=policy_for(SONNET), **(wanted | more))


def marks(raw: bytes) -> list[str]:
    found = render_dict(raw)
    places = [f"system.{n}" for n, block in enumerate(found.get("system", [])) if "cache_control" in block]
    for n, message in enumerate(found["messages"]):
        places += [f"{n}.{m}" for m, block in enumerate(message["content"]) if "cache_control" in block]
    return places


def loop(steps: int, width: int = 1) -> Items:
    found = [user("go")]
    for n in range(steps):
        calls = [call(f"c{n}x{k}") for k in range(width)]
        found += [says(*calls, stop="toolUse"), *(result(each.id) for each in calls)]
    return items(*found)


@given(st.lists(st.integers(1, 30), max_size=12))
def test_there_are_never_more_than_four_marks(widths: list[int]) -> None:
    found = [user("go")]
    for n, width in enumerate(widths):
        calls = [call(f"c{n}x{k}") for k in range(width)]
        found += [says(*calls), *(result(each.id) for each in calls)]
    raw = body(items(*found), retention="long")
    assert raw.count(b"cache_control") == len(marks(raw)) <= 4
    assert render_dict(raw)["messages"][-1]["content"][-1]["cache_control"] == {
        "type": "ephemeral",
        "ttl": "1h",
    }


@pytest.mark.parametrize("width", [1, 9, 10, 25])
def test_each_request_marks_the_place_where_the_request_before_ended(width: int) -> None:
    for steps in range(1, 6):
        before, after = body(loop(steps, width)), body(loop(steps + 1, width))
        assert marks(before)[-1] in marks(after)


def test_an_older_mark_stands_within_the_look_back_of_the_previous_end() -> None:
    raw = body(loop(40))
    places = [int(place.split(".")[0]) for place in marks(raw) if place[0] != "s"]
    assert len(places) == 3
    blocks = sum(len(m["content"]) for m in render_dict(raw)["messages"][places[0] : places[1]])
    assert SPACING <= blocks <= 20


def test_moving_a_mark_changes_no_other_byte() -> None:
    view = loop(3)
    plain, marked = render_dict(body(view, retention="none")), render_dict(body(view))
    for message in marked["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
    assert marked["messages"] == plain["messages"]


def test_only_the_part_above_the_boundary_is_marked_and_no_marker_is_sent() -> None:
    found = render_dict(body(loop(0)))
    assert found["system"][0] == {"type": "text", "text": "stable", "cache_control": {"type": "ephemeral"}}
    assert found["system"][1] == {"type": "text", "text": "now"}
    assert "CACHE_BOUNDARY" not in json.dumps(render_dict(body(loop(0), retention="none")))


def test_a_model_without_caching_gets_no_marks() -> None:
    raw = render(
        loop(2),
        system="s",
        tools=(READ,),
        model=replace(SONNET, caching=False),
        policy=policy_for(SONNET),
        max_tokens=10,
    )
    assert marks(raw) == []


def test_a_history_without_messages_has_nothing_to_mark() -> None:
    assert marked_messages([]) == ()


# --- where two requests part --------------------------------------------------------------------------


def parting(before: Items, after: Items, **more: Any) -> Parting | None:
    """Where the second of two requests of one session parts from the first."""
    memo, prefix = Memo(), Prefix()
    assert prefix.follow(memo, body(before, memo=memo)) is None
    return prefix.follow(memo, body(after, memo=memo, **more))


def bare(view: Items, **more: Any) -> bytes:
    """The body without marks."""
    return re.sub(rb',"cache_control":\{[^}]*\}', b"", body(view, **more))


def changed(view: Items, at: int, message: Any) -> Items:
    return (*view[:at], replace(view[at], message=message), *view[at + 1 :])


def test_a_request_that_continues_another_parts_from_it_nowhere() -> None:
    assert parting(loop(2), loop(5)) is None
    assert parting(loop(2), (*loop(2), *items(user("steer")))) is None


@given(st.integers(0, 12), st.data())
def test_the_first_difference_is_told_by_byte_message_block_and_entry(steps: int, data: Any) -> None:
    view = loop(steps + 1, 3)
    at = data.draw(
        st.sampled_from([n for n, item in enumerate(view) if "Result" in type(item.message).__name__])
    )
    other = changed(view, at, replace(view[at].message, content=(Text("other"),)))
    found = parting(view, other)
    assert found is not None
    one, two = bare(view), bare(other)
    assert (found.part, found.index, found.block) == ("messages", 2 * ((at - 2) // 4 + 1), (at - 2) % 4)
    assert one[: found.byte] == two[: found.byte]
    assert one[found.byte] != two[found.byte]
    assert set(found.entries) == {view[at].entry}


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ("system", {"system": "other"}),
        ("tools", {"tools": (replace(READ, description="x"),)}),
        ("settings", {"thinking_level": "high"}),
    ],
)
def test_a_difference_before_or_behind_the_messages_is_named(part: str, more: dict[str, Any]) -> None:
    found = parting(loop(2), loop(2), **more)
    assert found is not None
    assert found.part == part
    one, two = bare(loop(2)), bare(loop(2), **more)
    if part != "settings":  # `max_tokens`, which loses nothing, stands before those
        assert one[: found.byte] == two[: found.byte]
        assert one[found.byte] != two[found.byte]


def test_output_room_and_moved_marks_are_no_difference() -> None:
    assert parting(loop(2), loop(2), max_tokens=7) is None
    assert parting(loop(2), loop(2), retention="long") is None


def test_a_message_that_is_gone_is_a_difference() -> None:
    found = parting(loop(3), loop(2))
    assert found is not None
    assert (found.part, found.index) == ("messages", 5)


def test_a_fingerprint_tells_after_a_restart_which_part_is_another() -> None:
    def again(view: Items, **more: Any) -> str:
        memo, before, after = Memo(), Prefix(), Prefix()
        before.follow(memo, body(loop(4), memo=memo))
        after.follow(fresh := Memo(), body(view, memo=fresh, **more))
        found = after.against(before.fingerprint)
        return "" if found is None else found.part

    assert again(loop(4)) == again(loop(9)) == ""
    assert again((*loop(4), *items(user("more in the same message")))) == "messages"
    assert again(changed(loop(9), 4, result("c1x0", "other"))) == "messages"
    assert again(loop(4), system="other") == "system"
    assert again(loop(4), tools=()) == "tools"
    assert again(loop(4), thinking_level="high") == "settings"


@pytest.mark.parametrize("text", ["", "no", "A" * 40 + "x", "A" * 40 + "-1", "é" * 41])
def test_what_is_no_fingerprint_tells_nothing(text: str) -> None:
    prefix, memo = Prefix(), Memo()
    prefix.follow(memo, body(loop(1), memo=memo))
    assert prefix.against(text) is None


def test_a_budget_of_thinking_falls_in_steps_while_the_room_shrinks() -> None:
    """Each change of it costs the cached messages."""
    room = range(40_000, 1_500, -100)
    budgets = [
        render_dict(body(loop(0), max_tokens=n, thinking_level="high"))["thinking"]["budget_tokens"]
        for n in room
    ]
    assert len(set(budgets)) <= 5
    assert budgets == sorted(budgets, reverse=True)


def test_marks_never_stand_on_thinking() -> None:
    view = items(user("a"), says(Thinking("t", "s"), call("c")), result("c"))
    found = render_dict(body(view))
    assert all("cache_control" not in b for b in found["messages"][1]["content"] if b["type"] == "thinking")
