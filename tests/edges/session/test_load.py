"""Whole files: damage costs itself, older versions read as the newest, nonsense is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers_sessions import HEADER, assistant, compaction, entry, line, off_chain, user, write
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Letter
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint, Facts, Gap, Origin, Pending, Seen, Settings
from perdure.edges.session.load import load
from perdure.edges.session.own import NewerFacts
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.records import Assistant, Custom, Decision, Pinned, Summary, Text, User

PIN = Pinned("e0", "answer in French", "instruction", "e1")


def texts(path: Path) -> list[str]:
    """The view as words: texts, and `[gap]` where a hole is marked."""
    opened = open_session(path)
    assert opened == load(path).opened()
    found = []
    for item in opened.items:
        if isinstance(item.message, Custom) and item.message.kind == "perdure.gap":
            found.append("[gap]")
        elif isinstance(item.message, Summary):
            found.append(item.message.summary)
        else:
            found += [block.text for block in item.message.content if isinstance(block, Text)]  # type: ignore[union-attr]
    return found


def kinds(path: Path) -> list[tuple[str, int, int]]:
    return [(problem.kind, problem.line, problem.byte) for problem in load(path).problems]


# --- damage ---------------------------------------------------------------------------------------


def test_a_kill_inside_an_append_loses_one_record_and_shows_the_hole(tmp_path: Path) -> None:
    first, stub = user("e1", None, "a"), b'{"type":"message","message":{"role":"ass'
    path = write(tmp_path / "s", [first, stub + line(user("e3", "e2", "b")), assistant("e4", "e3", "c")])
    at = len(line(HEADER)) + len(line(first)) + 2
    assert texts(path) == ["a", "[gap]", "b", "c"]
    assert kinds(path) == [("torn", 3, at)]
    assert load(path).node("e3").start == at + len(stub)  # type: ignore[union-attr]
    assert open_session(path).gaps == (Gap("e3", "e2", "e1"),)


def test_glued_records_count_each(tmp_path: Path) -> None:
    glued = line(user("e1", None, "a")) + line(assistant("e2", "e1", "b"))
    path = write(tmp_path / "s", [glued, user("e3", "e2", "c")])
    assert (texts(path), load(path).count) == (["a", "b", "c"], 3)


def test_a_run_of_nul_bytes_in_the_middle_stops_nobody(tmp_path: Path) -> None:
    rows = [user("e1", None, "a"), assistant("e2", "e1", "b"), b"\0" * 256, user("e3", "e2", "c")]
    path = write(tmp_path / "s", rows)
    assert texts(path) == ["a", "b", "c"]
    assert [kind for kind, _, _ in kinds(path)] == ["nul"]


def test_texts_with_unicode_line_ends_stay_one_record(tmp_path: Path) -> None:
    text = "first\u2028second\u2029third\u0085fourth"
    path = write(tmp_path / "s", [user("e1", None, text)])
    assert texts(path) == [text]
    assert kinds(path) == []


@pytest.mark.parametrize(
    ("tail", "seen", "torn"),
    [
        (line(assistant("e2", "e1", "é"))[:-45] + b"\xc3", ["a"], True),
        (line(assistant("e2", "e1", "b")), ["a", "b"], False),
        (line(assistant("e2", "e1", "b"))[:50], ["a"], True),
    ],
    ids=["inside a character", "newline missing", "half a record"],
)
def test_a_torn_last_line_costs_itself_only(tmp_path: Path, tail: bytes, seen: list[str], torn: bool) -> None:
    path = write(tmp_path / "s", [user("e1", None, "a")])
    with path.open("ab") as file:
        file.write(tail)
    assert texts(path) == seen
    assert open_session(path).torn is torn


def test_a_missing_link_keeps_both_islands(tmp_path: Path) -> None:
    rows = [
        user("e1", None, "a"),
        assistant("e2", "e1", "b"),
        user("e3", "MISSING", "c"),
        assistant("e4", "e3", "d"),
    ]
    assert texts(write(tmp_path / "s", rows)) == ["a", "b", "[gap]", "c", "d"]


def test_a_circle_of_parents_ends_where_it_began(tmp_path: Path) -> None:
    rows = [user("e1", "e3", "a"), assistant("e2", "e1", "b"), user("e3", "e2", "c")]
    assert texts(write(tmp_path / "s", rows)) == ["a", "b", "c"]


def test_a_file_that_a_program_wrote_twice_reads_as_once(tmp_path: Path) -> None:
    once = [user("e1", None, "a"), user("e2", "e1", "b")]
    path = write(tmp_path / "s", [*once, HEADER, *once, assistant("e3", "e2", "c")])
    assert (texts(path), load(path).count) == (["a", "b", "c"], 3)
    assert [kind for kind, _, _ in kinds(path)] == ["repeated"]


def test_a_line_of_an_owner_that_had_lost_the_file_is_void_and_reported(tmp_path: Path) -> None:
    rows = [
        user("e1", None, "a", perdure={"v": 1, "e": 4}),
        off_chain("owner", "o", "e1", e=5, epoch=5),
        user("e2", "e1", "stale", perdure={"v": 1, "e": 4}),
        user("e3", "e1", "b", perdure={"v": 1, "e": 5}),
    ]
    path = write(tmp_path / "s", rows)
    assert texts(path) == ["a", "b"]
    assert [kind for kind, _, _ in kinds(path)] == ["stale_owner"]
    assert open_session(path).epoch == 5
    stale_last = write(tmp_path / "t", rows[:3])
    assert texts(stale_last) == ["a"]


def test_reading_changes_neither_bytes_nor_times(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s",
        [user("e1", None), b"\0\0", line(user("e2", "e1"))[:40]],
        header=HEADER | {"version": 1},
    )
    before = path.read_bytes(), os.stat(path).st_mtime_ns, sorted(os.listdir(tmp_path))
    load(path).opened()
    open_session(path)
    assert (path.read_bytes(), os.stat(path).st_mtime_ns, sorted(os.listdir(tmp_path))) == before


# --- versions -------------------------------------------------------------------------------------


def old(kind: str = "message", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": "2025-01-01T00:00:00.000Z", **fields}


def said(text: str) -> dict[str, Any]:
    return old(message={"role": "user", "content": text})


V1 = {"type": "session", "id": "s1", "cwd": "/w"}


@pytest.mark.parametrize(
    ("index", "seen"),
    [
        (2, ["S", "b", "c"]),
        (1, ["S", "a", "b", "c"]),
        (3, ["S", "c"]),
        (0, ["S", "c"]),
        (4, ["S", "c"]),
        (99, ["S", "c"]),
    ],
)
def test_version_1_names_what_a_compaction_keeps_by_index(
    tmp_path: Path, index: int, seen: list[str]
) -> None:
    made = old("compaction", summary="S", firstKeptEntryIndex=index, tokensBefore=1)
    assert texts(write(tmp_path / "s", [said("a"), said("b"), made, said("c")], header=V1)) == seen


def test_ids_of_version_1_are_byte_offsets_and_stay_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "s", [said("a"), said("b")], header=V1)
    loaded = load(path)
    assert [int(node.id, 16) for node in loaded.nodes] == [node.start for node in loaded.nodes]
    assert loaded.entry(loaded.nodes[1].id) == line(said("b"))
    assert loaded.nodes[1].parent == loaded.nodes[0].id
    assert open_session(path).version == 1


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b"\n \n\n", "nothing but blanks"),
        (bytes(range(256)) * 8, "binary data"),
        (b"hello\nworld\n", "no line of it is a session header or entry"),
        (b'{"a":1}\n[1]\nnull\n', "no line of it is a session header or entry"),
        (b'{"parentUuid":null,"sessionId":"x","type":"user","uuid":"u"}\n', "a Claude Code transcript"),
        (b'{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}\n', "a Codex transcript"),
        (b'{"_type":"metadata","key":"k"}\n{"role":"user","content":"x"}\n', "a nanobot transcript"),
    ],
)
def test_what_is_no_session_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "s.jsonl"
    if content is not None:
        path.write_bytes(content)
    for read in (load, open_session):
        with pytest.raises(UnreadableFile) as refused:
            read(path)
        assert reason in str(refused.value)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="a folder, not a session file"):
        load(tmp_path)


def test_a_foreign_transcript_is_pointed_to_import(tmp_path: Path) -> None:
    path = write(tmp_path / "s", [{"type": "event_msg", "payload": {}}], header=None)
    with pytest.raises(UnreadableFile, match=f"`perdure import {path}`"):
        open_session(path)


@pytest.mark.parametrize(
    "carrier",
    [
        user("e2", "e1", perdure={"v": 2, "e": 1}),
        off_chain("checkpoint", "e2", "e1", v=2),
        off_chain("inbox", "e2", "e1", v=7, sender="a", mid="b"),
        compaction("e2", "e1", "e1", details={"perdure": {"v": 3, "e": 1}}),
    ],
    ids=["message", "checkpoint", "inbox", "compaction"],
)
def test_facts_of_a_newer_perdure_are_refused_by_both_versions_numbers(tmp_path: Path, carrier: Any) -> None:
    path = write(tmp_path / "s", [user("e1", None), carrier])
    for read in (open_session, lambda p: load(p).opened()):
        with pytest.raises(NewerFacts, match=r"version \d, this one reads up to 1"):
            read(path)


@pytest.mark.parametrize(
    "odd", [5, "x", [], {"e": "high"}, {"inbox": 3, "e": 1}, {"decided": [{"form": "??"}]}], ids=repr
)
def test_a_field_of_our_name_that_is_not_ours_disturbs_nobody(tmp_path: Path, odd: Any) -> None:
    assert texts(write(tmp_path / "s", [user("e1", None, "a", perdure=odd)])) == ["a"]


# --- facts ----------------------------------------------------------------------------------------


def inbox(id: str, mid: str, session: str = "s1") -> dict[str, Any]:
    return off_chain("inbox", id, "e1", session=session, sender="ann", mid=mid, arrived=3, content="hello")


def test_a_letter_waits_until_a_message_carries_its_name(tmp_path: Path) -> None:
    taken = user("e2", "e1", perdure={"v": 1, "e": 1, "inbox": {"sender": "ann", "mid": "m1", "arrived": 3}})
    path = write(tmp_path / "s", [user("e1", None), inbox("i1", "m1"), inbox("i2", "m2"), taken])
    opened = open_session(path)
    assert [(p.entry, p.letter.mid, p.letter.content) for p in opened.pending] == [
        ("i2", "m2", (Text("hello"),))
    ]
    assert opened.recent == (Seen("ann", "m2", "i2"), Seen("ann", "m1", "e2"))
    assert opened.leaf == "e2"


def test_a_copied_file_does_not_answer_letters_of_its_original(tmp_path: Path) -> None:
    first = write(tmp_path / "s", [user("e1", None), inbox("i1", "m1")])
    opened = open_session(first)
    record = Checkpoint(pending=opened.pending, recent=opened.recent, session="s1", epoch=1)
    made = lines.checkpoint_line("c1", "e1", 1, record).rstrip(b"\n")
    rows = [user("e1", None), inbox("i1", "m1"), made]
    assert open_session(write(tmp_path / "same", rows)).pending == opened.pending
    copy = open_session(write(tmp_path / "copy", rows, header=HEADER | {"id": "other"}))
    assert (copy.pending, copy.recent) == ((), ())


def test_what_the_writing_side_encodes_is_read_back(tmp_path: Path) -> None:
    letter = Letter("k", "ann", "m1", (Text("cut \ud83d"),), 7, "inter_session")
    decided = (Decision("e1", "shortened", 70, 30),)
    record = Checkpoint(
        epoch=3,
        leaf="e1",
        settings=Settings("p", "m", "high", "legacy"),
        name="n",
        pending=(Pending("i1", letter),),
        recent=(Seen("ann", "m1", "i1"),),
        decisions=decided,
        learned=(Estimator("p/m", 2, prompt=600),),
        pins=(PIN,),
        covered_bytes=9,
        session="s1",
    )
    message = lines.message_line(
        "e1", None, 5, User((Text("a"),), 5), Facts(3, Origin("bob", "m0", 4), decided)
    )
    later = Estimator("p/other", 1, (0.5, 1.0, 0.75, 2.0, 1.0), known=(1, 2, 3, 4, 5), prompt=90)
    answer = lines.message_line("e2", "e1", 7, Assistant((Text("b"),)), Facts(3, learned=later))
    rows = [message.rstrip(b"\n"), lines.checkpoint_line("c", "e1", 6, record).rstrip(b"\n")]
    rows.append(answer.rstrip(b"\n"))
    opened = open_session(write(tmp_path / "s", rows))
    assert (opened.settings, opened.name, opened.epoch) == (record.settings, "n", 3)
    assert (opened.pending, opened.recent, opened.decisions) == (record.pending, record.recent, decided)
    assert (opened.learned, opened.pins, opened.covered_bytes) == ((*record.learned, later), (PIN,), 9)
    assert opened.leaf == "e2"


@pytest.mark.parametrize(
    "odd",
    [
        5,
        "x",
        [],
        [1, 2],
        ["m", 1, [1.0]],
        {"model": "m"},
        ["m", 1, [1, 1, 1, 1, "x"]],
        ["m", 1, "\ud800"],
        ["m", 1, [1e300, 1, 1, 1, 1]],
        ["m", 1, [-1, 1, 1, 1, 1]],
        ["m", 1, [1] * 5, [0.01] * 5, 10**15],
    ],
)
def test_what_another_program_put_for_what_was_learned_is_no_fact(tmp_path: Path, odd: object) -> None:
    row = assistant("e2", "e1") | {"perdure": {"v": 1, "e": 1, "learned": odd}}
    opened = open_session(write(tmp_path / "s", [user("e1", None), row]))
    assert all(each.rates[0] == 0.75 for each in opened.learned)
    assert len(opened.items) == 2


def test_labels_are_those_set_last_on_entries_that_exist(tmp_path: Path) -> None:
    rows = [
        user("e1", None),
        entry("label", "l1", "e1", targetId="e1", label="old"),
        entry("label", "l2", "l1", targetId="nowhere", label="x"),
        entry("label", "l3", "l2", targetId="e1", label="new"),
    ]
    path = write(tmp_path / "s", rows)
    assert load(path).labels() == {"e1": "new"}
    assert load(write(tmp_path / "t", [*rows, entry("label", "l4", "l3", targetId="e1")])).labels() == {}


def test_records_are_read_by_id_and_in_order_byte_for_byte(tmp_path: Path) -> None:
    strange = b'{ "type" : "future", "id":"x","parentId":"e1", "n": 1.0 }'
    path = write(tmp_path / "s", [user("e1", None), strange])
    loaded = load(path)
    assert loaded.entry("x") == strange
    assert [raw for _, raw in loaded.entries()] == [line(user("e1", None)), strange]
    with pytest.raises(KeyError):
        loaded.entry("nowhere")
    assert json.loads(loaded.entry("e1"))["id"] == "e1"
