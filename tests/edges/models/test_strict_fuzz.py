"""Whatever a request holds, strict refuses or lets it in, and the books can take what it let in."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_models import INFO, body, result, text, tool, use
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.strict import Refused, validate

KEYS = st.sampled_from(
    ["type", "text", "name", "id", "content", "role", "source", "media_type", "data", "ttl", "cache_control"]
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["text", "image", "base64", "tool", "custom"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)
MARK = st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, {"ttl": "1h"}, None])
IDS = st.sampled_from(["A", "B", "C|d"])
BLOCKS = st.one_of(
    st.builds(text, st.sampled_from(["", " ", "words"])),
    st.builds(lambda mark: text("marked", cache_control=mark), MARK),
    st.builds(use, IDS),
    st.builds(result, IDS, st.sampled_from(["", "ok", [text("x")], [text("")], None, [5]])),
    st.builds(
        lambda sign: {"type": "thinking", "thinking": "t", **sign}, st.sampled_from([{}, {"signature": "s"}])
    ),
    st.builds(lambda data: {"type": "image", "source": data}, JUNK),
    JUNK,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant"]),
            "content": st.lists(BLOCKS, max_size=3) | st.just("text"),
        }
    ),
    st.fixed_dictionaries({"role": JUNK, "content": JUNK}),
    JUNK,
)
FIELDS = (
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "max_tokens",
    "temperature",
    "cache_control",
    "stream",
    "x",
)


@given(
    st.lists(MESSAGES, max_size=5),
    st.dictionaries(st.sampled_from(FIELDS), JUNK | st.just([tool()]), max_size=2),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_request_whatever_crashes_the_door_or_the_books(
    messages: list[Any], more: dict[str, Any], known: bool
) -> None:
    data = {**body(), "messages": messages, **more}
    data = msgspec.json.decode(msgspec.json.encode(data))
    try:
        validate(data, known=known, model=INFO)
    except Refused:
        return
    books = Accounting()
    plan = books.plan(data, INFO, 0.0)
    assert plan.tokens == books.count(data) == plan.input + plan.read + plan.write_5m + plan.write_1h
    assert plan.input >= 0
