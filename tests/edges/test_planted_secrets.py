"""A secret that somebody planted reaches no line of the log, whatever field, depth or exception holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers_secrets import one_of_each, secrets
from perdure.edges.log import MAX_QUOTED, MAX_TEXT, memory_log
from perdure.kernel.outcome import Failed, describe, trace_of


def _raised(text: str) -> Exception:
    """An exception of a tool, caused by another that says the same."""
    try:
        try:
            raise KeyError(text)
        except KeyError as error:
            raise RuntimeError(f"the tool failed: {text}") from error
    except RuntimeError as error:
        return error


WAYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "text": lambda text: {"text": text},
    "error": lambda text: {"error": repr(_raised(text))},
    "exception": lambda text: {"error": _raised(text)},
    "trace": lambda text: {"trace": trace_of(Failed(_raised(text)))},
    "outcome": lambda text: {"outcome": describe(Failed(_raised(text)))},
    "nested": lambda text: {"deep": [{"a": ({"b": text},)}, text]},
    "key": lambda text: {"table": {text: 1}},
    "bytes": lambda text: {"raw": text.encode()},
    "json": lambda text: {"body": msgspec.json.encode({"a": {"b": text}}).decode()},
    "object": lambda text: {"value": {text}},
    "late": lambda text: {"text": "x " * (MAX_TEXT // 2 - 8) + text},
    "after another": lambda text: {"text": "-----BEGIN PRIVATE KEY-----\n" + "A" * 32_700 + text},
}


@settings(max_examples=150)
@given(secrets(), st.sampled_from(sorted(WAYS)), st.text(max_size=20))
def test_no_planted_secret_reaches_a_line(secret: tuple[str, str], way: str, around: str) -> None:
    text, hidden = secret
    assume(hidden not in around)
    lines: list[bytes] = []
    memory_log(lines).info("x.y", **WAYS[way](f"{around} {text} {around}"))
    assert hidden.encode() not in lines[0], lines[0]


def test_every_shape_is_hidden_in_every_place() -> None:
    for text, hidden in one_of_each():
        for way in WAYS.values():
            lines: list[bytes] = []
            memory_log(lines).bind(session=text).info("x.y", **way(text))
            assert hidden.encode() not in lines[0], (text, lines[0])


def test_what_an_exception_quotes_is_bounded() -> None:
    lines: list[bytes] = []
    memory_log(lines).info("x.y", error=repr(ValueError("the whole page: " + "word " * 5_000)))
    assert len(msgspec.json.decode(lines[0])["error"]) == MAX_QUOTED + 1
