"""Scenario files: what is written is what is read, and what can't be meant is refused with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from helpers_replay import HEADER, lines
from perdure.edges.models import reply
from perdure.errors import UsageError
from perdure.records import Image, Text, Thinking, ToolCall
from perdure.replay import content, steps
from perdure.replay.generate import KINDS
from perdure.replay.scenario import dump, load, parse

USER = {"do": "user", "text": "hi"}
CALL = {"do": "model", "calls": [{"name": "read", "arguments": {"path": "a"}}]}


def read(*rows: str | dict[str, Any]) -> steps.Scenario:
    return parse(lines(*rows), "s.jsonl")


# --- round trips ----------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30).filter(str.strip)
PLACES = st.sampled_from(["agent:main:cli:dm:local", "agent:main:chat:dm:x"])
SPOKEN = st.one_of(
    st.builds(lambda text: {"text": text}, WORDS),
    st.builds(
        lambda kind, chars, seed: {"generate": steps.Generate(kind=kind, chars=chars, seed=seed)},
        st.sampled_from(KINDS),
        st.integers(0, 10**6),
        st.integers(-(2**40), 2**40),
    ),
    st.builds(
        lambda text, data: {
            "content": (steps.TextPart(text=text), steps.ImagePart(data=data, mime_type="image/png"))
        },
        WORDS,
        st.sampled_from(["", "AAAA"]),
    ),
)
CALLS = st.builds(
    lambda names: tuple(
        steps.Call(name=name, id=f"c{n}", arguments=Raw(b'{"k": 1}')) for n, name in enumerate(names)
    ),
    st.lists(WORDS, max_size=3),
)


@st.composite
def scenarios(draw: st.DrawFn) -> steps.Scenario:
    made: list[steps.Step] = []
    clock = 0.0
    for _ in range(draw(st.integers(0, 8))):
        clock = round(clock + draw(st.sampled_from([0.0, 0.001, 1.5, 86_400.0])), 3)
        key = draw(PLACES)
        made.append(steps.UserStep(session=key, at=draw(st.sampled_from([None, clock])), **draw(SPOKEN)))
        calls = draw(CALLS)
        made.append(
            steps.ModelStep(session=key, text=draw(WORDS), calls=calls, latency=draw(st.floats(0, 9)))
        )
        made += [steps.ToolStep(session=key, id=call.id, **draw(SPOKEN)) for call in calls]
        made.append(steps.ExpectStep(session=key, turns=draw(st.sampled_from([1, ">=1", "1..9"]))))
    header = steps.Header(
        name=draw(WORDS), window=draw(st.integers(1, 10**7)), start=draw(st.integers(0, 10**13))
    )
    return steps.Scenario(header, tuple(made))


@given(scenarios())
def test_what_is_dumped_is_read_back_the_same(scenario: steps.Scenario) -> None:
    written = dump(scenario)
    assert parse(written, "s.jsonl") == scenario
    assert dump(parse(written, "s.jsonl")) == written


def test_blocks_survive_the_way_through_a_content_list() -> None:
    blocks = (
        Thinking("why", "sig"),
        Thinking("", "opaque", True),
        Text("so", "mark"),
        Image("AAAA", "image/png"),
        ToolCall("c1", "read", b'{"path":"a"}', "mark"),
    )
    assert content.blocks(content.parts(blocks)) == blocks


def test_short_names_times_and_defaults_are_filled_in() -> None:
    made = parse(
        b"\n".join(
            [
                b'{"scenario": 1, "name": "t", "start": "2026-01-05T08:30:00Z"}',
                b'{"do": "user", "session": "x", "text": "hi", "at": "day 2 09:00"}',
                b'{"do": "model", "session": "x", "text": "yes"}',
                b"",
                b'{"do": "wait", "at": "+1m30s"}',
            ]
        ),
        "s.jsonl",
    )
    spoken, answer, wait = made.steps
    assert isinstance(spoken, steps.UserStep)
    assert isinstance(answer, steps.ModelStep)
    assert isinstance(wait, steps.WaitStep)
    assert made.header.start == 1_767_601_800_000
    assert (spoken.session, spoken.at, steps.moment(spoken)) == ("agent:main:cli:dm:x", 88_200.0, "due")
    assert (answer.latency, wait.at) == (steps.MODEL_LATENCY, 88_290.0)
    assert made.sessions == ("agent:main:cli:dm:x",)


def test_a_step_says_what_it_writes_generates_or_carries() -> None:
    made = read(USER, CALL, {"do": "tool", "generate": {"kind": "log", "chars": 100, "tail": "end"}})
    call, tool = made.steps[1], made.steps[2]
    assert isinstance(call, steps.ModelStep)
    assert isinstance(tool, steps.ToolStep)
    assert content.answered(call) == (ToolCall("", "read", b'{"path": "a"}'),)
    (text,) = content.said(tool)
    assert isinstance(text, Text)
    assert (len(text.text), text.text[-4:]) == (100, "\nend")
    literal = read(USER, {"do": "model", "calls": [{"name": "read", "arguments": '{"path": '}]}).steps[1]
    assert isinstance(literal, steps.ModelStep)
    assert content.answered_calls(literal)[0].arguments == b'{"path": '


def test_faults_are_those_of_the_scripted_model() -> None:
    assert set(get_args(steps.Fault)) == set(get_args(reply.Fault)) - {"none"}


def test_an_abort_means_the_step_above_and_an_expectation_waits() -> None:
    made = read(USER, {"do": "model", "text": "a"}, {"do": "abort"}, {"do": "expect", "turns": 1})
    assert [steps.moment(step) for step in made.steps if not isinstance(step, steps.ModelStep)] == [
        "rest",
        "during",
        "rest",
    ]


# --- refusals -------------------------------------------------------------------------------------

WRONG: list[tuple[list[Any], str]] = [
    (["not json"], "s.jsonl:2: this is no JSON"),
    (["[1]"], "s.jsonl:2: a line must be a JSON object"),
    (['{"text": "hi"}'], 's.jsonl:2: a step needs "do"; one of user'),
    ([{"do": "usr", "text": "hi"}], "s.jsonl:2: 'usr' is no step (did you mean \"user\"?)"),
    ([{"do": "user", "txt": "hi"}], 'a "user" step has no "txt" (did you mean "text"?)'),
    ([{"do": "user", "text": 5}], 'in a "user" step, "text" must be'),
    ([{"do": "user", "text": "  "}], "a user step says something"),
    ([{"do": "user"}], "a user step says something"),
    (
        [{"do": "user", "text": "a", "generate": {"kind": "log", "chars": 5}}],
        'give one of "text" and "generate"',
    ),
    ([{"do": "user", "generate": {"kind": "poem", "chars": 5}}], '"generate.kind"'),
    ([{"do": "user", "generate": {"kind": "log", "chars": -1}}], '"chars" is 0 to'),
    ([{"do": "user", "generate": {"kind": "log", "chars": 3, "tail": "longer"}}], 'raise "chars"'),
    ([{"do": "user", "content": [{"type": "thinking", "thinking": "x"}]}], 'made of "text" and "image"'),
    ([{"do": "user", "text": "a", "session": " "}], '"session" is a key'),
    ([{"do": "user", "text": "a", "at": "soon"}], "'soon' is no time: write seconds"),
    ([{"do": "user", "text": "a", "at": -1}], "before the scenario's start"),
    ([{"do": "user", "text": "a", "at": True}], '"at" must be'),
    ([{"do": "user", "text": "a", "at": "day 0 09:00"}], "days count from 1"),
    (
        [{"do": "user", "text": "a", "at": 9}, {"do": "wait", "at": 8}],
        "s.jsonl:3: the time 8 s lies before the step above",
    ),
    ([{"do": "user", "text": "a", "when": "later"}], '"when"'),
    ([{"do": "user", "text": "a", "when": "due"}], '"when": "due" needs "at"'),
    ([{"do": "abort"}], "there is none"),
    ([USER, CALL, {"do": "abort", "when": "during", "at": 5}], 'leave "at" out'),
    ([{"do": "model", "text": "a"}], "nobody spoke to agent:main:cli:dm:local yet"),
    ([USER, {"do": "model"}], "a model step says something"),
    ([USER, {"do": "model", "fault": "rate_limt"}], '"fault"'),
    ([USER, {"do": "model", "fault": "auth", "text": "a"}], 'nothing arrives before a "auth" fault'),
    ([USER, {"do": "model", "fault": "auth", "retry_after": 3}], '"retry_after" is in seconds and belongs'),
    ([USER, {"do": "model", "text": "a", "retry_after": 3}], '"retry_after" belongs to a "fault"'),
    ([USER, {"do": "model", "fault": "cut", "stop": "stop"}], "of answers"),
    ([USER, {"do": "model", "fault": "malformed_arguments", "text": "a"}], 'needs "calls"'),
    ([USER, {"do": "model", "text": "a", "error": "x"}], 'needs "stop"'),
    ([USER, {"do": "model", "text": "a", "stop": "toolUse"}], 'needs "calls"'),
    ([USER, {"do": "model", "calls": [{"name": "a", "arguments": 5}]}], '"arguments" is an object'),
    ([USER, {"do": "model", "calls": [{"arguments": {}}]}], '"calls[0]" is missing "name"'),
    ([USER, {"do": "model", "text": "a", "latency": -1}], '"latency" is in seconds'),
    ([USER, {"do": "model", "content": [], "thinking": "x"}], 'leave "calls" and "thinking" out'),
    ([USER, {"do": "tool", "text": "a"}], "above calls a tool"),
    ([USER, CALL, {"do": "tool", "name": "raed", "text": "a"}], 'calls "raed" (it calls read)'),
    ([{"do": "command", "text": "compact"}], 'write "/compact"'),
    ([{"do": "file", "path": "a"}], 'a file step needs "text" or "generate"'),
    ([{"do": "crash", "down": -1}], '"down" is in seconds'),
    ([{"do": "expect"}], "an expect step expects nothing"),
    ([{"do": "expect", "turns": "about 3"}], '"turns" is a count: 3, ">=3", "<=3" or "2..5"'),
    ([{"do": "expect", "turns": "5..2"}], '"turns" is a count'),
    ([{"do": "expect", "turns": -1}], '"turns" is a count'),
]


@pytest.mark.parametrize(("rows", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_meant_is_refused_in_one_line_with_the_fix(rows: list[Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(*rows)
    text = str(refused.value)
    assert said in text
    assert text.startswith("s.jsonl:")
    assert "\n" not in text
    assert "`" not in text or "perdure" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty; its first line must be the header"),
        (b" \n\n", "the file is empty"),
        (b'{"type": "session", "id": "x"}', "a session file (use `perdure import`)"),
        (b'{"do": "user", "text": "hi"}', "no scenario; the first line"),
        (b'{"scenario": 2, "name": "t"}', "scenario format 2 is unknown, this perdure reads 1"),
        (b'{"scenario": 1}', 'the header is missing "name"'),
        (b'{"scenario": 1, "name": "t", "windw": 5}', 'has no "windw" (did you mean "window"?)'),
        (b'{"scenario": 1, "name": "t", "window": 0}', '"window" is in tokens and must be positive'),
        (b'{"scenario": 1, "name": "t", "start": "monday"}', "\"start\" 'monday' is no time"),
        (b'\xff\xfe\x00{"scenario": 1}', "byte 0 is not UTF-8"),
        (b"\x7fELF\x00\x00", "this is no JSON"),
    ],
)
def test_a_file_without_a_good_header_is_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(data, "s.jsonl")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="can't be read"):
        load(tmp_path)


def test_loading_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(USER, CALL))
    assert load(path) == read(USER, CALL)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_no_value_anywhere_ends_in_anything_but_a_usage_error(value: Any) -> None:
    for do, kind in [(str(k.__struct_config__.tag), k) for k in get_args(steps.Step)]:
        for field in kind.__struct_fields__:
            row = {"do": do, field: value}
            try:
                data = HEADER.encode() + b"\n" + msgspec.json.encode(row)
            except UnicodeEncodeError:
                continue
            assert all(said.startswith("s.jsonl:2: ") for said in _refusals(data))


def _refusals(data: bytes) -> list[str]:
    try:
        parse(data, "s.jsonl")
    except UsageError as refused:
        return [str(refused)]
    return []
