import json

import pytest

from perdure.contracts import Letter
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint, Facts, Origin, Pending, Seen, Settings
from perdure.records import Decision, Image, Text, ToolCall, User

AT = 1_790_000_000_123


def entry(line):
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


def test_times_are_written_as_the_format_has_them():
    assert lines.iso(AT) == "2026-09-21T14:13:20.123Z"
    assert lines.iso(0) == "1970-01-01T00:00:00.000Z"


def test_a_header_names_its_parent_only_if_it_has_one():
    plain = entry(lines.header_line("s-1", AT, "/w"))
    assert plain == {
        "type": "session", "version": 3, "id": "s-1", "timestamp": lines.iso(AT), "cwd": "/w",
    }  # fmt: skip
    assert entry(lines.header_line("s-2", AT, "/w", "/old.jsonl")) == plain | {
        "id": "s-2",
        "parentSession": "/old.jsonl",
    }


def test_a_message_carries_origin_and_decisions_in_its_extra_field():
    facts = Facts(
        7,
        Origin("anna", "m-1", 5),
        (Decision("e1", "shortened", 700, 300), Decision("limit", "limit", value="e0")),
    )
    made = entry(lines.message_line("e2", "e1", AT, User((Text("hi"),), AT), facts))
    assert (made["type"], made["id"], made["parentId"]) == ("message", "e2", "e1")
    assert made["message"]["role"] == "user"
    assert made["perdure"] == {
        "v": 1,
        "e": 7,
        "inbox": {"sender": "anna", "mid": "m-1", "arrived": 5},
        "decided": [
            {"key": "e1", "form": "shortened", "head": 700, "tail": 300},
            {"key": "limit", "form": "limit", "value": "e0"},
        ],
    }


def test_a_message_without_facts_is_the_format_alone():
    assert "perdure" not in entry(lines.message_line("a", None, AT, User((Text("hi"),), AT)))


def test_a_compaction_keeps_our_facts_in_its_details_and_anchors_itself_when_nothing_is_kept():
    record = Checkpoint(epoch=3, leaf="c", settings=Settings("p", "m"), recent=(Seen("a", "1", "e"),))
    made = entry(lines.compaction_line("c", "b", AT, "so far", None, 900, record, b'{"ok":true}'))
    ours = made["details"]["perdure"]
    assert (made["firstKeptEntryId"], made["summary"], made["tokensBefore"]) == ("c", "so far", 900)
    assert (ours["v"], ours["e"], ours["proof"]) == (1, 3, {"ok": True})
    assert ours["checkpoint"]["settings"]["model"] == "m"
    assert ours["checkpoint"]["recent"] == [{"sender": "a", "mid": "1", "entry": "e"}]


def test_entries_of_ours_stand_off_the_chain_with_version_and_epoch():
    letter = Letter("k", "anna", "m-1", (Text("hi"), Image("aGk=", "image/png")), 5, "inter_session")
    for made, kind in (
        (lines.inbox_line("i", "leaf", AT, letter, "s-1", 4), "inbox"),
        (
            lines.checkpoint_line("i", "leaf", AT, Checkpoint(epoch=4, pending=(Pending("i", letter),))),
            "checkpoint",
        ),
        (lines.owner_line("i", "leaf", AT, 4, 44, "n", "b"), "owner"),
        (lines.resume_line("i", "leaf", AT, "e", 4), "resume"),
        (lines.branch_line("i", "leaf", AT, 4), "branch"),
        (lines.segment_line("i", "leaf", AT, 4, "s", "00", 3, {"c": "p"}), "segment"),
        (lines.restored_line("i", "leaf", AT, 4, 3, {"c": "p"}), "restored"),
        (lines.discarded_line("i", "leaf", AT, 4, "s", 3), "discarded"),
    ):
        told = entry(made)
        assert (told["type"], told["customType"], told["parentId"]) == ("custom", f"perdure.{kind}", "leaf")
        assert (told["data"]["v"], told["data"]["e"]) == (1, 4)


def test_a_waiting_letter_holds_everything_that_its_message_needs():
    letter = Letter("k", "anna", "m-1", (Text("hi"), Image("aGk=", "image/png")), 5, "inter_session")
    data = entry(lines.inbox_line("i", None, AT, letter, "s-1", 4))["data"]
    blocks = [{"type": "text", "text": "hi"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    assert data == {
        "v": 1, "e": 4, "session": "s-1", "sender": "anna", "mid": "m-1", "arrived": 5,
        "kind": "inter_session", "content": blocks,
    }  # fmt: skip
    kept = entry(lines.checkpoint_line("i", None, AT, Checkpoint(pending=(Pending("i", letter),))))
    assert kept["data"]["pending"][0]["letter"]["content"] == blocks


@pytest.mark.parametrize(
    ("made", "kind", "fields"),
    [
        (lines.label_line("a", "b", AT, "t", "here"), "label", {"targetId": "t", "label": "here"}),
        (lines.label_line("a", "b", AT, "t", None), "label", {"targetId": "t"}),
        (lines.session_info_line("a", "b", AT, "n"), "session_info", {"name": "n"}),
        (lines.model_change_line("a", "b", AT, "p", "m"), "model_change", {"provider": "p", "modelId": "m"}),
        (lines.thinking_line("a", "b", AT, "high"), "thinking_level_change", {"thinkingLevel": "high"}),
        (lines.custom_line("a", "b", AT, "x", b"[1]"), "custom", {"customType": "x", "data": [1]}),
        (
            lines.branch_summary_line("a", "b", AT, "f", "s"),
            "branch_summary",
            {"fromId": "f", "summary": "s"},
        ),
    ],
)
def test_plain_entries_have_the_shapes_of_the_format(made, kind, fields):
    common = {"type": kind, "id": "a", "parentId": "b", "timestamp": lines.iso(AT)}
    assert entry(made) == common | fields


def test_lone_surrogates_newlines_and_nuls_survive_in_one_line():
    text = "a\ud83d\n\0\u2028b"
    assert entry(lines.session_info_line("a", None, AT, text))["name"] == text
    letter = Letter("k", text, "m", (Text(text), ToolCall("c", "t", b"{}")))
    data = entry(lines.inbox_line("a", None, AT, letter, "s", 1))["data"]
    assert (data["sender"], data["content"][0]["text"]) == (text, text)
