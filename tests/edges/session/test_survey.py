from helpers_files import FakeGrant
from perdure.contracts import Letter
from perdure.edges.session import lines, rewrite
from perdure.edges.session.facts import Checkpoint, Facts, Origin, Seen
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.survey import letters, survey
from perdure.records import Assistant, Text, User

NOW = 1_790_000_000_000
KEY = "agent:main:cli:dm:local"


def user(id, parent, mid):
    message = User((Text(id),), NOW)
    return lines.message_line(id, parent, NOW, message, Facts(1, Origin("anna", mid, NOW)))


def answer(id, parent):
    return lines.message_line(id, parent, NOW, Assistant((Text(id),)), Facts(1))


def session(tmp_path, *parts):
    room = SessionFiles(tmp_path, FakeGrant(), sync=False)
    held = room.create(KEY, "/w", NOW)
    held.file.append(parts)
    return room, held


def test_a_survey_finds_what_an_index_holds(tmp_path):
    letter = Letter(KEY, "anna", "m2", (Text("wait"),))
    waits = lines.inbox_line("i", "a", NOW, letter, "other", 1)
    room, held = session(tmp_path, user("u", None, "m1"), answer("a", "u"), waits)
    own = lines.inbox_line("j", "a", NOW, letter, held.opened.session_id, 1)
    held.file.append([own])
    row = survey(next(iter(room.list())))
    assert (row.key, row.size, row.entries) == (KEY, held.file.path.stat().st_size, 4)
    assert (row.open_turn, row.pending) == (False, 1)


def test_an_unanswered_message_is_unfinished_work(tmp_path):
    room, _ = session(tmp_path, user("u", None, "m1"))
    assert survey(next(iter(room.list()))).open_turn


def test_message_ids_are_found_in_segments_too(tmp_path):
    known = Checkpoint(epoch=1, recent=(Seen("anna", "m1", "u"),))
    folded = lines.compaction_line("p", "a", NOW, "so far", "p", 9, known, b"{}")
    _, held = session(tmp_path, user("u", None, "m1"), answer("a", "u"), folded, user("v", "p", "m2"))
    assert rewrite.truncate(held.file, lambda: "n", NOW, sync=False).moved == 2
    assert [(each.mid, each.entry) for each in letters(held.file.path)] == [("m1", "u"), ("m2", "v")]
