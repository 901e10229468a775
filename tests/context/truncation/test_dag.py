"""The graph of entries: leaf, branch and view, for links of every kind."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.truncation.dag import Graph, Hole, Node, View


def n(id: str, parent: str | None, kind: str = "message", kept: str = "") -> Node:
    return Node(id, kind, parent, kept=kept)


def ours(id: str, parent: str | None) -> Node:
    return Node(id, "custom", parent, custom="perdure.inbox")


def ids(graph: Graph, view: View) -> str:
    return "".join(graph.nodes[at].id for at in view.shown)


def seen(*nodes: Node) -> tuple[str, View]:
    graph = Graph(nodes)
    view = graph.view()
    return ids(graph, view), view


def test_the_leaf_is_the_last_line_not_the_deepest() -> None:
    assert seen(n("a", None), n("b", "a"), n("c", "b"), n("d", "a"))[0] == "ad"


def test_trailing_entries_of_ours_leave_the_leaf_where_it_was() -> None:
    assert seen(n("a", None), n("b", "a"), ours("x", "b"), ours("y", "b"))[1].leaf == "b"


def test_an_entry_of_ours_that_another_program_built_on_is_part_of_the_branch() -> None:
    assert seen(n("a", None), ours("x", "a"), n("b", "x"))[0] == "axb"


def test_a_trailing_entry_of_ours_persists_a_branch_move() -> None:
    assert seen(n("a", None), n("b", "a"), n("c", "b"), ours("x", "a"))[0] == "a"


def test_entries_of_ours_that_name_each_other_lead_nowhere() -> None:
    assert seen(n("a", None), ours("x", "y"), ours("y", "x"))[1] == View(None)


def test_a_parent_on_a_later_line_is_found() -> None:
    assert seen(n("b", "a"), n("a", None), n("c", "b"))[0] == "abc"


def test_of_two_lines_with_one_id_the_last_counts() -> None:
    assert seen(n("a", None), n("b", "a"), n("x", "b"), n("x", "a"), n("c", "x"))[0] == "axc"


@pytest.mark.parametrize(
    ("nodes", "shown", "closes"),
    [
        ([n("a", "c"), n("b", "a"), n("c", "b")], "abc", "a"),
        ([n("a", "a"), n("b", "a")], "ab", "a"),
        ([n("a", None), n("b", "c"), n("c", "b")], "bc", "b"),
    ],
    ids=["round", "self", "away from the root"],
)
def test_a_walk_ends_at_the_first_entry_it_meets_again(nodes: list[Node], shown: str, closes: str) -> None:
    text, view = seen(*nodes)
    assert (text, view.cycle) == (shown, closes)


def test_a_missing_parent_is_bridged_to_the_leaf_before_the_hole() -> None:
    text, view = seen(n("a", None), n("b", "a"), n("c", "lost"), n("d", "c"))
    assert text == "abcd"
    assert view.holes == (Hole("c", "lost", "b"),)


def test_a_bridge_does_not_land_on_an_entry_of_ours_but_on_its_leaf() -> None:
    text, view = seen(n("a", None), n("b", "a"), ours("x", "a"), n("c", "lost"))
    assert text == "ac"
    assert view.holes[0].bridged_to == "a"


def test_a_hole_at_the_very_begin_leaves_nothing_to_bridge_to() -> None:
    text, view = seen(n("a", "lost"), n("b", "a"))
    assert (text, view.holes) == ("ab", (Hole("a", "lost", None),))


def test_a_bridge_that_would_close_a_circle_ends_the_walk() -> None:
    text, view = seen(n("b", "a"), n("a", "lost"))
    assert (text, view.cycle, view.leaf) == ("ba", "b", "a")


def test_a_bridge_known_from_before_is_used_again() -> None:
    graph = Graph([n("a", None), n("b", "a"), n("c", "lost")], {("c", "lost"): "a"})
    assert ids(graph, graph.view()) == "ac"


def test_a_lost_leaf_that_a_line_of_ours_names_is_a_hole_above_the_view() -> None:
    text, view = seen(n("a", None), ours("x", "lost"))
    assert (text, view.holes) == ("a", (Hole("x", "lost", "a"),))


@pytest.mark.parametrize(
    ("kept", "shown"),
    [("b", "bcpd"), ("a", "abcpd"), ("p", "pd"), ("gone", "pd"), ("", "pd"), ("d", "pd"), ("side", "pd")],
)
def test_a_view_begins_at_the_anchor_of_the_latest_compaction(kept: str, shown: str) -> None:
    path = [n("a", None), n("side", "a"), n("b", "a", "label"), n("c", "b"), n("p", "c", "compaction", kept)]
    assert seen(*path, n("d", "p"))[0] == shown


def test_an_older_compaction_in_the_kept_range_says_nothing() -> None:
    older, newer = n("p", "b", "compaction", "b"), n("q", "c", "compaction", "a")
    text, view = seen(n("a", None), n("b", "a"), older, n("c", "p"), newer)
    assert (text, view.compaction) == ("abpcq", 4)


def test_holes_before_the_view_do_not_count() -> None:
    _, view = seen(n("a", None), n("b", "lost"), n("c", "b"), n("p", "c", "compaction", "c"))
    assert view.holes == ()


def test_any_entry_can_be_the_leaf_and_an_unknown_one_is_an_error() -> None:
    graph = Graph([n("a", None), n("b", "a"), n("c", "b")])
    assert ids(graph, graph.view("b")) == "ab"
    assert graph.view(None) == View(None)
    with pytest.raises(KeyError):
        graph.view("zz")


NAMES = st.sampled_from([f"e{i}" for i in range(12)])
NODES = st.lists(
    st.builds(
        lambda id, parent, kind, kept: (ours if kind == "custom" else n)(
            id, parent, *([kind, kept] * (kind != "custom"))
        ),
        NAMES,
        st.none() | NAMES | st.just("lost"),
        st.sampled_from(["message", "compaction", "custom"]),
        NAMES | st.just("lost"),
    ),
    max_size=30,
)


@given(NODES)
def test_no_links_whatever_trap_a_walk_or_repeat_an_entry(nodes: list[Node]) -> None:
    graph = Graph(nodes)
    view = graph.view()
    names = [nodes[at].id for at in view.path]
    assert len(set(names)) == len(names)
    assert (view.leaf is None) == (not names)
    for child, parent in zip(view.path[1:], view.path, strict=False):
        node = nodes[child]
        bridged = [hole for hole in graph.walk(view.path[-1])[1] if hole.child == node.id]
        assert nodes[parent].id == (bridged[0].bridged_to if bridged else node.parent)


def test_hundreds_of_thousands_of_entries_and_holes_are_walked_in_one_go() -> None:
    chain = [n(f"{i}", f"{i - 1}" if i else None) for i in range(200_000)]
    holes = [node for i in range(50_000) for node in (ours(f"x{i}", f"x{i - 1}"), n(f"h{i}", "lost"))]
    began = time.process_time()
    assert len(Graph(chain).view().path) == 200_000
    Graph(holes).view()
    assert time.process_time() - began < 20  # quadratic steps would take hours
