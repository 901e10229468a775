import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context.truncation import plan as truncation
from perdure.context.truncation.dag import Graph, Node
from perdure.context.truncation.plan import Plan, Ties, after, differing_views, plan

SPEAKING = {"message", "custom_message", "branch_summary"}


def message(id, parent):
    return Node(id, "message", parent)


def compaction(id, parent, kept):
    return Node(id, "compaction", parent, kept=kept)


def off_chain(kind, id, parent):
    return Node(id, "custom", parent, f"perdure.{kind}")


def chain(*ids):
    return [message(id, up) for id, up in zip(ids, (None, *ids), strict=False)]


def moved(nodes, ties=None):
    return [nodes[at].id for at in plan(nodes, ties).moved]


def links(nodes, ties=None):
    return [(node.id, node.parent) for node in after(nodes, plan(nodes, ties))]


# --- the rule, case by case -----------------------------------------------------------------------


def test_covered_messages_move_and_the_kept_tail_gets_the_nearest_parent_that_stays():
    nodes = [
        *chain("a", "b"),
        Node("t", "thinking_level_change", "b"),
        message("c", "t"),
        compaction("p", "c", "c"),
    ]
    assert moved(nodes) == ["a", "b"]
    assert links(nodes) == [("t", None), ("c", "t"), ("p", "c")]


@pytest.mark.parametrize("kept", ["p", ""])
def test_where_nothing_is_kept_every_message_before_the_compaction_moves(kept):
    nodes = [*chain("a", "b"), compaction("p", "b", kept), message("c", "p")]
    assert links(nodes) == [("p", None), ("c", "p")]


@pytest.mark.parametrize("kept", ["missing", "x"])
def test_where_the_anchor_is_not_on_the_branch_nothing_moves(kept):
    nodes = [*chain("a", "b"), message("x", "a"), compaction("p", "b", kept), message("c", "p")]
    assert "not before it" in plan(nodes).reason
    assert moved(nodes) == []


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([], "empty session"),
        (chain("a", "b"), "no compaction entry found"),
        ([compaction("p", None, "p"), message("a", "p")], "compaction already at root"),
        ([*chain("a"), compaction("p", "a", "a")], "no entries to remove"),
        ([Node("m", "model_change"), compaction("p", "m", "p")], "no entries to remove"),
    ],
)
def test_with_nothing_to_do_it_says_why(nodes, reason):
    assert plan(nodes) == Plan(reason=reason)


def test_a_fork_keeps_the_history_that_no_summary_of_its_own_covers():
    nodes = [*chain("a", "b", "c"), message("x", "a"), message("d", "c"), compaction("p", "d", "d")]
    assert moved(nodes) == ["b", "c"]


def test_a_fork_with_a_summary_of_its_own_needs_only_what_it_keeps():
    nodes = [
        *chain("a", "b"),
        compaction("q", "b", "b"),
        message("x", "q"),
        message("c", "b"),
        compaction("p", "c", "p"),
    ]
    assert moved(nodes) == ["a", "c"]


def test_a_label_keeps_its_entry_and_stays_itself():
    nodes = [*chain("a", "b"), Node("l", "label", "b"), message("c", "l"), compaction("p", "c", "c")]
    assert moved(nodes, Ties(pinned=("b",))) == ["a"]


def test_the_anchor_of_an_older_compaction_stays():
    nodes = [*chain("a", "b"), compaction("o", "b", "b"), message("c", "o"), compaction("p", "c", "p")]
    assert moved(nodes) == ["a", "c"]


def test_a_branch_left_behind_for_good_moves_along_with_all_its_entries():
    nodes = [*chain("a", "b"), Node("t", "model_change", "b"), message("x", "t")]
    nodes += [
        message("c", "b"),
        off_chain("branch", "mark", "b"),
        message("d", "c"),
        compaction("p", "d", "d"),
    ]
    assert moved(nodes, Ties(abandoned=("x",))) == ["a", "b", "t", "x", "c"]
    assert moved(nodes) == ["c"]


@pytest.mark.parametrize(("ties", "stays"), [(Ties(("x",), ("y",)), "x"), (Ties((), ("x",)), "y")])
def test_a_branch_left_behind_stays_where_it_was_labelled_or_forked(ties, stays):
    nodes = [*chain("a"), message("x", "a"), message("y", "x"), message("c", "a"), compaction("p", "c", "p")]
    assert stays not in moved(nodes, ties)


def test_a_letter_goes_with_its_message_or_neither_goes():
    nodes = [
        *chain("a"),
        off_chain("inbox", "i", "a"),
        message("b", "a"),
        message("c", "b"),
        compaction("p", "c", "c"),
    ]
    assert moved(nodes, Ties(taken=(("i", "b"),))) == ["a", "i", "b"]
    assert moved(nodes) == ["a", "b"]  # it waits still
    twice = [*nodes[:2], off_chain("inbox", "i", "a"), *nodes[2:]]
    assert moved(twice, Ties(taken=(("i", "b"),))) == ["a"]


def test_only_the_newest_checkpoint_stays_before_the_view():
    marks = [off_chain("checkpoint", f"k{n}", "a") for n in range(3)]
    nodes = [*chain("a"), *marks, message("b", "a"), compaction("p", "b", "b")]
    assert moved(nodes) == ["a", "k0", "k1"]


def test_entries_of_one_id_can_not_be_told_apart_and_stay():
    nodes = [*chain("a", "b"), message("b", "a"), message("c", "b"), compaction("p", "c", "c")]
    assert moved(nodes) == ["a"]


def test_a_hole_in_the_history_stays_visible():
    nodes = [message("a", None), message("c", "lost"), message("d", "c"), compaction("p", "d", "d")]
    assert links(nodes) == [("d", "lost"), ("p", "d")]


# --- on any graph ---------------------------------------------------------------------------------

KINDS = ["message"] * 8 + [
    "compaction",
    "model_change",
    "label",
    "branch_summary",
    "custom_message",
    "inbox",
    "branch",
]


numbers = st.integers(0, 10_000)
specs = st.lists(st.tuples(st.sampled_from(KINDS), numbers, numbers), min_size=1, max_size=24)


def grown(spec, *, hostile=False):
    """Sessions as programs write them: each entry behind the last, now and then behind an older one."""
    nodes = []
    for n, (kind, where, what) in enumerate(spec):
        ids = [node.id for node in nodes]
        id = ids[what % n] if hostile and n and what % 11 == 0 else f"e{n}"
        parent = None if not ids else ids[where // 7 % n] if where % 7 == 0 else ids[-1]
        if hostile and where % 5 == 0:
            parent = ["lost", id, f"e{n + 1}", "", f"e{what % (n + 1)}"][where // 5 % 5]
        if kind in ("inbox", "branch"):
            nodes.append(off_chain(kind, id, parent))
        else:
            kept = [id, "lost", *ids, *ids][what % (2 * n + 2)] if kind == "compaction" else ""
            nodes.append(Node(id, kind, parent, kept=kept))
    return nodes


graphs = specs.map(grown)
hostile_graphs = specs.map(lambda spec: grown(spec, hostile=True))


some = st.tuples(*[st.lists(numbers, max_size=3)] * 3)


def ties_for(nodes, drawn):
    pinned, abandoned, taken = drawn

    def ids(drawn):
        return tuple(nodes[n % len(nodes)].id for n in drawn)

    inboxes = [node.id for node in nodes if node.custom == "perdure.inbox"]
    messages = [node.id for node in nodes if node.type == "message"]
    became = [messages[n % len(messages)] for n in taken] if messages else []
    return Ties(ids(pinned), ids(abandoned), tuple(zip(inboxes, became, strict=False)))


def shown(graph, leaf):
    view = graph.view(leaf)
    nodes = graph.nodes
    summary = None if view.compaction is None else nodes[view.path[view.compaction]].id
    return view.leaf, summary, [nodes[at].id for at in view.shown if nodes[at].type in SPEAKING]


@settings(max_examples=150, deadline=None)
@given(graphs, some)
def test_the_view_before_equals_the_view_after_on_every_branch(nodes, drawn):
    ties = ties_for(nodes, drawn)
    made = plan(nodes, ties)
    before, later = Graph(nodes), Graph(after(nodes, made))
    assert shown(later, True) == shown(before, True)
    ends = truncation.leaves(before)
    assert all(before.nodes[at].id in later.by_id or ties.abandoned for at in ends)
    for at in ends:
        name = nodes[at].id
        if name in later.by_id:
            assert shown(later, name) == shown(before, name)
    assert differing_views(nodes, made) == ()


@settings(max_examples=150, deadline=None)
@given(graphs, some)
def test_what_stays_keeps_its_meaning(nodes, drawn):
    ties = ties_for(nodes, drawn)
    made = plan(nodes, ties)
    rest = {node.id: node for node in after(nodes, made)}
    gone = {node.id for node in nodes} - rest.keys()
    assert not gone & set(ties.pinned)
    for node in nodes:
        if node.id in rest and node.type == "compaction":
            assert node.kept not in gone  # every anchor that existed exists
        if node.id in rest and node.parent in {n.id for n in nodes}:
            assert rest[node.id].parent is None or rest[node.id].parent in rest
    for inbox, entry in ties.taken:
        assert entry not in gone or inbox in gone
    if not ties.abandoned:
        assert all(n.type == "message" or n.off_chain for n in nodes if n.id in gone)
    again = plan(after(nodes, made), Ties(ties.pinned, ties.abandoned))
    assert again.moved == () or ties.taken or ties.abandoned  # once is enough


@settings(max_examples=150, deadline=None)
@given(hostile_graphs, some)
def test_damaged_graphs_never_trap_it_and_a_view_that_would_differ_is_told(nodes, drawn):
    made = plan(nodes, ties_for(nodes, drawn))
    assert len(after(nodes, made)) == len(nodes) - len(made.moved)
    if not differing_views(nodes, made):
        assert shown(Graph(after(nodes, made)), True) == shown(Graph(nodes), True)
