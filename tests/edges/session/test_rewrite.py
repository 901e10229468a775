import itertools
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from conformance.runner import kept as vectors
from helpers_files import FakeGrant, held
from perdure.context.truncation.plan import leaves
from perdure.contracts import Letter
from perdure.edges import segments
from perdure.edges.segments import Segment
from perdure.edges.session import lines, rewrite
from perdure.edges.session.facts import Checkpoint, Facts, Origin, Pending, Seen
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import Fenced, SegmentGone, StorageFailed, UnreadableFile
from perdure.records import Text, User

NOW = 1_790_000_000_000
HEAD = lines.header_line("s-1", NOW, "/w")
counter = itertools.count()


def new_id():
    return f"new{next(counter)}"


def said(id, parent, facts=None, text=None):
    return lines.message_line(id, parent, NOW, User((Text(text or id),), NOW), facts)


def folded(id, parent, kept, checkpoint=None):
    return lines.compaction_line(id, parent, NOW, f"sum {id}", kept, 99, checkpoint or Checkpoint(), b"{}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.jsonl"


def put(path, *parts):
    path.write_bytes(b"".join((HEAD, *parts)))
    return held(path)


def cut(file):
    return rewrite.truncate(file, new_id, NOW, sync=False)


def views(path):
    """What each branch of a file shows, by leaf."""
    found = load(path)
    ends = [None, *(node.id for node in found.nodes if node.type in ("message", "compaction"))]
    return {end: found.opened(end).items for end in ends}


PLAIN = (
    said("a", None),
    said("b", "a"),
    lines.thinking_line("t", "b", NOW, "high"),
    said("c", "t"),
    folded("p", "c", "c"),
    said("d", "p"),
)


def test_covered_entries_are_in_the_segment_and_the_view_is_the_same(path):
    file = put(path, *PLAIN)
    before = open_session(path)
    done = cut(file)
    after = open_session(path)
    assert (after.items, after.leaf, after.settings) == (before.items, before.leaf, before.settings)
    (segment,) = segments.segments_of(path)
    assert [e.raw + b"\n" for e in Segment(segment).entries()] == list(PLAIN[:2])
    assert segments.find_entry(path, "b") == PLAIN[1].rstrip()
    assert (done.moved, done.segment) == (2, segment.name)
    assert done.bytes_after == path.stat().st_size == file.size
    assert f"{done.percent:.1f}% less" in done.line()
    file.append([said("e", "d")])
    assert open_session(path).leaf == "e"


def test_the_file_names_its_segment_where_the_entries_stood(path):
    cut(put(path, *PLAIN))
    note = json.loads(path.read_bytes().split(b"\n")[1])
    (segment,) = segments.segments_of(path)
    assert note["customType"] == "perdure.segment"
    assert (note["data"]["segment"], note["data"]["entries"]) == (segment.name, 2)
    Segment(segment).verify(note["data"]["sha256"])
    assert load(path).problems == []


def test_a_file_can_be_rebuilt_from_its_segments(path):
    file = put(path, *PLAIN)
    before = {node.id: node.parent for node in load(path).nodes}
    cut(file)
    (segment,) = map(Segment, segments.segments_of(path))
    rebuilt = {node.id: node.parent for node in load(path).nodes if node.custom != "perdure.segment"}
    rebuilt |= dict(segment.index.reparented)
    rebuilt |= {entry.id: json.loads(entry.raw)["parentId"] for entry in segment.entries()}
    assert rebuilt == before


USER = b'"timestamp":"x","message":{"role":"user","content":"1","timestamp":1}}'
FOREIGN = (
    b'{ "type":"message", "id":"a","parentId":null,%b\n' % USER,
    b"\n",
    b'{"id":"m","zz":{"parentId":"a"},"parentId" : "a" ,"type":"model_change","provider":"p","z":1.0e2}\r\n',
    b'{"type":"mess\n',
    b'{"type":"unheard_of","id":"u","parentId":"m","timestamp":"x","list":[1,  2]}\n',
    b'{"type":"message","id":"b","parentId":"u",%b\n' % USER,
    b'{"type":"compaction","id":"p","parentId":"b","summary":"s","firstKeptEntryId":"b","tokensBefore":1}',
)


def test_foreign_bytes_are_spliced_and_damage_stays_where_it_is(path):
    file = put(path, *FOREIGN)
    assert cut(file).moved == 1
    rest = path.read_bytes().split(b"\n")
    assert b"perdure.segment" in rest.pop(1)
    expected = [*FOREIGN[1:2], FOREIGN[2].replace(b'"parentId" : "a"', b'"parentId" : null'), *FOREIGN[3:]]
    assert b"\n".join(rest) == HEAD + b"".join(expected)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((), "empty session"),
        ((said("a", None),), "no compaction entry found"),
        ((folded("p", None, None),), "compaction already at root"),
        ((said("a", None), folded("p", "a", "a")), "no entries to remove"),
    ],
)
def test_with_nothing_to_do_the_file_is_not_touched(path, parts, reason):
    file = put(path, *parts)
    before = path.stat()
    assert cut(file).reason == reason
    assert path.stat() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_waiting_letter_stays_and_a_taken_one_goes_with_its_message(path):
    letters = [Letter("k", "anna", f"m{n}", (Text(f"letter {n}"),), n) for n in (1, 2)]
    taken = said("b", "a", Facts(1, Origin("anna", "m1", 1)))
    known = Checkpoint(epoch=1, recent=(Seen("anna", "m1", "b"),), session="s-1")
    file = put(
        path,
        said("a", None),
        lines.inbox_line("i1", "a", NOW, letters[0], "s-1", 1),
        lines.inbox_line("i2", "a", NOW, letters[1], "s-1", 1),
        taken,
        folded("p", "b", None, replace(known, pending=(Pending("i2", letters[1]),))),
        said("c", "p"),
    )
    before = open_session(path)
    assert cut(file).moved == 3
    after = open_session(path)
    assert (after.pending, after.recent) == (before.pending, before.recent)
    assert [p.letter.mid for p in load(path).known().pending] == ["m2"]
    assert segments.find_entry(path, "i1") is not None


def test_a_letter_that_only_its_entry_remembers_is_not_forgotten(path):
    foreign = b'{"type":"compaction","id":"p","parentId":"b","summary":"s","firstKeptEntryId":"p"}\n'
    file = put(path, said("a", None), said("b", "a", Facts(1, Origin("anna", "m1", 1))), foreign)
    assert cut(file).moved == 1
    assert [(seen.mid, seen.entry) for seen in open_session(path).recent] == [("m1", "b")]


def test_entries_written_under_several_epochs_stay_valid(path):
    old, new = Facts(1), Facts(5)
    file = put(
        path,
        said("a", None, old),
        said("b", "a", old),
        said("c", "b", new),
        folded("p", "c", "c", Checkpoint(epoch=5)),
    )
    cut(file)
    assert load(path).stale == []
    assert [node.id for node in load(path).branch()] == ["c", "p"]


def test_lines_appended_while_it_is_prepared_are_kept(path):
    file = put(path, *PLAIN)
    prepared = rewrite.prepare(file, new_id, NOW, sync=False)
    file.append([said("e", "d")])
    assert rewrite.commit(file, prepared).done
    assert [item.entry for item in open_session(path).items] == ["p", "c", "d", "e"]


@pytest.mark.parametrize(
    "late", [said("e", "b"), folded("q", "d", "a"), lines.label_line("l", "d", NOW, "a", "here")]
)
def test_a_line_that_leans_on_what_would_go_stops_it(path, late):
    file = put(path, *PLAIN)
    prepared = rewrite.prepare(file, new_id, NOW, sync=False)
    file.append([late])
    before = path.read_bytes()
    done = rewrite.commit(file, prepared)
    assert (done.done, path.read_bytes()) == (False, before)
    assert segments.segments_of(path) == ()
    assert not list(path.parent.glob("*.tmp"))


def test_a_fenced_owner_leaves_neither_segment_nor_temp_file(path):
    grant = FakeGrant()
    put(path, *PLAIN)
    file = held(path, grant)
    prepared = rewrite.prepare(file, new_id, NOW, sync=False)
    grant.held = False
    before = path.read_bytes()
    with pytest.raises(Fenced):
        rewrite.commit(file, prepared)
    assert path.read_bytes() == before
    assert segments.segments_of(path) == ()


def test_a_full_disk_leaves_everything_as_it_was(path, monkeypatch):
    file = put(path, *PLAIN)
    before = path.read_bytes()

    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rewrite.segments, "write_segment", full)
    with pytest.raises(StorageFailed, match="space"):
        cut(file)
    monkeypatch.undo()
    monkeypatch.setattr(rewrite, "_copy", full)
    with pytest.raises(StorageFailed, match="space"):
        cut(file)
    assert path.read_bytes() == before
    assert segments.segments_of(path) == ()


def test_an_abandoned_branch_moves_along(path):
    file = put(
        path,
        said("a", None),
        said("x", "a"),
        lines.branch_line("k", "a", NOW, 0, abandoned="x"),
        said("b", "a"),
        folded("p", "b", "b"),
    )
    assert cut(file).moved == 2
    assert segments.find_entry(path, "x") is not None


# --- any history ----------------------------------------------------------------------------------

numbers = st.integers(0, 10_000)
KINDS = ["message"] * 8 + ["compaction", "model", "label", "summary", "inbox", "left"]
specs = st.lists(st.tuples(st.sampled_from(KINDS), numbers, numbers), min_size=2, max_size=20)


def history(spec):
    made, ids = [], []
    for n, (kind, where, what) in enumerate(spec):
        id, some = f"e{n}", ids[what % n] if n else "none"
        parent = None if not ids else ids[where // 7 % n] if where % 7 == 0 else ids[-1]
        match kind:
            case "compaction":
                made.append(folded(id, parent, some))
            case "model":
                made.append(lines.model_change_line(id, parent, NOW, "p", f"m{n}"))
            case "label":
                made.append(lines.label_line(id, parent, NOW, some, "l" * (what % 2)))
            case "summary":
                made.append(lines.branch_summary_line(id, parent, NOW, some, f"left {n}"))
            case "left" if ids:  # a rewrite went on elsewhere for good
                made.append(lines.branch_line(id, some, NOW, 0, abandoned=ids[-1]))
                ids.append(some)
                continue
            case "inbox":
                letter = Letter("k", "anna", f"m{what % 4}", (Text("hi"),))
                made.append(lines.inbox_line(id, parent, NOW, letter, "s-1", 0))
            case _:
                origin = Facts(0, Origin("anna", f"m{what % 4}")) if what % 5 == 0 else None
                made.append(said(id, parent, origin, text=f"{n} é " * (what % 9)))
        ids.append(id)
    return made


def choosable(path):
    """What every entry shows that a user may go back to, by id."""
    found = load(path)
    nodes = {node.id: node for node in found.nodes}.values()
    return {node.id: found.opened(node.id).items for node in nodes if not node.off_chain}


def labels_of(path):
    found = load(path)
    return found.labels(), found.known().name


more = st.lists(specs.map(lambda spec: spec[:8]), min_size=1, max_size=3)


@settings(max_examples=25, deadline=None)
@given(specs, more)
def test_every_entry_shows_the_same_through_the_segments_however_often_it_is_cut(
    tmp_path_factory, spec, later
):
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    file = put(path, *history(spec))
    count = len(spec)
    for grown in [*later, []]:
        before, named = choosable(path), labels_of(path)
        done = cut(file)
        assert {id: load(path).opened(id).items for id in before} == before
        assert labels_of(path) == named
        assert load(path).problems == []
        if done.done:
            found = load(path)
            latest = found.node(open_session(path).compaction)
            assert latest.kept in ("", latest.id) or found.node(latest.kept) is not None
        ids = [node.id for node in load(path).nodes if not node.off_chain]
        leaf = open_session(path).leaf
        for kind, where, what in grown:
            id, some = f"e{count}", ids[what % len(ids)] if ids else "none"
            count += 1
            parent = leaf if where % 7 or not ids else ids[where // 7 % len(ids)]
            if parent is not None and load(path).opened(parent).items != file_only(path, parent):
                parent = leaf  # a program of ours brings back first what such a view needs
            line = folded(id, parent, some) if kind == "compaction" else said(id, parent)
            file.append([line])
            ids.append(id)
            leaf = id


def file_only(path, leaf):
    """What a program that knows no segments makes of an entry."""
    found = load(path)
    with found.reading():
        return found._opened(found.graph, found.view(leaf), found.raw, True).items


@settings(max_examples=25, deadline=None)
@given(specs, specs, numbers)
def test_what_a_discarded_segment_held_is_refused_and_never_left_out_silently(
    tmp_path_factory, spec, grown, which
):
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    file = put(path, *history(spec))
    cut(file)
    leaf = open_session(path).leaf
    for n, (kind, _, _) in enumerate(grown):
        line = folded(f"g{n}", leaf, f"g{n}") if kind == "compaction" else said(f"g{n}", leaf)
        file.append([line])
        leaf = f"g{n}"
    cut(file)
    before, live = choosable(path), load(path).opened().items
    kept = segments.segments_of(path)
    if not kept:
        return
    segments.discard(path, kept[which % len(kept)].name)
    found = load(path)
    for id, items in before.items():
        try:
            assert found.opened(id).items == items
        except SegmentGone:
            continue
    assert found.opened().items == found.opened(leaf).items == live


def test_a_view_behind_an_older_compaction_is_read_from_the_segment(path):
    parts = [said("e1", None), said("e2", "e1"), said("e3", "e2"), said("e4", "e3"), folded("e5", "e4", "e3")]
    parts += [said("e6", "e5"), said("e7", "e6"), folded("e8", "e7", "e6"), said("e9", "e8")]
    file = put(path, *parts)
    assert cut(file).moved == 3
    assert [item.entry for item in load(path).opened("e7").items] == ["e5", "e3", "e4", "e6", "e7"]
    assert [item.entry for item in load(path).opened("e2").items] == ["e1", "e2"]
    segments.discard(path, segments.segments_of(path)[0].name)
    with pytest.raises(SegmentGone, match="missing"):
        load(path).opened("e7")
    with pytest.raises(SegmentGone, match="e2"):
        load(path).opened("e2")
    assert [item.entry for item in load(path).opened("e9").items] == ["e8", "e6", "e7", "e9"]


def test_what_a_killed_truncation_left_behind_is_collected_by_the_next(path):
    file = put(path, *PLAIN)
    rewrite.prepare(file, new_id, NOW, sync=False)
    path.with_name("s.jsonl.2a.tmp").write_bytes(b"half")
    assert len(segments.segments_of(path)) == 1
    other = path.with_name("s.jsonl.note.tmp")
    other.write_bytes(b"of another program")
    assert cut(file).done
    assert len(segments.segments_of(path)) == 1
    assert {p.name for p in path.parent.glob("*.tmp")} == {other.name}
    assert load(path).opened("b").items[-1].entry == "b"


def test_a_segment_that_holds_what_the_file_has_not_is_never_collected(path):
    file = put(path, *PLAIN)
    cut(file)
    kept = [row for row in path.read_bytes().split(b"\n") if b"perdure.segment" not in row]
    path.write_bytes(b"\n".join(kept))  # a repair of another program dropped the line
    assert rewrite.sweep(load(path)) == ()
    assert len(segments.segments_of(path)) == 1


@settings(max_examples=25, deadline=None)
@given(specs)
def test_every_branch_shows_the_same_and_every_entry_can_be_read(tmp_path_factory, spec):
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    made = history(spec)
    file = put(path, *made)
    found = load(path)
    live = found.opened().items
    before = {id: found.opened(id).items for id in leaf_ids(found)}
    pending = found.known().pending
    done = cut(file)
    later = load(path)
    assert later.problems == []
    assert later.opened().items == live
    for id, items in before.items():
        assert later.opened(id).items == items
    assert later.known().pending == pending
    for n, line in enumerate(made):
        raw = later.entry(f"e{n}") if later.node(f"e{n}") else segments.find_entry(path, f"e{n}")
        assert json.loads(raw) | {"parentId": 0} == json.loads(line) | {"parentId": 0}
    if done.done:
        assert open_session(path).items == later.opened().items
        assert not cut(file).done  # once is enough


@pytest.mark.parametrize("vector", vectors("truncation"), ids=lambda vector: vector["id"])
def test_no_view_of_a_reference_vector_is_lost(path, vector):
    """Among them those in which the reference loses the kept tail: truncation-0038 and -0039."""
    path.write_text(vector["input"]["file_text"] or "", "utf-8", "surrogatepass")
    try:
        before = choosable(path)
    except UnreadableFile:
        return  # no session: nothing is truncated
    cut(held(path))
    assert {id: load(path).opened(id).items for id in before} == before


def leaf_ids(found):
    return [found.nodes[at].id for at in leaves(found.graph)]


def test_an_old_version_is_left_to_its_migration(path):
    file = put(path, *PLAIN)
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":1'))
    before = path.read_bytes()
    assert "version 1" in cut(file).reason
    assert path.read_bytes() == before
