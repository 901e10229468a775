"""A damaged line costs the damaged record only; whole records on it come back at their exact bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_sessions import assistant, entry, line, user
from perdure.edges.session.heads import heads
from perdure.edges.session.scan import Line

FIRST = 1000  # where the line stands in its file


def read(data: bytes) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]]]:
    nodes, problems = heads(Line(7, FIRST, data))
    assert all(node.line == 7 for node in nodes)
    assert all(problem.line == 7 for problem in problems)
    return [(n.id, n.start - FIRST, n.end - FIRST) for n in nodes], [
        (p.kind, p.byte - FIRST) for p in problems
    ]


A, B, C = line(user("a", None)), line(assistant("b", "a")), line(user("c", "b"))


def test_records_glued_together_are_all_found() -> None:
    nodes, problems = read(A + B + C)
    ends = len(A), len(A) + len(B)
    assert nodes == [("a", 0, ends[0]), ("b", ends[0], ends[1]), ("c", ends[1], ends[1] + len(C))]
    assert problems == [("glued", ends[0]), ("glued", ends[1])]


def test_a_brace_pair_inside_a_text_does_not_split() -> None:
    nodes, problems = read(line(user("a", None, 'x}{"type":"message","id":"z","parentId":null}')))
    assert [id for id, _, _ in nodes] == ["a"]
    assert problems == []


@given(cut=st.integers(1, len(A) - 1))
def test_a_whole_record_behind_a_stub_is_recovered_wherever_the_stub_was_cut(cut: int) -> None:
    nodes, problems = read(A[:cut] + B)
    assert nodes == [("b", cut, cut + len(B))]
    assert problems == [("torn", 0)]


@given(cut=st.integers(1, len(C) - 1))
def test_a_stub_behind_a_whole_record_costs_itself(cut: int) -> None:
    nodes, problems = read(B + C[:cut])
    assert nodes == [("b", 0, len(B))]
    assert problems == [("torn", len(B))]


@pytest.mark.parametrize(
    ("data", "found", "byte"),
    [
        (b"\0\0" + A, [("a", 2, 2 + len(A))], 0),
        (A + b"\0" * 9, [("a", 0, len(A))], len(A)),
        (A + b"\0\0" + B, [("a", 0, len(A)), ("b", len(A) + 2, len(A) + 2 + len(B))], len(A)),
        (b"\0" * 300, [], 0),
    ],
)
def test_nul_padding_is_reported_where_it_begins(data: bytes, found: list[Any], byte: int) -> None:
    assert read(data) == (found, [("nul", byte)])


def test_a_stub_that_ends_in_nul_is_torn_and_padded() -> None:
    assert read(A[:30] + b"\0" * 8) == ([], [("torn", 0), ("nul", 30)])


@pytest.mark.parametrize(
    "data", [b"null", b"42", b"[]", b'"x"', b"hello", b"{}", b'{"type":"x"}', b'{"id":"x"}']
)
def test_what_is_no_entry_is_named_undecodable(data: bytes) -> None:
    assert read(data) == ([], [("undecodable", 0)])


@pytest.mark.parametrize(
    "text",
    [rb"\ud83d", rb"\udc00 \ud83d\ude00", b"\xff\xfe", b"tab\there", b"\xed\xa0\xbd"],
    ids=["lone half", "reversed", "not UTF-8", "raw control", "half as bytes"],
)
def test_what_strict_json_refuses_but_javascript_reads_is_no_damage(text: bytes) -> None:
    assert read(A.replace(b'"hi"', b'"' + text + b'"'))[0][0][0] == "a"
    assert read(A.replace(b'"hi"', b'"' + text + b'"'))[1] == []


def test_numbers_no_double_can_hold_are_read() -> None:
    assert read(A.replace(b'"timestamp":1', b'"timestamp":1e400'))[0][0][0] == "a"


def test_blocks_of_a_torn_message_are_not_taken_for_records() -> None:
    torn = line(user("a", None))[:-3] + b',{"type":"custom","name":"x"},{"type":"label"}'
    assert read(torn)[0] == []


def test_ids_that_are_numbers_link_as_in_javascript() -> None:
    nodes, _ = heads(Line(1, 0, line(entry("message", 5, 4))))  # type: ignore[arg-type]
    assert (nodes[0].id, nodes[0].parent) == ("5", "4")


def test_an_entry_without_an_id_is_named_by_its_byte() -> None:
    nodes, _ = heads(Line(1, 255, b'{"type":"message","message":{}}'))
    assert nodes[0].id == "00000000000000ff"


@given(st.binary(max_size=400))
def test_no_bytes_whatever_make_it_raise(data: bytes) -> None:
    nodes, problems = heads(Line(1, 0, data))
    assert nodes == [] or data.count(b"{") >= len(nodes)
    assert bool(nodes or problems) == bool(data.removeprefix(b"\xef\xbb\xbf").strip())


def test_a_line_of_a_hundred_thousand_openings_takes_no_time() -> None:
    data = b'{"type":"message","message":' * 100_000
    assert read(data) == ([], [("torn", 0)])


def test_nesting_beyond_any_stack_costs_the_record_only() -> None:
    deep = A[:-1] + b',"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert [kind for kind, _ in read(deep)[1]] == ["torn"]
