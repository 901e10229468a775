"""The state folder as an operator's thing: delete, export, search and list sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers_cli import failed, fingerprint, run
from helpers_sessions import HEADER, assistant, calls, compaction, off_chain, result, user, write
from perdure.edges.blobs import place
from perdure.edges.index import SessionIndex
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import keys
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session

KEY, OTHER = "agent:main:cli:dm:local", "agent:main:cli:dm:other"
CHILD = "agent:main:subagent:one"
CANARY = "zq-canary-7361"
LONG = (
    user("e1", None, f"first {CANARY}"),
    assistant("e2", "e1", "first answer"),
    user("e3", "e2", "second question"),
    assistant("e4", "e3", "second answer"),
    compaction("e5", "e4", "e3"),
    user("e6", "e5", "third question"),
    assistant("e7", "e6", "third answer"),
    compaction("e8", "e7", "e6"),
    user("e9", "e8", "fourth question"),
    assistant("f1", "e9", f"fourth answer {CANARY}"),
)


class Folder:
    """A state folder, and what is done to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.state = tmp_path / "state"
        self.state.mkdir()
        LocalPlacement(self.state, wall_ms=1).close(clean=True)

    def path(self, key: str = KEY) -> Path:
        return self.state / "sessions" / keys.relative_path(key)

    def has(self, key: str, *rows: object, **header: str) -> Path:
        self.path(key).parent.mkdir(parents=True, exist_ok=True)
        return write(self.path(key), rows or LONG, header=HEADER | {"id": key} | header)  # type: ignore[arg-type]

    def evidence(self, data: bytes) -> str:
        import hashlib

        digest = hashlib.sha256(data).hexdigest()
        path = place(self.state / "evidence", digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return digest

    def run(self, *words: object, code: int = 0) -> dict[str, object]:
        ran = run(*words, "--state", self.state, "--json")  # type: ignore[arg-type]
        assert ran.code == code, (ran.out, ran.err)
        return dict(ran.json)

    def said(self, *words: object, code: int = 0) -> str:
        ran = run(*words, "--state", self.state)  # type: ignore[arg-type]
        assert ran.code == code, (ran.out, ran.err)
        return ran.out

    def fails(self, *words: object) -> str:
        return failed(run(*words, "--state", self.state))  # type: ignore[arg-type]

    def holds(self, text: str = CANARY) -> list[str]:
        """Files that hold the text, or whose names do."""
        every = [path for path in self.state.rglob("*") if path.is_file()]
        return [str(p) for p in every if text in str(p) or text.encode() in p.read_bytes()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# --- delete ---------------------------------------------------------------------------------------


def test_a_deleted_session_leaves_no_byte_of_itself_anywhere(folder: Folder) -> None:
    digest = folder.evidence(f"output {CANARY}".encode())
    rows = (*LONG, user("f2", "f1", CANARY) | {"perdure": {"v": 1, "e": 1, "evidence": [digest]}})
    path = folder.has(KEY, *rows)
    folder.run("truncate", KEY)
    assert len(list(path.parent.glob("*.segments/*.segment"))) == 1
    write(path.with_name(path.name.replace(".jsonl", ".0a1b.jsonl")), LONG)
    path.with_name(f"{path.name}.bak-v1").write_text(CANARY)
    index = SessionIndex(folder.state / "index.sqlite")
    index.rebuild([])
    index.close()
    folder.run("sessions", "rename", KEY, CANARY)
    folder.has(OTHER, user("a", None, "hello"))
    (folder.state / "workspaces" / "main").mkdir(parents=True)
    assert len(folder.holds()) >= 5
    told = folder.run("sessions", "delete", KEY)
    assert not folder.holds()
    (gone,) = told["sessions"]  # type: ignore[misc]
    assert len(gone["files"]) == 4  # type: ignore[index]
    assert len(gone["evidence"]) == 1  # type: ignore[index]
    assert gone["index_rows"]  # type: ignore[index]
    assert folder.path(OTHER).exists()
    assert (folder.state / "workspaces" / "main").is_dir()
    assert "no such session" in folder.fails("sessions", "delete", KEY)


def test_what_would_go_is_said_and_nothing_changes(folder: Folder) -> None:
    folder.has(KEY)
    before = fingerprint(folder.state)
    told = folder.said("sessions", "delete", KEY, "--dry-run")
    assert "would delete 1 file" in told
    assert fingerprint(folder.state) == before


def test_a_session_or_a_subagent_in_use_is_refused_whole(folder: Folder) -> None:
    folder.has(KEY)
    folder.has(CHILD, parentSession=str(folder.path(KEY)))
    lock = Path(f"{folder.path(CHILD)}.lock")
    lock.write_text(json.dumps({"pid": os.getppid(), "createdAt": "2999-01-01T00:00:00Z"}))
    assert f"pid={os.getppid()}" in folder.fails("sessions", "delete", KEY)
    assert folder.path(KEY).exists()
    lock.unlink()
    told = folder.run("sessions", "delete", KEY)
    assert [row["key"] for row in told["sessions"]] == [CHILD, KEY]  # type: ignore[attr-defined]
    assert not folder.path(CHILD).exists()


def test_a_host_that_has_the_folder_is_named(folder: Folder) -> None:
    folder.has(KEY)
    holding = LocalPlacement(folder.state, wall_ms=1)
    try:
        assert f"pid {os.getpid()}" in folder.fails("sessions", "delete", KEY)
    finally:
        holding.close(clean=True)
    assert folder.path(KEY).exists()


def test_a_session_whose_segments_cannot_be_read_keeps_everybody_s_evidence(folder: Folder) -> None:
    digest = folder.evidence(b"output")
    folder.has(KEY, user("a", None) | {"perdure": {"v": 1, "e": 1, "evidence": [digest]}})
    other = folder.has(OTHER)
    home = other.with_name(f"{other.name}.segments")
    home.mkdir()
    (home / "0001-00.segment").write_bytes(b"noise" * 100)
    ran = run("sessions", "delete", KEY, "--state", folder.state)
    assert ran.code == 0
    assert "no evidence was deleted" in ran.err
    assert place(folder.state / "evidence", digest).exists()


def test_a_key_with_a_very_long_name_goes_with_its_folders(folder: Folder) -> None:
    key = f"agent:main:cli:dm:{'long' * 100}"
    folder.has(key)
    folder.run("sessions", "delete", key)
    assert not list((folder.state / "sessions").iterdir())


# --- export ---------------------------------------------------------------------------------------


def test_an_export_holds_every_entry_and_shows_the_same(folder: Folder, tmp_path: Path) -> None:
    path = folder.has(KEY)
    whole, out = load(path), tmp_path / "out.jsonl"
    folder.run("truncate", KEY)
    told = folder.run("sessions", "export", KEY, "-o", out)
    made = load(out)
    assert {node.id for node in whole.nodes} <= {node.id for node in made.nodes}
    rows = {row["id"]: row for row in map(json.loads, out.read_bytes().splitlines())}
    assert all(rows[str(row["id"])] == row for row in LONG)  # parents too, as they were at first
    assert open_session(out).items == open_session(path).items
    assert not made.problems
    assert told["entries"] == len(made.nodes) + 1  # one notes the truncation, and is left out
    assert run("sessions", "export", KEY, "--state", folder.state).out.encode() == out.read_bytes()
    assert "exists" in failed(run("sessions", "export", path, "-o", out))
    assert "itself" in failed(run("sessions", "export", path, "-o", path, "--force"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (("sessions", "export", path, "-o", pipe), ("backup", pipe, "--state", folder.state)):
        assert "no plain file" in failed(run(*words, "--force"))


def test_an_export_without_a_segment_says_so(folder: Folder, tmp_path: Path) -> None:
    path = folder.has(KEY)
    folder.run("truncate", KEY)
    next(path.parent.glob("*.segments/*.segment")).unlink()
    ran = run("sessions", "export", KEY, "--state", folder.state, "-o", tmp_path / "out.jsonl")
    assert ran.code == 1
    assert "1 segment can't be read" in ran.err


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_file_is_exported_in_the_newest_version(version: int, tmp_path: Path) -> None:
    rows = [user("a", None, "hello"), assistant("b", "a", "hi")]
    if version == 1:
        rows = [{k: v for k, v in row.items() if k not in ("id", "parentId")} for row in rows]
    path = write(tmp_path / "old.jsonl", rows, header=HEADER | {"version": version})
    ran = run("sessions", "export", path, "-o", tmp_path / "new.jsonl")
    assert ran.code == 0, ran.err
    assert open_session(tmp_path / "new.jsonl").version == 3
    assert [i.message for i in open_session(tmp_path / "new.jsonl").items] == [
        i.message for i in open_session(path).items
    ]


def test_markdown_is_the_whole_branch_for_people(folder: Folder) -> None:
    output = result("g2", "g1", "ls")
    output["message"]["content"][0]["text"] = "```\nnested\x1b[2J fence"
    folder.has(KEY, *LONG, calls("g1", "f1", "ls"), output)
    folder.run("truncate", KEY)
    told = folder.said("sessions", "export", KEY, "--format", "markdown")
    assert told.startswith(f"# {KEY}\n")
    texts = (f"first {CANARY}", "> S", "third question", "````\n```\nnested")
    places = [told.index(text) for text in texts]
    assert places == sorted(places)
    assert "\x1b" not in told


# --- search ---------------------------------------------------------------------------------------


def test_a_text_is_found_in_files_segments_and_what_new_put_aside(folder: Folder) -> None:
    path = folder.has(KEY)
    folder.run("truncate", KEY)
    write(path.with_name(path.name.replace(".jsonl", ".0a.jsonl")), [user("old", None, CANARY.upper())])
    waits = {"content": [{"type": "text", "text": f"waits {CANARY}"}], "session": "s", "sender": "s"}
    folder.has(OTHER, user("a", None, "no"), off_chain("inbox", "w", "a", mid="m", arrived=1, **waits))
    told = folder.run("sessions", "search", CANARY)
    found = {(hit["entry"], bool(hit["segment"])) for hit in told["hits"]}  # type: ignore[attr-defined]
    assert found == {("f1", False), ("e1", True), ("old", False), ("w", False)}
    assert told["total"] == 4
    assert folder.run("sessions", "search", "nowhere at all", code=1)["hits"] == []
    assert folder.run("sessions", "search", CANARY, "--agent", "other", code=1)["total"] == 0


def test_the_limit_is_counted_and_secrets_are_marked(folder: Folder) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    folder.has(KEY, user("a", None, f"my key is {secret}"), *(user(f"b{n}", "a", "my key") for n in range(5)))
    ran = run("sessions", "search", "MY KEY", "--limit", "2", "--state", folder.state)
    assert ran.out.count("my key") == 2
    assert "4 older places" in ran.err
    hits = folder.run("sessions", "search", "key is")["hits"]
    assert [hit["secret"] for hit in hits] == [True]  # type: ignore[attr-defined]


def test_a_text_with_quotes_line_ends_and_other_scripts_is_found(folder: Folder) -> None:
    folder.has(KEY, user("a", None, 'he said "naïve\n日本" twice'))
    for text in ('said "NAÏVE', "日本", "naïve\n日"):
        assert folder.run("sessions", "search", text)["total"] == 1


def test_a_file_that_cannot_be_read_costs_itself(folder: Folder) -> None:
    folder.has(KEY)
    folder.path(OTHER).mkdir()
    ran = run("sessions", "search", CANARY, "--state", folder.state)
    assert ran.code == 0
    assert "not searched" in ran.err


# --- list -----------------------------------------------------------------------------------------


def test_filters_come_before_the_limit_and_what_is_hidden_is_counted(folder: Folder) -> None:
    for n in range(6):
        folder.has(f"agent:main:cli:dm:{n}")
        folder.has(f"agent:main:subagent:{n}")
        folder.has(f"agent:ops:cli:dm:{n}")
    ran = run("sessions", "list", "--agent", "main", "--limit", "6", "--json", "--state", folder.state)
    assert len(ran.json["sessions"]) == 6
    assert ran.err == "perdure: not shown: 6 sessions of subagents (--children)\n"
    both = run("sessions", "list", "--limit", "2", "--children", "--state", folder.state, "--json")
    assert len(both.json["sessions"]) == 2
    assert "16 older sessions (--limit)" in both.err
    assert "from 1 on" in folder.fails("sessions", "list", "--limit", "0")


def test_all_lists_what_new_put_aside_too(folder: Folder) -> None:
    path = folder.has(KEY)
    write(path.with_name(path.name.replace(".jsonl", ".0a.jsonl")), LONG)
    kinds = [row["kind"] for row in folder.run("sessions", "list", "--all")["sessions"]]  # type: ignore[attr-defined]
    assert sorted(kinds) == ["put_aside", "session"]


def test_the_index_follows_commands_and_gives_names_and_counts(folder: Folder) -> None:
    path = folder.has(KEY)
    index = SessionIndex(folder.state / "index.sqlite")
    index.rebuild([])
    index.close()
    folder.run("sessions", "rename", KEY, "The big job")
    folder.run("sessions", "fork", KEY, "e9", "--as", OTHER)
    folder.run("undo", KEY)
    folder.run("sessions", "label", KEY, "e9", "here")
    rows = {row["key"]: row for row in folder.run("sessions", "list")["sessions"]}  # type: ignore[attr-defined]
    assert rows[KEY]["entries"] == load(path).count
    assert rows[OTHER]["entries"] == load(folder.path(OTHER)).count
    assert [rows[key]["name"] for key in (KEY, OTHER)] == ["The big job", "The big job"]
    assert "The big job" in folder.said("sessions", "list")


def test_an_index_that_only_a_host_can_make_is_not_begun_by_a_command(folder: Folder) -> None:
    folder.has(KEY)
    folder.run("sessions", "rename", KEY, "name")
    assert not (folder.state / "index.sqlite").exists()
    (folder.state / "index.sqlite").write_bytes(b"noise" * 1000)
    folder.run("sessions", "rename", KEY, "another")
    index = SessionIndex(folder.state / "index.sqlite")
    assert index.fresh  # a host scans
    index.close()
