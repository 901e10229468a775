import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_files import FakeGrant
from helpers_sessions import HEADER, assistant, calls, compaction, entry, line, off_chain, result, user
from perdure.context.truncation.plan import leaves
from perdure.edges import segments
from perdure.edges.session import branching, rewrite
from perdure.edges.session.facts import NEVER
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.fork import fork
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import SegmentGone, UsageError
from perdure.records import Decision

KEY, NOW = "agent:main:cli:dm:local", 1_790_000_000_000
FACTS = {"v": 1, "e": 1}
TWICE = (
    user("e1", None, "a", perdure=FACTS | {"inbox": {"sender": "anna", "mid": "m1", "arrived": 1}}),
    assistant("e2", "e1", "b"),
    user("e3", "e2", "c"),
    assistant("e4", "e3", "d"),
    compaction("e5", "e4", "e3"),
    user("e6", "e5", "e"),
    assistant("e7", "e6", "f"),
    compaction("e8", "e7", "e6"),
    user("e9", "e8", "g"),
)


class Desk:
    """One session in our hands."""

    def __init__(self, tmp_path, *entries):
        self.files = SessionFiles(tmp_path, FakeGrant(3), sync=False)
        self.path = self.files.path(KEY)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"".join(line(row) + b"\n" for row in (HEADER, *entries)))
        self.held = self.files.open(KEY, NOW)

    def truncate(self):
        done = rewrite.truncate(self.held.file, lambda: self.held.ids.entry(NOW), NOW, sync=False)
        self.held.opened = open_session(self.path)
        return done

    def switch(self, target):
        return branching.switch(self.held, target, NOW)

    def undo(self, fits=lambda items, decisions: ""):
        return branching.undo(self.held, fits, NOW)

    def woken(self):
        """The session as the next host finds it, read both ways."""
        tail = open_session(self.path)
        assert tail.items == load(self.path).opened().items
        assert load(self.path).problems == []
        return tail

    def shown(self):
        return [item.entry for item in self.woken().items]

    def every(self):
        found = load(self.path)
        ids = {node.id for node in found.past.graph.nodes if not node.off_chain}
        return {id: found.opened(id).items for id in ids}


def texts(opened):
    return [
        getattr(item.message, "summary", "") or "".join(b.text for b in item.message.content)
        for item in opened.items
    ]


# --- switch ---------------------------------------------------------------------------------------


def test_going_back_behind_an_older_compaction_brings_the_moved_entries_back(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    before = desk.every()
    assert desk.truncate().moved == 2
    done = desk.switch("e7")
    assert (done.done, done.restored) == (True, 1)
    assert desk.shown() == ["e5", "e3", "e4", "e6", "e7"]
    assert desk.woken().items == before["e7"]
    assert {id: items for id, items in desk.every().items() if id in before} == before


def test_a_label_or_the_beginning_of_an_id_names_an_entry(tmp_path):
    desk = Desk(tmp_path, user("abc1", None), user("abd2", "abc1"), user("x", "abd2"))
    assert desk.switch("abd").leaf == "abd2"
    branching.label(desk.held, "abc1", "begin", NOW)
    assert desk.switch("begin").leaf == "abc1"
    assert not desk.switch("begin").done
    with pytest.raises(UsageError, match="2 entries"):
        desk.switch("ab")
    with pytest.raises(UsageError, match="no entry"):
        desk.switch("nope")


def test_going_back_to_a_question_does_not_ask_it_again(tmp_path):
    desk = Desk(tmp_path, user("a", None), assistant("b", "a"), user("c", "b"), assistant("d", "c"))
    desk.switch("c")
    assert desk.woken().resumed == (("c", NEVER),)


def test_where_another_program_went_on_inside_a_branch_its_view_is_completed(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    desk.truncate()
    with desk.path.open("ab") as other:
        other.write(line(user("x1", "e7", "from elsewhere")) + b"\n")
    desk.held.close(handover=False)
    desk.held = desk.files.open(KEY, NOW)
    assert branching.complete(desk.held, NOW) == 1
    assert desk.shown() == ["e5", "e3", "e4", "e6", "e7", "x1"]
    assert branching.complete(desk.held, NOW) == 0


def test_a_discarded_segment_refuses_the_switch_and_changes_no_byte(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    desk.truncate()
    segments.discard(desk.path, segments.segments_of(desk.path)[0].name)
    before = desk.path.read_bytes()
    with pytest.raises(SegmentGone):
        desk.switch("e7")
    assert desk.path.read_bytes() == before
    assert desk.switch("e8").done


# --- undo -----------------------------------------------------------------------------------------


def test_undo_shows_what_was_shown_without_the_compaction_and_keeps_later_turns(tmp_path):
    desk = Desk(tmp_path, *TWICE[:7])
    whole = texts(
        Desk(tmp_path / "other", *TWICE[:4], user("e6", "e4", "e"), assistant("e7", "e6", "f")).woken()
    )
    done = desk.undo()
    assert (done.done, done.compaction, len(done.copied)) == (True, "e5", 2)
    assert texts(desk.woken()) == whole == ["a", "b", "c", "d", "e", "f"]
    assert desk.woken().compaction is None
    assert desk.switch("e7").done  # the branch with the compaction is still there
    assert desk.shown() == ["e5", "e3", "e4", "e6", "e7"]


def test_undo_twice_goes_back_twice_through_segments(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    desk.truncate()
    assert desk.undo().restored == 1
    assert texts(desk.woken()) == ["S", "c", "d", "e", "f", "g"]
    desk.truncate()
    assert desk.undo().done
    assert texts(desk.woken()) == ["a", "b", "c", "d", "e", "f", "g"]
    assert "nothing to undo" in desk.undo().reason


def test_undo_keeps_decisions_letters_and_settings_of_both_sides(tmp_path):
    decided = FACTS | {"decided": [{"key": "r1", "form": "shortened", "head": 5}]}
    later = FACTS | {
        "decided": [{"key": "u2", "form": "pruned"}, {"key": "id:x2:0", "form": "renamed", "value": "w"}]
    }
    origin = FACTS | {"inbox": {"sender": "anna", "mid": "m2", "arrived": 1}, "evidence": ["ab"]}
    inbox = {"session": "s1", "sender": "bob", "mid": "m3", "arrived": 2, "content": "hi"}
    desk = Desk(
        tmp_path,
        user("u1", None),
        calls("x1", "u1", "c1"),
        result("r1", "x1", "c1"),
        assistant("a1", "r1") | {"perdure": decided},
        {
            **compaction("p", "a1", "p"),
            "details": {"perdure": FACTS | {"checkpoint": FACTS | {"session": "s1"}}},
        },
        user("u2", "p", perdure=origin),
        calls("x2", "u2", "c1"),
        result("r2", "x2", "c1"),
        entry("thinking_level_change", "t", "r2", thinkingLevel="high"),
        assistant("a2", "t") | {"perdure": later},
        off_chain("inbox", "i", "a2", **inbox),
    )
    copied = dict(desk.undo().copied)
    woken = desk.woken()
    assert {d.key: d for d in woken.decisions} == {
        "r1": Decision("r1", "shortened", head=5),
        copied["u2"]: Decision(copied["u2"], "pruned"),
        f"id:{copied['x2']}:0": Decision(f"id:{copied['x2']}:0", "renamed", value="w"),
    }
    assert [(s.mid, s.entry) for s in woken.recent if s.mid == "m2"] == [("m2", copied["u2"])]
    assert [p.letter.mid for p in woken.pending] == ["m3"]
    assert woken.settings.thinking == "high"
    written = json.loads(load(desk.path).entry(copied["u2"]))
    assert written["perdure"] == {"v": 1, "e": 3, "of": "u2", "inbox": origin["inbox"], "evidence": ["ab"]}


def test_undo_passes_over_lines_of_ours_that_another_program_went_on_behind(tmp_path):
    desk = Desk(
        tmp_path,
        *TWICE[:5],
        off_chain("owner", "o", "e5", e=1),
        user("e6", "o", "e"),
        entry("session_info", "n", "e6", name="x"),
        entry("label", "l", "n", targetId="e6", label="here"),
        entry("label", "m", "l", targetId="e1", label="top"),
        assistant("e7", "m", "f"),
    )
    copied = dict(desk.undo().copied)
    assert set(copied) == {"e6", "l", "e7"}
    assert texts(desk.woken()) == ["a", "b", "c", "d", "e", "f"]
    assert load(desk.path).labels() == {"e6": "here", copied["e6"]: "here", "e1": "top"}
    assert desk.woken().name == "x"


def test_undo_is_refused_with_the_reason_where_the_view_does_not_fit(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    before = desk.path.read_bytes()
    done = desk.undo(lambda items, decisions: f"{len(items)} are too many")
    assert (done.done, done.reason) == (False, "6 are too many")
    assert desk.path.read_bytes() == before


def test_the_branch_that_an_undo_left_goes_with_the_next_truncation_and_can_come_back(tmp_path):
    desk = Desk(tmp_path, *TWICE[:7])
    before = desk.every()
    copied = dict(desk.undo().copied)
    end = copied["e7"]
    desk.held.file.append([line(compaction("q", end, end)) + b"\n"])
    desk.held.opened = open_session(desk.path)
    assert desk.truncate().done
    assert load(desk.path).node("e7") is None
    assert load(desk.path).opened("e7").items == before["e7"]
    desk.switch("e7")
    assert desk.woken().items == before["e7"]


# --- labels, names, forks -------------------------------------------------------------------------


def test_a_label_on_a_moved_entry_brings_it_back_and_keeps_it(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    before = desk.every()
    desk.truncate()
    branching.label(desk.held, "e2", "here", NOW)
    assert load(desk.path).labels() == {"e2": "here"}
    assert desk.woken().items == before["e9"]
    assert {id: items for id, items in desk.every().items() if id in before} == before
    desk.truncate()
    assert load(desk.path).node("e2") is not None
    branching.label(desk.held, "here", "", NOW)
    assert load(desk.path).labels() == {}


def test_a_name_is_the_files(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    branching.rename(desk.held, "plans", NOW)
    assert desk.woken().name == "plans"
    assert not branching.rename(desk.held, "plans", NOW).done


def forked(desk, leaf, key="agent:main:cli:dm:other"):
    source = load(desk.path)
    return fork(desk.files, source, branching.find(source, leaf), key, 3, NOW, sync=False)


def test_a_fork_has_the_whole_path_and_answers_no_letter(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    before = desk.every()
    desk.truncate()
    branching.rename(desk.held, "plans", NOW)
    made = open_session(forked(desk, "e7"))
    assert made.items == before["e7"]
    assert (made.recent, made.pending, made.name) == ((), (), "plans")
    assert made.session_id != "s1"
    assert made.parent_session == str(desk.path)
    found = load(made.path)
    assert [node.id for node in found.branch("e7")] == [f"e{n}" for n in range(1, 8)]
    assert found.opened("e2").items == before["e2"]
    assert found.problems == []
    with pytest.raises(UsageError, match="exists already"):
        forked(desk, "e7")


def test_a_fork_that_ends_in_a_question_waits_for_what_is_said_next(tmp_path):
    desk = Desk(tmp_path, *TWICE)
    assert open_session(forked(desk, "e6")).resumed == (("e6", NEVER),)
    assert list(desk.path.parent.glob("*.lock")) == [desk.held.lock.path]


# --- any history ----------------------------------------------------------------------------------

numbers = st.integers(0, 10_000)
KINDS = ["user", "said"] * 4 + ["compaction", "model", "label", "custom"]
ACTS = ["say", "compact", "truncate", "switch", "undo", "label"]
specs = st.lists(st.tuples(st.sampled_from(KINDS), numbers, numbers), min_size=1, max_size=12)
acts = st.lists(st.tuples(st.sampled_from(ACTS), numbers), min_size=1, max_size=8)


def history(spec):
    rows, ids = [], []
    for n, (kind, where, what) in enumerate(spec):
        id, some = f"e{n}", ids[what % n] if n else "none"
        up = None if not ids else ids[where // 7 % n] if where % 7 == 0 else ids[-1]
        match kind:
            case "user":
                rows.append(user(id, up, id, **({"perdure": {"v": 1, "e": 1 + n // 4}} if what % 3 else {})))
            case "said":
                rows.append(assistant(id, up, id))
            case "compaction":
                rows.append(compaction(id, up, some))
            case "model":
                rows.append(entry("model_change", id, up, provider="p", modelId=f"m{n}"))
            case "label":
                rows.append(entry("label", id, up, targetId=some, label="l" * (what % 2)))
            case _:
                rows.append(entry("custom", id, up, customType="x.y"))
        ids.append(id)
    return rows


@settings(max_examples=40, deadline=None)
@given(specs, acts)
def test_whatever_is_done_every_entry_goes_on_showing_what_it_showed(tmp_path_factory, spec, acts):
    desk = Desk(tmp_path_factory.mktemp("any"), *history(spec))
    known = desk.every()
    for n, (act, pick) in enumerate(acts):
        ids = sorted(known)
        target = ids[pick % len(ids)]
        leaf = desk.held.opened.leaf
        match act:
            case "say":
                desk.held.file.append([line(user(f"s{n}", leaf, f"s{n}", perdure={"v": 1, "e": 3})) + b"\n"])
            case "compact":
                inside = [item.entry for item in desk.held.opened.items if item.entry] or [f"s{n}"]
                kept = inside[pick % len(inside)]
                desk.held.file.append([line(compaction(f"s{n}", leaf, kept)) + b"\n"])
            case "truncate":
                desk.truncate()
            case "switch":
                desk.switch(target)
                assert desk.woken().items == known[target]
            case "undo":
                desk.undo()
            case _:
                branching.label(desk.held, target, f"l{pick % 3}", NOW)
        desk.held.opened = open_session(desk.path)
        desk.woken()
        found = load(desk.path)
        assert {id: found.opened(id).items for id in known} == known
        known |= desk.every()
    assert found.stale == []


def test_leaves_are_what_no_entry_follows(tmp_path):
    desk = Desk(tmp_path, user("a", None), user("b", "a"), user("c", "a"))
    found = load(desk.path)
    assert [found.nodes[at].id for at in leaves(found.graph)] == ["b", "c"]
