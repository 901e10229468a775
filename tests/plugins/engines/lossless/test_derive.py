"""The view as a function of path and summaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.plugins.engines.lossless.derive import derive
from perdure.plugins.engines.lossless.pieces import Node, Raw, View


def raws(names: str) -> list[Raw]:
    return [Raw(name, place, "User", 1) for place, name in enumerate(names)]


def node(id: str, *sources: str, replaces: str = "") -> Node:
    return Node(id, 0, sources, "", 1, 1, 1, "", "", 0, 0, "normal", "agent", replaces=replaces)


def keys(view: View) -> str:
    return " ".join(piece.key for piece in view)


def test_a_summary_stands_where_all_its_sources_stood() -> None:
    one = node("1", "m:b", "m:c")
    assert keys(derive(raws("abcd"), [one])) == "m:a s:1 m:d"
    assert keys(derive(raws("abcd"), [one, node("2", "m:a", "s:1")])) == "s:2 m:d"


def test_a_summary_is_passed_over_where_its_sources_are_not_in_a_row() -> None:
    assert keys(derive(raws("abc"), [node("1", "m:a", "m:c")])) == "m:a m:b m:c"
    assert keys(derive(raws("abc"), [node("1", "m:b", "m:a")])) == "m:a m:b m:c"
    assert keys(derive(raws("abc"), [node("1", "m:c", "m:x")])) == "m:a m:b m:c"
    assert keys(derive(raws("abc"), [node("1")])) == "m:a m:b m:c"


def test_what_improves_a_digest_takes_its_place() -> None:
    old, new = node("1", "m:a", "m:b"), node("2", "m:a", "m:b", replaces="1")
    assert keys(derive(raws("abc"), [old, new])) == "s:2 m:c"
    assert keys(derive(raws("abc"), [new, old])) == "s:1 m:c"
    assert keys(derive(raws("abc"), [old, node("3", "s:1", "m:c"), new])) == "s:3"
    assert keys(derive(raws("abc"), [old, node("2", "m:a", replaces="1")])) == "s:1 m:c"


@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 20), max_size=5), max_size=8))
def test_each_message_stands_in_the_view_once_whatever_the_summaries(
    count: int, made: list[list[int]]
) -> None:
    path = raws("abcdefghijkl"[:count])
    known = [raw.key for raw in path]
    nodes: list[Node] = []
    for n, places in enumerate(made):
        nodes.append(node(str(n), *(known[place % len(known)] for place in places)))
        known.append(f"s:{n}")
    below = {one.key: one.sources for one in nodes}
    found: list[str] = []
    waiting = [piece.key for piece in reversed(derive(path, nodes))]
    while waiting:
        key = waiting.pop()
        if key in below:
            waiting += reversed(below[key])
        else:
            found.append(key)
    assert found == [raw.key for raw in path]
