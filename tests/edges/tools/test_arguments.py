"""Arguments of calls, refusals, and recall: what a model reads back is something it can act on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_tools import Context, Remembered, said
from perdure.contracts import ToolOutput
from perdure.edges.settings import ExecSettings, ToolSettings
from perdure.edges.tools.arguments import fit
from perdure.edges.tools.builtin import default_tools
from perdure.edges.tools.outcome import EXCERPT_CHARS, bad_arguments, failed, result, timed_out, unknown_tool
from perdure.edges.tools.recall import RecallTool
from perdure.errors import SessionNotFound
from perdure.records import Image

SCHEMA = {
    "type": "object",
    "required": ["n"],
    "additionalProperties": False,
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1},
        "deep": {"type": "object", "properties": {"x": {"type": ["boolean", "null"]}}, "required": ["x"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    },
}


@pytest.mark.parametrize(
    ("given_value", "meant"),
    [
        ({"n": "5"}, {"n": 5}),
        ({"n": 5.0}, {"n": 5}),
        ({"n": 1, "list": '["a"]'}, {"n": 1, "list": ["a"]}),
        ({"n": 1, "deep": '{"x": "true"}'}, {"n": 1, "deep": {"x": True}}),
        ({"n": 1, "deep": {"x": None}}, {"n": 1, "deep": {"x": None}}),
        ({"n": 1, "either": ["a", "b"]}, {"n": 1, "either": ["a", "b"]}),
    ],
)
def test_near_misses_are_taken_as_what_they_mean(given_value: dict[str, Any], meant: dict[str, Any]) -> None:
    assert fit(SCHEMA, given_value) == (meant, ())


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({}, "n: missing (required)"),
        ({"n": 0}, "n: must be at least 1"),
        ({"n": 10}, "n: must be at most 9"),
        ({"n": True}, "n: must be integer, not a boolean"),
        ({"n": None}, "n: must be integer, not null"),
        ({"n": 1, "mode": "c"}, "mode: must be one of 'a', 'b'"),
        ({"n": 1, "list": []}, "list: must have at least 1 items"),
        ({"n": 1, "list": ["long"]}, "list[0]: must have at most 3 characters"),
        ({"n": 1, "deep": {}}, "deep.x: missing (required)"),
        ({"n": 1, "either": 3}, "either: fits none of the accepted forms"),
        ({"n": 1, "m": 1}, "'m': unknown parameter (known: deep, either, list, mode, n)"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(wrong: dict[str, Any], problem: str) -> None:
    assert problem in fit(SCHEMA, wrong)[1]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "path",
    "content",
    "pattern",
    "offset",
    "limit",
    "command",
    "ref",
    "search",
    "old_text",
    "new_text",
    "x",
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_no_arguments_whatever_make_a_tool_raise(arguments: dict[str, Any]) -> None:
    async def main() -> None:
        context = Context(Path("/nonexistent/workspace"), virtual=True, recall=Remembered())
        for tool in default_tools(ToolSettings(exec=ExecSettings(mode="on"))):
            assert isinstance(await tool.run(arguments, context), ToolOutput)

    anyio.run(main)


def test_refusals_name_what_there_is() -> None:
    assert "Did you mean" not in said(unknown_tool("zzz", ["read"]))
    assert said(unknown_tool("raed", ["write", "read"])) == (
        "Unknown tool 'raed'. Did you mean read? Available tools: read, write."
    )
    assert "the tool was not run" in said(bad_arguments("read", "the arguments are not valid JSON"))
    assert "within 3 seconds" in said(timed_out("exec", 3.0))
    broken = failed("exec", RuntimeError("key sk-ant-api03-abcdefghijklmnop leaked"))
    assert "RuntimeError" in said(broken)
    assert "sk-ant" not in said(broken)
    for output in (
        unknown_tool("a" * 9_999, []),
        bad_arguments("a" * 9_999, []),
        failed("x", ValueError("y" * 9_999)),
    ):
        assert output.is_error
        assert len(said(output)) < 2_500


def test_a_long_result_keeps_both_ends_and_all_of_it_as_evidence() -> None:
    text = "HEAD" + "m" * 300_000 + "TAIL"
    output = result(text, answer=42)
    assert output.full == text.encode()
    assert said(output).startswith("HEAD")
    assert said(output).endswith("TAIL")
    assert "300,008 characters" in said(output)
    assert len(said(output)) < EXCERPT_CHARS + 300
    assert msgspec.json.decode(output.details or b"")["answer"] == 42


class Failing:
    async def recall(self, ref: str, start: int, length: int) -> str:
        raise SessionNotFound(f"no entry {ref} in this session")

    async def images(self, ref: str) -> tuple[Image, ...]:
        return ()

    async def search(self, text: str, limit: int) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"ref": "e1"}, "the whole story"),
        ({"ref": "sha256:e1", "start": 4, "length": 5}, "whole"),
        ({"ref": "e1", "start": 99}, "[nothing at this position]"),
        ({"search": "story"}, "e1"),
        ({"search": "nowhere"}, "Nothing earlier in this session mentions 'nowhere'."),
        ({"ref": "e9"}, "nothing of this session is named 'e9'"),
        ({}, "Give either ref"),
        ({"ref": "a", "search": "b"}, "Give either ref"),
    ],
)
def test_recall_reads_pages_and_finds_text(arguments: dict[str, Any], answer: str) -> None:
    context = Context(Path("/"), recall=Remembered(e1="the whole story"))

    async def main() -> ToolOutput:
        return await RecallTool().run(arguments, context)

    assert answer in said(anyio.run(main))


def test_recall_of_what_is_not_there_is_an_error_result() -> None:
    async def main() -> list[ToolOutput]:
        context = Context(Path("/"), recall=Failing())
        return [await RecallTool().run(each, context) for each in ({"ref": "e1"}, {"search": "x"})]

    first, second = anyio.run(main)
    assert "no entry e1 in this session" in said(first)
    assert first.is_error
    assert second.is_error
