import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_files import HEADER, FakeGrant, child, entry
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.facts import Facts
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.lines import message_line
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import Fenced, Locked, SessionNotFound, UnreadableFile, UsageError
from perdure.records import Text, User

NOW = 1_790_000_000_000
KEY = "agent:main:cli:dm:local"


def files(state, token=1, *, clean=True, **more):
    return SessionFiles(state, FakeGrant(token, clean=clean), sync=False, **more)


def ours(id, parent, epoch):
    return message_line(id, parent, NOW, User((Text(id),), NOW), Facts(epoch))


def ids(path):
    return [node.id for node in load(path).nodes]


def test_a_new_session_has_a_header_and_a_lock_and_both_end_with_it(tmp_path):
    room = files(tmp_path)
    held = room.create(KEY, "/w", NOW)
    assert (held.opened.version, held.opened.cwd, held.opened.leaf) == (3, "/w", None)
    assert held.lock.path.exists()
    held.file.append([ours("a", None, 1)])
    held.close(handover=True)
    assert not held.lock.path.exists()
    again = room.open(KEY, NOW)
    assert again.opened.leaf == "a"
    assert again.opened.session_id == held.opened.session_id


def test_an_existing_session_is_not_made_again(tmp_path):
    room = files(tmp_path)
    room.create(KEY, "/w", NOW).close(handover=False)
    with pytest.raises(UsageError):
        room.create(KEY, "/w", NOW)
    room.open(KEY, NOW)  # the refusal held no lock back


def test_a_missing_session_is_named(tmp_path):
    with pytest.raises(SessionNotFound, match=KEY):
        files(tmp_path).open(KEY, NOW)


def test_a_session_that_is_awake_elsewhere_is_locked(tmp_path):
    files(tmp_path).create(KEY, "/w", NOW)
    with pytest.raises(Locked):
        files(tmp_path).open(KEY, NOW)


def test_an_unreadable_file_is_left_alone_and_unlocked(tmp_path):
    room = files(tmp_path)
    path = room.path(KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x00\x01binary\xff" * 50)
    for _ in range(2):
        with pytest.raises(Exception, match=r"agent\+main") as told:
            room.open(KEY, NOW)
        assert "\n" not in str(told.value)
    assert os.listdir(path.parent) == [path.name]


def test_sessions_are_listed_with_their_keys(tmp_path):
    room = files(tmp_path)
    for key in (KEY, "agent:main:é:../x", "plain", "agent:b:" + "long" * 100):
        room.create(key, "/w", NOW).close(handover=False)
    (tmp_path / "sessions" / "main" / "Foreign.jsonl").write_bytes(HEADER)
    found = {each.key for each in room.list()}
    assert found == {KEY, "agent:main:é:../x", "plain", "agent:b:" + "long" * 100, None}


def test_new_puts_the_old_file_aside_and_names_it_as_parent(tmp_path):
    room = files(tmp_path)
    room.create(KEY, "/w", NOW).close(handover=False)
    made = room.renew(KEY, "/w", NOW)
    (aside,) = room.earlier(KEY)
    assert made.opened.parent_session == os.fspath(aside)
    assert [each.key for each in room.list()] == [KEY]
    assert open_session(aside).session_id != made.opened.session_id


# --- owners ---------------------------------------------------------------------------------------


def two_lines(tmp_path):
    held = files(tmp_path, 1).create(KEY, "/w", NOW)
    held.file.append([ours("a", None, 1), ours("b", "a", 1)])
    held.lock.release()
    return held


def test_after_a_clean_release_the_same_inode_goes_on(tmp_path):
    before = two_lines(tmp_path)
    after = files(tmp_path, 2, clean=True).open(KEY, NOW)
    assert after.opened.inode == before.file.inode
    assert after.opened.leaf == "b"


def test_after_a_dirty_loss_the_old_owner_can_not_be_acknowledged_any_more(tmp_path):
    before = two_lines(tmp_path)
    after = files(tmp_path, 2, clean=False, node="n", boot="x").open(KEY, NOW)
    with pytest.raises(Fenced):
        before.file.append([ours("late", "b", 1)])
    after.file.append([ours("c", after.opened.leaf, 2)])
    found = load(after.file.path)
    assert [node.id for node in found.branch()] == ["a", "b", "c"]
    assert found.problems == []
    assert (found.epoch, after.opened.epoch) == (2, 2)
    owner = json.loads(next(raw for node, raw in found.entries() if node.custom == "perdure.owner"))
    assert owner["data"] == {"v": 1, "e": 2, "epoch": 2, "token": 2, "node": "n", "boot": "x"}


def test_a_session_is_taken_over_once_per_ownership(tmp_path):
    two_lines(tmp_path)
    room = files(tmp_path, 2, clean=False)
    first = room.open(KEY, NOW)
    first.close(handover=False)
    second = room.open(KEY, NOW)
    assert second.opened.inode == first.opened.inode
    assert first.file.path.read_bytes().count(b"perdure.owner") == 1


def test_what_the_old_owner_wrote_at_the_last_moment_is_part_of_the_session(tmp_path):
    held = two_lines(tmp_path)
    with held.file.path.open("ab") as late:
        late.write(ours("c", "b", 1)[:40])
    after = files(tmp_path, 2, clean=False).open(KEY, NOW)
    assert after.opened.leaf == "b"
    assert ids(after.file.path)[:2] == ["a", "b"]


def test_a_file_of_a_later_owner_is_refused_and_a_local_owner_may_outgrow_it(tmp_path):
    place = LocalPlacement(tmp_path, wall_ms=NOW)
    held = files(tmp_path, 9).create(KEY, "/w", NOW)
    held.file.append([ours("a", None, 9)])
    held.close(handover=False)
    with pytest.raises(Fenced, match="ownership 9"):
        files(tmp_path, 3).open(KEY, NOW)
    room = SessionFiles(tmp_path, place.grant(0), sync=False, outgrow=place.outgrow)
    again = room.open(KEY, NOW)
    again.file.append([ours("b", "a", again.file.epoch)])
    assert again.file.epoch == 10
    assert [node.id for node in load(again.file.path).branch()] == ["a", "b"]
    place.close(clean=True)


@pytest.mark.parametrize("epoch", [2**53, 2**60, 2**70, 10**300])
def test_a_nonsense_epoch_in_one_file_leaves_the_folder_and_its_other_sessions_as_they_are(tmp_path, epoch):
    files(tmp_path, 1).create(KEY, "/w", NOW).close(handover=False)
    path = files(tmp_path, 1).path(KEY)
    row = ours("a", None, 1).replace(b'"e":1', b'"e":%d' % epoch)
    path.write_bytes(path.read_bytes() + row)
    place = LocalPlacement(tmp_path, wall_ms=NOW)
    room = SessionFiles(tmp_path, place.grant(0), sync=False, outgrow=place.outgrow)
    if epoch == 2**53:
        with pytest.raises(UnreadableFile, match="damaged"):
            room.open(KEY, NOW)
    else:
        assert ids(room.open(KEY, NOW).file.path) == ["a"]
    assert place.grant(0).token < 2**31
    assert room.create("another", "/w", NOW).opened.leaf is None
    place.close(clean=True)


# --- older versions -------------------------------------------------------------------------------

V1 = b"""{"type":"session","id":"s-1","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/w","mine":1}
{"type":"message","timestamp":"2025-01-01T00:00:01.000Z","message":{"role":"user","content":"one","timestamp":1},"x":{"id":7}}
{"type":"message","timestamp":"2025-01-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text","text":"two"}],"timestamp":2}}
{"type":"compaction","timestamp":"2025-01-01T00:00:03.000Z","summary":"sum","firstKeptEntryIndex":2,"tokensBefore":9}
{"type":"message","timestamp":"2025-01-01T00:00:04.000Z","message":{"role":"hookMessage","customType":"h","content":"three","display":true,"timestamp":3}}
"""


def place(tmp_path, data):
    room = files(tmp_path)
    path = room.path(KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return room, path


def test_an_old_file_is_migrated_before_the_first_append_and_means_the_same(tmp_path):
    room, path = place(tmp_path, V1)
    before = open_session(path)
    assert path.read_bytes() == V1  # reading alone changes nothing
    held = room.open(KEY, NOW)
    assert held.opened.version == 3
    assert held.opened.items == before.items
    assert (held.opened.leaf, held.opened.compaction) == (before.leaf, before.compaction)
    assert [e.id for e in held.opened.entries] == [e.id for e in before.entries]
    assert path.with_name(path.name + ".bak-v1").read_bytes() == V1
    assert json.loads(path.read_bytes().split(b"\n")[0])["mine"] == 1
    assert b'"x":{"id":7}' in path.read_bytes()
    assert b"hookMessage" not in path.read_bytes()
    held.file.append([ours("z", held.opened.leaf, 1)])
    assert len(load(path).branch()) == 5


def test_version_two_keeps_its_ids(tmp_path):
    room, path = place(tmp_path, HEADER.replace(b'"version":3', b'"version":2') + entry(0) + entry(1))
    held = room.open(KEY, NOW)
    assert path.read_bytes() == HEADER + entry(0) + entry(1)
    assert held.opened.leaf == "m1"


def test_version_three_is_not_touched_by_opening(tmp_path):
    room, path = place(tmp_path, HEADER + entry(0))
    room.open(KEY, NOW).close(handover=False)
    assert path.read_bytes() == HEADER + entry(0)
    assert os.listdir(path.parent) == [path.name]


# --- crashes and bad places -----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10_000), st.integers(0, 3))
def test_a_crash_at_any_byte_loses_no_whole_line_and_doubles_none(tmp_path_factory, count, where, late):
    tmp_path = tmp_path_factory.mktemp("crash")
    held = files(tmp_path, 1).create(KEY, "/w", NOW)
    ends, up = [held.file.size], None
    for n in range(count):
        ends.append(held.file.append([ours(f"e{n}", up, 1)]).size)
        up = f"e{n}"
    cut = ends[0] + where % (ends[-1] - ends[0] + 1)
    os.truncate(held.file.path, cut)
    held.lock.release()
    again = files(tmp_path, 2, clean=False).open(KEY, NOW)
    whole = [f"e{n}" for n in range(count) if ends[n + 1] - 1 <= cut]
    assert [item.entry for item in again.opened.items] == whole
    for n in range(late):
        again.file.append([ours(f"n{n}", f"n{n - 1}" if n else again.opened.leaf, 2)])
    after = load(again.file.path)
    assert [node.id for node in after.branch()] == [*whole, *(f"n{n}" for n in range(late))]
    assert len(after.graph.by_id) == len(after.nodes)


READ_ONLY = """
import os, sys
from pathlib import Path
from helpers_files import FakeGrant
from perdure.edges.session.files import SessionFiles
from perdure.errors import StorageFailed
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
room = SessionFiles(Path(sys.argv[1]), FakeGrant(), sync=False)
for work in (lambda: room.create("agent:main:new", "/w", 0), lambda: room.open("agent:main:cli:dm:local", 0)):
    try:
        work()
    except StorageFailed as error:
        print(error)
"""


def test_a_folder_without_write_rights_gets_one_clear_line_each(tmp_path):
    files(tmp_path).create(KEY, "/w", NOW).close(handover=False)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o5 != 0o5 and folder.owner() == tmp_path.owner():
            folder.chmod(0o755)
    for folder in ("sessions", "sessions/main"):
        (tmp_path / folder).chmod(0o555)
    told = child(READ_ONLY, str(tmp_path)).splitlines()
    (tmp_path / "sessions" / "main").chmod(0o755)
    assert len(told) == 2
    assert all("Permission denied" in line for line in told)


def test_ids_of_one_ownership_never_repeat_whatever_sleeps_in_between(tmp_path):
    room, made = files(tmp_path), []
    room.create(KEY, "/w", NOW).close(handover=False)
    for _ in range(3):
        held = room.open(KEY, NOW)
        made += [held.ids.entry(NOW), held.ids.entry(NOW)]
        held.close(handover=False)
    assert len(set(made)) == 6


@pytest.mark.parametrize("version", [4, 99, "99", 1e300])
def test_a_file_of_a_newer_program_is_refused_and_left_as_it_is(tmp_path, version):
    room = files(tmp_path)
    path = room.path(KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps(json.loads(HEADER) | {"version": version}).encode() + b"\n")
    before = path.read_bytes()
    with pytest.raises(UnreadableFile, match="a newer program wrote it") as told:
        room.open(KEY, NOW)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_an_empty_file_blocks_no_session(tmp_path):
    room = files(tmp_path)
    path = room.path(KEY)
    path.parent.mkdir(parents=True)
    path.touch(0o644)
    assert not room.exists(KEY)
    with pytest.raises(SessionNotFound):
        room.open(KEY, NOW)
    held = room.create(KEY, "/w", NOW)
    held.file.append([ours("a", None, 1)])
    held.close(handover=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert room.open(KEY, NOW).opened.leaf == "a"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.write_text("\n")])
def test_what_is_no_empty_file_is_not_begun(tmp_path, make):
    room = files(tmp_path)
    path = room.path(KEY)
    path.parent.mkdir(parents=True)
    make(path)
    assert room.exists(KEY)
    with pytest.raises(UsageError):
        room.create(KEY, "/w", NOW)
    with pytest.raises(UnreadableFile):
        room.open(KEY, NOW)
