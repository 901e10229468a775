"""Messages: any JSON whatever decodes, what we write comes back the same, synonyms mean the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.edges.session.decode import (
    decode_block,
    decode_entry,
    decode_message,
    encode_message,
    entry_message,
    line_message,
    millis,
)
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Message,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

# Halves of surrogate pairs are texts too (a cut emoji); side by side they are one character, not two.
WORDS = st.text(st.characters(exclude_categories=())).map(
    lambda s: s.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
COUNT = st.integers(0, 2**53)
MAYBE = st.none() | WORDS
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=6,
)
OBJECTS = st.dictionaries(WORDS, st.integers() | st.booleans() | WORDS).map(
    lambda value: json.dumps(value, separators=(",", ":")).encode()
)
BLOCKS = st.one_of(
    st.builds(Text, WORDS, MAYBE),
    st.builds(Thinking, WORDS, st.none() | WORDS.filter(bool), st.booleans()),
    st.builds(Image, WORDS.filter(bool), WORDS.filter(bool)),
    st.builds(ToolCall, WORDS, WORDS, OBJECTS, MAYBE),
    st.builds(lambda n: Opaque("strange", b'{"type":"strange","n":%d}' % n), st.integers(0, 99)),
)
CONTENT = st.lists(BLOCKS, max_size=4).map(tuple)
PRICE = st.floats(0, 1e9)
USAGE = st.none() | st.builds(Usage, COUNT, COUNT, COUNT, COUNT, PRICE)
STOPS = st.sampled_from(["stop", "length", "toolUse", "error", "aborted"])
ORIGINS = st.none() | st.builds(Provenance, WORDS, MAYBE, MAYBE, MAYBE)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(User, CONTENT, COUNT, ORIGINS),
    st.builds(Assistant, CONTENT, STOPS, WORDS, WORDS, WORDS, USAGE, MAYBE, COUNT),
    st.builds(ToolResult, WORDS, WORDS, CONTENT, st.booleans(), st.none() | OBJECTS, COUNT),
    st.builds(Summary, WORDS, COUNT, COUNT),
    st.builds(BranchSummary, WORDS, WORDS, COUNT),
    st.builds(Bash, WORDS, WORDS, st.none() | st.integers(-9, 255), st.booleans(), st.booleans(), MAYBE),
    st.builds(Custom, WORDS, CONTENT, st.booleans(), COUNT),
)


def loose(message: Message) -> Message:
    """Arguments and details by value: where a half of a pair forces another encoder, spelling may differ."""
    return json.loads(json.dumps(_plain(message)))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return json.loads(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "__struct_fields__"):
        return [type(value).__name__, *(_plain(getattr(value, name)) for name in value.__struct_fields__)]
    return value


def counted(message: Message) -> Message:
    """An answer of which no usage is known has one of zero in the file: the format's readers rely on it."""
    if isinstance(message, Assistant) and message.usage is None:
        return replace(message, usage=Usage())
    return message


@given(MESSAGES)
def test_what_is_written_comes_back_the_same(message: Message) -> None:
    raw = encode_message(message)
    back = decode_message(raw)
    assert back is not None
    assert loose(back) == loose(counted(message))
    assert b"\n" not in raw
    assert decode_message(encode_message(back)) == back


@given(MESSAGES)
def test_one_pass_over_a_line_decodes_as_two_do(message: Message) -> None:
    raw = b'{"type":"message","id":"a","message":' + encode_message(message) + b"}"
    assert (
        line_message(raw, "message")
        == entry_message(decode_entry(raw))
        == decode_message(encode_message(message))
    )


def test_bytes_of_arguments_are_kept_as_the_file_has_them() -> None:
    raw = (
        b'{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{ "a" : 1.0 }}]}'
    )
    message = decode_message(raw)
    assert isinstance(message, Assistant)
    assert isinstance(call := message.content[0], ToolCall)
    assert call.arguments == b'{ "a" : 1.0 }'
    assert b'{ "a" : 1.0 }' in encode_message(message)


def test_arguments_that_span_lines_are_written_in_one() -> None:
    message = Assistant((ToolCall("c", "n", b'{\n "a": 1\n}'),))
    assert b'"arguments":{"a":1}' in encode_message(message)


def test_text_stays_readable_and_halves_become_escapes() -> None:
    assert "naïve ✓ 😀".encode() in encode_message(User((Text("naïve ✓ 😀"),)))
    assert rb"cut \ud83d here" in encode_message(User((Text("cut \ud83d here"),)))


ROLES = [
    "user",
    "assistant",
    "toolResult",
    "custom",
    "compactionSummary",
    "branchSummary",
    "bashExecution",
    "odd",
]
FIELDS = [
    *(
        "content",
        "timestamp",
        "usage",
        "stopReason",
        "toolCallId",
        "details",
        "summary",
        "provenance",
        "isError",
    ),
    *("exitCode", "command", "output", "tokensBefore", "display", "errorMessage", "model"),
]
ODD: list[Any] = [
    None,
    True,
    -1,
    1e308,
    10**400,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [[]],
    {"a": [1]},
    {"kind": 5},
]
ODD += [
    [{"type": t, "text": x, "id": x, "arguments": x, "source": x}]
    for t in ("text", "toolCall", 5)
    for x in (7, {})
]
ODD += [
    [{"type": "image", "source": {"data": None}}],
    {"input": "x", "cost": {"total": "y"}},
    {"input": 1e99},
]


@given(
    role=st.sampled_from(ROLES) | st.sampled_from(ODD),
    fields=st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(ODD) | JSON, max_size=6),
)
def test_any_json_whatever_decodes_or_is_no_message(role: Any, fields: dict[str, Any]) -> None:
    message = decode_message(json.dumps({"role": role, **fields}).encode())
    if not isinstance(role, str) or role not in ROLES[:-1]:
        assert message is None
        return
    assert message is not None
    again = decode_message(encode_message(message))
    assert again is not None
    assert encode_message(again) == encode_message(message)


@given(st.binary(max_size=60))
def test_any_bytes_whatever_are_a_message_or_none(data: bytes) -> None:
    assert decode_message(data) is None or data.strip().startswith(b"{")
    assert entry_message(decode_entry(data)) is None or b"{" in data


def user(content: Any) -> tuple[Any, ...]:
    message = decode_message(json.dumps({"role": "user", "content": content}).encode())
    assert isinstance(message, User)
    return message.content


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("hi", (Text("hi"),)),
        ("", (Text(""),)),
        (None, ()),
        ([], ()),
        ([None], ()),
        (["hi"], (Text("hi"),)),
        ([{"type": "text"}], (Text(""),)),
        ([{"type": "text", "text": None}], (Text(""),)),
        ([{"type": "audio", "x": 1}], (Opaque("audio", b'{"type": "audio", "x": 1}'),)),
        ([{"x": 1}], (Opaque("", b'{"x": 1}'),)),
        ([7], (Opaque("", b"7"),)),
        (7, (Opaque("", b"7"),)),
        ([{"type": "redacted_thinking", "data": "zz"}], (Thinking("", "zz", True),)),
        (
            [{"type": "image", "source": {"media_type": "image/gif", "data": "R0"}}],
            (Image("R0", "image/gif"),),
        ),
    ],
    ids=repr,
)
def test_contents_of_every_shape(content: Any, blocks: tuple[Any, ...]) -> None:
    assert user(content) == blocks


@pytest.mark.parametrize("kind", ["toolCall", "toolUse", "functionCall", "tool_use"])
@pytest.mark.parametrize("field", ["arguments", "input"])
def test_synonyms_of_a_call_mean_the_same(kind: str, field: str) -> None:
    assert user([{"type": kind, "id": "c", "name": "n", field: {"a": 1}}]) == (
        ToolCall("c", "n", b'{"a": 1}'),
    )


@pytest.mark.parametrize("arguments", [None, '{"a":1}', "plain", "", "{", [1], {"a": 1}])
def test_arguments_are_kept_as_they_were_written(arguments: Any) -> None:
    call = user([{"type": "toolCall", "id": "c", "name": "n", "arguments": arguments}])[0]
    assert json.loads(call.arguments) == arguments


def test_arguments_that_are_not_there_are_told_from_empty_ones() -> None:
    assert user([{"type": "toolCall", "id": "c", "name": "n"}])[0].arguments == b"null"


@pytest.mark.parametrize(
    "field", ["toolCallId", "toolUseId", "tool_use_id", "tool_call_id", "callId", "call_id"]
)
def test_synonyms_of_a_results_id_mean_the_same(field: str) -> None:
    message = decode_message(json.dumps({"role": "toolResult", field: "c", "content": "out"}).encode())
    assert message == ToolResult("c", "", (Text("out"),))


def test_details_are_carried_as_bytes_and_null_is_none() -> None:
    with_details = decode_message(b'{"role":"toolResult","toolCallId":"c","content":[],"details":{"x" : 1}}')
    without = decode_message(b'{"role":"toolResult","toolCallId":"c","content":[],"details":null}')
    assert isinstance(with_details, ToolResult)
    assert isinstance(without, ToolResult)
    assert (with_details.details, without.details) == (b'{"x" : 1}', None)


@pytest.mark.parametrize(
    ("stop", "error", "ours"),
    [
        ("tool_use", None, "toolUse"),
        ("max_tokens", None, "length"),
        ("new", None, "stop"),
        (None, "x", "error"),
    ],
)
def test_unknown_stops_are_read_as_the_nearest(stop: Any, error: Any, ours: str) -> None:
    message = decode_message(
        json.dumps({"role": "assistant", "stopReason": stop, "errorMessage": error}).encode()
    )
    assert isinstance(message, Assistant)
    assert message.stop == ours


def test_the_older_name_of_a_custom_message_is_known() -> None:
    assert decode_message(b'{"role":"hookMessage","customType":"t","content":"c"}') == Custom(
        "t", (Text("c"),)
    )


@pytest.mark.parametrize(
    ("stamp", "ms"),
    [
        ("2026-01-05T08:00:00.250Z", 1767600000250),
        (5.9, 5),
        ("never", 0),
        (None, 0),
    ],
)
def test_times_are_milliseconds(stamp: Any, ms: int) -> None:
    assert millis(stamp) == ms


def test_a_null_block_is_nothing() -> None:
    assert decode_block(b"null") is None


@pytest.mark.parametrize(("summary", "seen"), [("left", True), ("", False), (None, False)])
def test_only_a_branch_summary_that_says_something_is_seen(summary: str | None, seen: bool) -> None:
    raw = json.dumps({"type": "branch_summary", "id": "b", "fromId": "a", "summary": summary}).encode()
    assert (entry_message(decode_entry(raw)) is not None) is seen


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 2}, Usage(3, 4, 2)),
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9}, Usage(3, 4)),
        ({"promptTokens": 3, "completionTokens": 4, "cache_creation_input_tokens": 5}, Usage(3, 4, 0, 5)),
        ({"input": 1, "input_tokens": 3, "output": -2}, Usage(1)),
    ],
)
def test_usage_is_read_under_the_names_that_vendors_give_it(usage: dict[str, int], wanted: Usage) -> None:
    message = decode_message(json.dumps({"role": "assistant", "content": [], "usage": usage}).encode())
    assert isinstance(message, Assistant)
    assert message.usage == wanted


def test_a_number_names_no_tool() -> None:
    block = decode_block(b'{"type":"toolCall","id":7,"name":5,"arguments":{}}')
    assert block == ToolCall("7", "")
