import errno
import os
import sqlite3
import threading

import pytest

from perdure.edges.index import Row, SessionIndex
from perdure.edges.session.facts import Seen
from perdure.errors import StorageFailed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index.sqlite"


@pytest.fixture
def index(path):
    made = SessionIndex(path, sync=False)
    yield made
    made.close()


def row(key, **more):
    return Row(key, f"/s/{key}.jsonl", 10, 20, **more)


def test_rows_come_back_as_they_were_put(index):
    rows = [
        row("a", entries=3, updated=5, next_timer=9, open_turn=True, pending=2),
        row("b"),
        row("\ud800é\0"),
    ]
    index.put(*rows)
    assert [index.get(each.key) for each in rows] == rows
    assert index.get("missing") is None
    index.put(row("a", entries=4))
    assert index.get("a") == row("a", entries=4)


def test_lists_answer_what_a_restart_asks(index):
    index.put(
        row("idle", updated=3), row("turn", open_turn=True, updated=2), row("mail", pending=1, updated=1)
    )
    index.put(row("late", next_timer=50), row("soon", next_timer=40), row("far", next_timer=900))
    assert [each.key for each in index.rows()][:3] == ["idle", "turn", "mail"]
    assert [each.key for each in index.unfinished()] == ["mail", "turn"]
    assert [each.key for each in index.due(50)] == ["soon", "late"]
    assert index.next_timer() == 40


def test_old_message_ids_are_answered_per_session(index):
    index.remember("s-1", [Seen("anna", "m1", "e1"), Seen("anna", "\ud800", "e2")])
    assert index.seen("s-1", "anna", "m1") == "e1"
    assert index.seen("s-1", "anna", "\ud800") == "e2"
    assert index.seen("s-2", "anna", "m1") is None
    index.put(row("k"))
    index.remove("k", "s-1")
    assert (index.seen("s-1", "anna", "m1"), index.get("k")) == (None, None)


def test_an_index_survives_closing_and_knows_when_there_was_none(path):
    first = SessionIndex(path)
    assert first.fresh
    first.put(row("a"))
    first.close()
    killed_before_its_scan = SessionIndex(path)
    assert killed_before_its_scan.fresh
    killed_before_its_scan.rebuild([row("a")])
    killed_before_its_scan.close()
    second = SessionIndex(path)
    assert (second.fresh, second.get("a")) == (False, row("a"))
    second.close()


@pytest.mark.parametrize("left", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_index_is_made_again(path, left):
    path.write_bytes(left)
    index = SessionIndex(path, sync=False)
    assert index.fresh
    assert index.rebuild([row("a"), row("b")]) == 2
    assert not index.fresh
    assert [each.key for each in index.rows()] == ["a", "b"]
    index.close()


def test_an_index_of_an_older_version_is_made_again(path):
    old = SessionIndex(path, sync=False)
    old.put(row("a"))
    old._db.execute("pragma user_version = 0")
    old.close()
    index = SessionIndex(path, sync=False)
    assert (index.fresh, index.rows()) == (True, [])
    index.close()


def test_rebuilding_replaces_rows_and_keeps_message_ids(index):
    index.put(row("gone"))
    index.remember("s-1", [Seen("anna", "m1", "e1")])
    index.rebuild([row("a")])
    assert [each.key for each in index.rows()] == ["a"]
    assert index.seen("s-1", "anna", "m1") == "e1"


def test_a_rebuild_that_fails_leaves_the_old_rows(index):
    def broken():
        yield row("a")
        raise RuntimeError

    index.put(row("old"))
    with pytest.raises(RuntimeError):
        index.rebuild(broken())
    assert [each.key for each in index.rows()] == ["old"]


def test_threads_may_call_it_at_the_same_time(index):
    def work(name):
        for n in range(50):
            index.put(row(f"{name}{n}"))
            index.get(f"{name}{n}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(index.rows()) == 150


def test_no_folder_for_it_gives_one_clear_line(tmp_path):
    with pytest.raises(StorageFailed) as told:
        SessionIndex(tmp_path / "missing" / "index.sqlite")
    assert "\n" not in str(told.value)
    assert os.listdir(tmp_path) == []


def modes(folder):
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_every_file_of_an_index_is_private_from_the_start(path):
    before = os.umask(0o022)
    try:
        index = SessionIndex(path)
        index.put(row("a"))
        assert modes(path.parent) == dict.fromkeys(
            ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"), 0o600
        )
        for each in path.parent.iterdir():
            each.chmod(0o644)  # as an older perdure left them
        again = SessionIndex(path)
        assert set(modes(path.parent).values()) == {0o600}
        again.close()
        index.close()
    finally:
        os.umask(before)


def test_a_full_disk_is_one_line_and_costs_no_row(path):
    index = SessionIndex(path, sync=False)
    index.put(row("a"))
    pages = index._db.execute("pragma page_count").fetchone()[0]
    index._db.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StorageFailed, match="make room") as told:
        index.put(*(row(f"{n}" * 500) for n in range(200)))
    assert str(path) in str(told.value)
    assert "delete" not in str(told.value)
    index._db.execute("pragma max_page_count = 100000")
    index.put(row("b"))
    assert [each.key for each in index.rows()] == ["a", "b"]
    index.close()


def broken(code, text):
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (sqlite3.SQLITE_FULL, "database or disk is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "attempt to write a readonly database"),
        (sqlite3.SQLITE_CANTOPEN, "unable to open database file"),
    ],
)
def test_an_index_that_cannot_be_opened_for_its_disk_is_kept(path, monkeypatch, code, text):
    first = SessionIndex(path)
    first.put(row("a"))
    first.close()
    with monkeypatch.context() as patched:

        def refuse(*_args, **_more):
            raise broken(code, text)

        patched.setattr(sqlite3, "connect", refuse)
        with pytest.raises(StorageFailed, match="make room"):
            SessionIndex(path)
    second = SessionIndex(path)
    assert second.get("a") == row("a")
    second.close()


def test_an_index_in_a_folder_that_takes_no_file_is_one_line(path, monkeypatch):
    def refuse(name, *_args, **_more):
        raise PermissionError(errno.EROFS, "Read-only file system", name)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageFailed, match="Read-only file system"):
        SessionIndex(path)
