"""Mending rewrites damaged lines, keeps the old file, and changes no view."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_cli import failed, run
from helpers_sessions import HEADER, Scribe, assistant, entry, line, user, write
from perdure.edges.session import mend as mending
from perdure.edges.session.doctor import examine
from perdure.edges.session.load import load
from perdure.edges.session.lock import SessionLock
from perdure.edges.session.mend import MENDED, mend
from perdure.errors import Locked, StorageFailed, UnreadableFile

NOW = 1_790_000_000_000
A, B = user("a", None), assistant("b", "a")
STUB = line(user("z", "b"))[:40]


def kinds(path: Path) -> list[str]:
    return [found.kind for found in examine(path).problems if found.severity == "damage"]


@pytest.mark.parametrize(
    "rows",
    [
        [A, B, STUB],
        [A, STUB + line(B)],
        [line(A) + line(B)],
        [A, b"\0" * 64, B],
        [A, line(B)[:-1] + b',"x":"\xff"}'],
        [A, B, b"null"],
        [A, B, line(B)],
        [A, HEADER, B],
    ],
)
def test_damaged_lines_are_rewritten_and_the_old_file_is_kept(tmp_path: Path, rows: list[Any]) -> None:
    path = write(tmp_path / "s.jsonl", rows)
    was, shown = path.read_bytes(), load(path).opened().items
    assert kinds(path)
    done = mend(path, NOW)
    assert kinds(path) == []
    assert load(path).opened().items == shown
    assert Path(done.backup).read_bytes() == was
    assert done.fixed


@pytest.mark.parametrize("header", [None, {"type": "session", "version": 3, "cwd": "/w"}])
def test_a_file_without_a_good_header_gets_one(tmp_path: Path, header: Any) -> None:
    path = write(tmp_path / "s.jsonl", [A, B], header=header)
    mend(path, NOW)
    assert json.loads(path.read_bytes().split(b"\n")[0])["id"] == "s"
    assert kinds(path) == []


def test_a_header_behind_entries_becomes_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, HEADER, B], header=None)
    mend(path, NOW)
    assert path.read_bytes().split(b"\n")[0] == line(HEADER)
    assert kinds(path) == []


def test_what_is_not_damaged_keeps_its_bytes(tmp_path: Path) -> None:
    odd = b'{ "type":"message","id":"a" , "parentId":null,"x":1e400,"message":{"role":"user","content":"hi"}}'
    stranger = b'{"note":"somebody else wrote this"}'
    path = write(tmp_path / "s.jsonl", [odd, stranger, b"", STUB, assistant("b", "a")])
    mend(path, NOW)
    rows = path.read_bytes().split(b"\n")
    assert rows[1:4] == [odd, stranger, b""]


def test_a_healthy_file_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, B])
    was = path.stat()
    assert mend(path, NOW).backup == ""
    assert path.stat().st_ino == was.st_ino
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


def test_a_damaged_file_of_version_1_becomes_one_of_version_3(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k not in ("id", "parentId")} for row in (A, B)]
    path = write(tmp_path / "s.jsonl", [rows[0], STUB + line(rows[1])], header={**HEADER, "version": 1})
    shown = load(path).opened().items
    done = mend(path, NOW)
    assert kinds(path) == []
    assert load(path).opened().items == shown
    assert done.backup.endswith(".bak-v1")


def test_a_missing_parent_is_left_for_a_person(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, assistant("b", "lost"), STUB])
    mend(path, NOW)
    assert kinds(path) == ["missing_parent"]


def test_a_message_without_content_stays_and_is_still_told(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, B, entry("message", "c", "b"), STUB])
    done = mend(path, NOW)
    assert kinds(path) == ["undecodable"]
    assert [found.kind for found in done.fixed] == ["torn"]


def test_a_session_that_another_program_holds_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, STUB])
    was = path.read_bytes()
    other = SessionLock(path, pid=os.getppid())
    other.acquire(NOW)
    with pytest.raises(Locked, match="locked"):
        mend(path, NOW)
    assert path.read_bytes() == was


def test_a_rewriting_that_would_change_a_view_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "s.jsonl", [A, B, STUB])
    was = path.read_bytes()
    monkeypatch.setattr(mending, "_records", lambda *_: iter(()))
    with pytest.raises(UnreadableFile, match="would change"):
        mend(path, NOW)
    assert path.read_bytes() == was
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "s.jsonl", [A, B, STUB])
    was = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mending, "_write", full)
    with pytest.raises(StorageFailed, match="No space left"):
        mend(path, NOW)
    assert path.read_bytes() == was
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 12)), max_size=25))
def test_any_history_shows_the_same_after_mending(steps: list[tuple[int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Scribe(Path(folder, "s.jsonl")).play(steps)
        before = {node.id for node in load(path).nodes}
        shown = load(path).opened()
        mend(path, NOW, sync=False)
        after = load(path).opened()
        assert {node.id for node in load(path).nodes} == before
        assert (after.items, after.pending, after.settings) == (shown.items, shown.pending, shown.settings)
        assert MENDED & set(kinds(path)) <= {"repeated"}
        assert mend(path, NOW, sync=False).backup == ""


def test_the_command_mends_and_says_what_it_did(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, line(B) + STUB])
    told = run("doctor", path)
    assert told.code == 1
    assert "--fix" in told.out
    report = run("doctor", path, "--fix", "--json")
    assert report.code == 0
    assert report.json["healthy"] is True
    assert len(report.json["fixed"]) == 1
    assert run("doctor", path, "--fix").code == 0


def test_the_command_says_who_holds_the_session(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [A, STUB])
    SessionLock(path, pid=os.getppid()).acquire(int(1000 * os.stat(path).st_mtime))
    assert f"pid={os.getppid()}" in failed(run("doctor", path, "--fix"))
