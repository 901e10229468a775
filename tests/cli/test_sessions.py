"""`perdure sessions`: what a state folder holds, and one session as a transcript."""

from __future__ import annotations

import json
import os
from pathlib import Path

from helpers_cli import failed, fingerprint, run
from helpers_sessions import HEADER, assistant, calls, compaction, off_chain, result, user, write
from perdure.edges.index import Row, SessionIndex

MAIN = "agent+main+cli+dm+local.jsonl"


def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state" / "sessions" / "main"
    folder.mkdir(parents=True)
    return folder


def listed(folder: Path) -> dict[str, dict[str, object]]:
    ran = run("sessions", "list", "--state", folder.parents[1], "--json")
    assert ran.code == 0, ran.err
    return {os.path.basename(row["file"]): row for row in ran.json["sessions"]}


def test_each_session_has_its_key_size_and_time(tmp_path: Path) -> None:
    file = write(state(tmp_path) / MAIN, [user("a", None), assistant("b", "a")])
    os.utime(file, ns=(0, 1_700_000_000_123_000_000))
    row = listed(file.parent)[MAIN]
    assert row == {
        "key": "agent:main:cli:dm:local",
        "name": None,
        "kind": "session",
        "parent": None,
        "state": None,
        "file": str(file),
        "entries": None,
        "bytes": file.stat().st_size,
        "updated": "2023-11-14T22:13:20.123Z",
        "earlier": 0,
        "problems": [],
    }


def test_entries_are_counted_where_the_index_knows_the_file_as_it_is(tmp_path: Path) -> None:
    file = write(state(tmp_path) / MAIN, [user("a", None), assistant("b", "a")])
    status = file.stat()
    index = SessionIndex(tmp_path / "state" / "index.sqlite")
    index.put(Row("agent:main:cli:dm:local", str(file), status.st_size, status.st_mtime_ns, entries=2))
    index.close()
    before = fingerprint(tmp_path)
    assert listed(file.parent)[MAIN]["entries"] == 2
    assert fingerprint(tmp_path) == before
    write(file, [user("a", None)])
    assert listed(file.parent)[MAIN]["entries"] is None


def test_a_damaged_index_counts_nothing(tmp_path: Path) -> None:
    file = write(state(tmp_path) / MAIN, [user("a", None)])
    (tmp_path / "state" / "index.sqlite").write_bytes(b"noise" * 1000)
    assert listed(file.parent)[MAIN]["entries"] is None


def test_the_latest_comes_first(tmp_path: Path) -> None:
    folder = state(tmp_path)
    for stamp, peer in ((5, "old"), (9, "new"), (7, "mid")):
        file = write(folder / f"agent+main+cli+dm+{peer}.jsonl", [user("a", None)])
        os.utime(file, (stamp, stamp))
    assert [str(row["key"]).rpartition(":")[2] for row in listed(folder).values()] == ["new", "mid", "old"]


def test_what_is_odd_about_a_file_is_told_without_reading_it(tmp_path: Path) -> None:
    folder = state(tmp_path)
    write(folder / "Stranger.jsonl", [user("a", None)])
    (folder / "agent+main+cli+dm+empty.jsonl").write_bytes(b"")
    (folder / "agent+main+cli+dm+noise.jsonl").write_bytes(b"\0\1\2" * 100)
    held = write(folder / MAIN, [user("a", None)])
    Path(f"{held}.lock").write_text(json.dumps({"pid": os.getpid(), "createdAt": "2999-01-01T00:00:00Z"}))
    (folder / "agent+main+cli+dm+gone.jsonl").symlink_to("nothing")
    os.mkfifo(folder / "agent+main+cli+dm+pipe.jsonl")
    (folder / "agent+main+cli+dm+folder.jsonl").mkdir()
    write(folder / "agent+main+cli+dm+later.jsonl", [user("a", None)], header=HEADER | {"version": 99})
    write(folder / "agent+main+cli+dm+local.0123.jsonl", [user("a", None)])
    found = {
        name: [problem["kind"] for problem in row["problems"]]  # type: ignore[attr-defined]
        for name, row in listed(folder).items()
    }
    assert found == {
        "Stranger.jsonl": ["foreign_name"],
        "agent+main+cli+dm+empty.jsonl": ["empty"],
        "agent+main+cli+dm+pipe.jsonl": ["not_a_file"],
        "agent+main+cli+dm+folder.jsonl": ["not_a_file"],
        "agent+main+cli+dm+later.jsonl": ["newer_version"],
        "agent+main+cli+dm+noise.jsonl": ["bad_header"],
        MAIN: ["locked"],
    }
    human = run("sessions", "list", "--state", folder.parents[1])
    assert human.code == 0
    assert "agent:main:cli:dm:local" in human.out
    assert "1 earlier, put aside by /new" in human.out


def test_what_new_put_aside_is_found_from_its_key(tmp_path: Path) -> None:
    folder = state(tmp_path)
    write(folder / MAIN, [user("a", None)])
    old = [write(folder / f"agent+main+cli+dm+local.{id}.jsonl", [user("a", None)]) for id in ("01", "02")]
    write(folder / "agent+main+cli+dm+local2.03.jsonl", [user("a", None)])
    assert listed(folder)[MAIN]["earlier"] == 2
    words = ("sessions", "show", "agent:main:cli:dm:local", "--state", folder.parents[1])
    assert run(*words, "--json").json["earlier"] == [str(path) for path in old]
    assert all(str(path) in run(*words).out for path in old)
    assert run("sessions", "show", folder / MAIN, "--json").json["earlier"] == []


def test_a_folder_without_sessions_is_no_mistake_but_a_missing_one_is(tmp_path: Path, home: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run("sessions", "list", "--state", tmp_path).code == 0
    assert run("sessions", "list").code == 0
    assert not (home / ".perdure").exists()
    assert "no such state folder" in failed(run("sessions", "list", "--state", tmp_path / "none"))
    assert "a file" in failed(run("sessions", "list", "--state", tmp_path / "file"))


def test_a_transcript_is_the_view_in_order(tmp_path: Path) -> None:
    rows = [
        user("a", None, "forgotten"),
        *(user("b", "a", "list the files"), calls("c", "b", "ls"), result("d", "c", "ls")),
        compaction("s", "d", "b", summary="they spoke of files"),
        assistant("e", "s", "done", errorMessage="too busy", stopReason="error"),
        off_chain("inbox", "f", "e", session="s1", sender="alice", mid="m", arrived=1, content="later"),
    ]
    file = write(tmp_path / "s.jsonl", rows)
    out = run("sessions", "show", file).out
    places = [
        out.index(text) for text in ("they spoke of files", "list the files", "→ read", "out", "too busy")
    ]
    assert places == sorted(places)
    assert "forgotten" not in out
    assert "a message of alice" in out


def test_a_transcript_in_json_holds_messages_as_they_are_stored(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None, "hello"), assistant("b", "a", "hi")])
    told = run("sessions", "show", file, "--json").json
    assert [(row["entry"], row["message"]["role"]) for row in told["messages"]] == [
        ("a", "user"),
        ("b", "assistant"),
    ]
    assert told["messages"][0]["message"]["content"] == [{"type": "text", "text": "hello"}]
    assert (told["leaf"], told["compaction"]) == ("b", None)


def test_a_session_is_shown_by_its_key(tmp_path: Path) -> None:
    file = write(state(tmp_path) / MAIN, [user("a", None, "by key")])
    folder = file.parents[2]
    assert "by key" in run("sessions", "show", "agent:main:cli:dm:local", "--state", folder).out
    assert "no such session" in failed(run("sessions", "show", "agent:main:cli:dm:you", "--state", folder))


def test_long_tool_output_is_shortened_for_a_person_only(tmp_path: Path) -> None:
    big = result("c", "b", "k")
    big["message"]["content"][0]["text"] = "z" * 50_000
    file = write(tmp_path / "s.jsonl", [user("a", None), calls("b", "a", "k"), big])
    out = run("sessions", "show", file).out
    assert "48,000 more characters" in out
    assert len(out) < 4_000
    assert "z" * 50_000 in run("sessions", "show", file, "--json").out
