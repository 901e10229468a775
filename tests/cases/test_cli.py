"""Reported faults of commands that look at, change and keep sessions, each with the right outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import case
from helpers_cli import Ran, fingerprint, run
from helpers_sessions import HEADER, assistant, compaction, user, write
from perdure.edges.index import SessionIndex
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import keys, scan
from perdure.edges.session.files import Listed
from perdure.edges.session.survey import survey

KEY, FORK, CHILD = "agent:main:cli:dm:local", "agent:main:cli:dm:fork", "agent:main:subagent:one"
TEXT = "zq-said-here"


class Folder:
    """A state folder; sessions written into it are older the smaller their `age`."""

    def __init__(self, tmp_path: Path) -> None:
        self.state = tmp_path / "state"
        self.state.mkdir()
        LocalPlacement(self.state, wall_ms=1).close(clean=True)

    def path(self, key: str = KEY) -> Path:
        return self.state / "sessions" / keys.relative_path(key)

    def has(self, key: str = KEY, *rows: Any, age: int = 0, **header: str) -> Path:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, rows or [user("a", None, TEXT)], header=HEADER | {"id": key} | header)
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
        return path

    def run(self, *words: object) -> Ran:
        return run(*words, "--state", self.state)  # type: ignore[arg-type]

    def json(self, *words: object, code: int = 0) -> Any:
        ran = self.run(*words, "--json")
        assert ran.code == code, (ran.out, ran.err)
        return ran.json

    def indexed(self) -> None:
        index = SessionIndex(self.state / "index.sqlite")
        every = [
            path
            for path in self.state.rglob("*.jsonl")
            if path.name.count(".") == 1 and path.name.isprintable()
        ]
        stats = [(path, path.stat()) for path in every]
        key = {path: keys.key_of(path.relative_to(self.state / "sessions")) for path in every}
        index.rebuild(survey(Listed(key[p], str(p), s.st_size, s.st_mtime_ns)) for p, s in stats)
        index.close()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_cl01_a_dry_run_and_the_real_one_have_one_plan(folder: Folder) -> None:
    for n in range(21):
        folder.has(f"agent:main:cli:dm:{n}", age=n)
    (folder.state / "perdure.toml").write_text("[retention]\nmax_sessions = 20\n")
    before = fingerprint(folder.state)
    shown = folder.json("cleanup", "--dry-run")
    assert fingerprint(folder.state) == before
    done = folder.json("cleanup")
    assert shown["plan"] == done["plan"] == done["removed"]
    assert [row["name"] for row in done["plan"]] == ["agent:main:cli:dm:0"]
    assert len(folder.json("sessions", "list")["sessions"]) == 20
    assert folder.json("cleanup")["plan"] == []


def test_cl01_a_plan_that_is_not_met_is_no_success(folder: Folder) -> None:
    for n in range(3):
        lock = Path(f"{folder.has(f'agent:main:cli:dm:{n}', age=n)}.lock")
        lock.write_text(json.dumps({"pid": os.getppid(), "createdAt": "2999-01-01T00:00:00Z"}))
    (folder.state / "perdure.toml").write_text("[retention]\nmax_sessions = 1\n")
    for words in (("cleanup", "--dry-run"), ("cleanup",)):
        told = folder.json(*words, code=1)
        assert (told["plan"], told["met"], len(told["refused"])) == ([], False, 3)
    assert len(folder.json("sessions", "list")["sessions"]) == 3


def test_cl02_what_policy_removes_is_archived_and_a_delete_removes_all(folder: Folder) -> None:
    rows = [user("a", None, TEXT), assistant("b", "a"), user("c", "b")]
    old, young = "agent:main:cli:dm:old", "agent:main:cli:dm:young"
    data = folder.has(old, *rows).read_bytes()
    folder.has(young, *rows, age=9)
    (folder.state / "perdure.toml").write_text("[retention]\nmax_sessions = 1\n")
    archive = folder.state / folder.json("cleanup")["archive"]
    with zipfile.ZipFile(archive) as bundle:
        assert data in [bundle.read(name) for name in bundle.namelist()]
    archive.unlink()
    active = Path(f"{folder.path(young)}.lock")
    active.write_text(json.dumps({"pid": os.getppid(), "createdAt": "2999-01-01T00:00:00Z"}))
    assert folder.run("sessions", "delete", young).code == 2
    active.unlink()
    assert folder.run("sessions", "delete", young).code == 0
    assert not [p for p in folder.state.rglob("*") if p.is_file() and TEXT.encode() in p.read_bytes()]


def test_cl03_the_limit_comes_behind_every_filter(folder: Folder) -> None:
    roots, children = 100, 500
    for n in range(roots):
        folder.has(f"agent:main:cli:dm:{n}", age=n)
    for n in range(children):
        folder.has(f"agent:main:subagent:{n}", age=1000 + n)
    ran = folder.run("sessions", "list", "--limit", str(roots), "--json")
    assert len(json.loads(ran.out)["sessions"]) == roots
    assert f"{children} sessions of subagents" in ran.err
    assert len(folder.json("sessions", "list", "--children", "--limit", "600")["sessions"]) == 600


class Reads:
    """Bytes of session files that are read, through the one reader that all commands share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: dict[str, int] = {}
        self.opened = 0
        pread, opened = os.pread, os.open

        def counting(fd: int, size: int, at: int) -> bytes:
            data = pread(fd, size, at)
            name = os.readlink(f"/proc/self/fd/{fd}")
            self.bytes[name] = self.bytes.get(name, 0) + len(data)
            return data

        def noting(path: Any, *arguments: Any, **more: Any) -> int:
            self.opened += str(path).endswith(".jsonl")
            return opened(path, *arguments, **more)

        monkeypatch.setattr(scan.os, "pread", counting)
        monkeypatch.setattr(os, "open", noting)


def test_cl04_a_list_reads_at_most_a_block_of_a_file_and_none_with_a_fresh_index(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        path = folder.has(f"agent:main:cli:dm:{n}", age=n)
        if n % 3 == 0:
            with path.open("ab") as large:
                large.truncate(100_000_000)  # of which nothing is read
    folder.has(KEY, user("a", None, "x" * 300_000))
    with monkeypatch.context() as watched:
        reads = Reads(watched)
        assert len(folder.json("sessions", "list")["sessions"]) == 31
        assert reads.opened == 31
        assert max(reads.bytes.values()) <= 64 * 1024
    for n in range(0, 30, 3):
        folder.has(f"agent:main:cli:dm:{n}", age=n)
    folder.indexed()
    reads = Reads(monkeypatch)
    rows = folder.json("sessions", "list")["sessions"]
    assert (reads.opened, {row["entries"] for row in rows}) == (0, {1})


def test_cl04_a_closed_pipe_ends_quietly(folder: Folder) -> None:
    for n in range(300):
        folder.has(f"agent:main:cli:dm:{'long' * 50}{n}", age=n)
    code = "from perdure.cli import main; main()"
    command = [sys.executable, "-c", code, "sessions", "list", "--state", os.fspath(folder.state)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        assert listing.stdout.readline().startswith(b"session")
        listing.stdout.close()
        errors = listing.stderr.read()
        assert listing.wait(30) in (0, 141)
    assert b"Traceback" not in errors
    assert b"Broken" not in errors


def test_cl05_every_command_counts_the_same(folder: Folder) -> None:
    path = folder.path()
    path.parent.mkdir(parents=True)
    path.write_bytes(case("CL05")["input"]["raw_file"].encode())
    assert [row["entries"] for row in folder.json("sessions", "list")["sessions"]] == [None]
    before = path.read_bytes()
    folder.indexed()
    assert [row["entries"] for row in folder.json("sessions", "list")["sessions"]] == [3]
    assert len(folder.json("sessions", "show", KEY)["messages"]) == 3
    told = folder.json("doctor", KEY, code=1)
    assert (told["entries"], [problem["kind"] for problem in told["problems"]][:1]) == (3, ["glued"])
    assert len(folder.json("sessions", "tree", KEY)["entries"]) == 3
    assert path.read_bytes() == before


# Escape, bell, return, backspace, delete, and what reorders or hides text.
ACTING = (
    *range(0x09),
    *range(0x0B, 0x20),
    0x7F,
    *range(0x80, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "show", KEY),
        ("sessions", "list", "--all"),
        ("sessions", "tree", KEY),
        ("sessions", "search", "spoof"),
        ("sessions", "export", KEY, "--format", "markdown"),
        ("sessions", "delete", KEY, "--dry-run"),
        ("cleanup", "--dry-run"),
        ("context", KEY),
        ("doctor", KEY),
        ("status", "--deep"),
    ],
    ids=" ".join,
)
def test_cl08_what_is_stored_never_acts_on_a_terminal(words: tuple[str, ...], folder: Folder) -> None:
    header, *rows = case("CL08")["input"]["entries"]
    hostile = rows[0]["message"]["content"][0]["text"]
    name = {"type": "session_info", "id": f"n{hostile}", "parentId": "e1", "name": hostile}
    path = folder.has(KEY, *rows, name, cwd=hostile)
    write(path, [*rows, name], header=header | {"cwd": hostile})
    foreign = path.with_name(f"evil\x1b[2J{path.name}")
    foreign.write_bytes(path.read_bytes())
    if "list" in words:  # names are shown where the index knows them
        folder.indexed()
    (folder.state / "perdure.toml").write_text("[retention]\nmax_age_days = 1\n")
    ran = folder.run(*words)
    assert ran.code in (0, 1), ran.err
    assert not [hex(ord(char)) for char in ran.out + ran.err if ord(char) in ACTING]


def test_cl08_json_keeps_the_data_escaped(folder: Folder) -> None:
    _, *rows = case("CL08")["input"]["entries"]
    folder.has(KEY, *rows)
    ran = folder.run("sessions", "show", KEY, "--json")
    assert ran.json["messages"][0]["message"]["content"] == rows[0]["message"]["content"]
    assert not [char for char in ran.out if ord(char) in ACTING]


def test_cl09_a_session_opens_from_its_own_file_whatever_descends_from_it(folder: Folder) -> None:
    history = [
        user("a1", None, "only in A"),
        assistant("a2", "a1"),
        compaction("a3", "a2", "a3", summary="summary of A"),
        user("a4", "a3", "A goes on"),
        assistant("a5", "a4"),
    ]
    mine = folder.has(KEY, *history)
    assert folder.run("truncate", KEY).code == 0
    assert folder.run("sessions", "rename", KEY, "the one").code == 0
    assert folder.run("sessions", "fork", KEY, "--as", FORK).code == 0
    folder.has(CHILD, user("c1", None, "only in C"), parentSession=str(mine))
    aside = mine.with_name(mine.name.replace(".jsonl", ".00a1.jsonl"))
    mine.rename(aside)
    Path(f"{mine}.segments").rename(f"{aside}.segments")
    newer = folder.has(KEY, user("b1", None, "only in B"), parentSession=str(aside))
    shown = {key: _texts(folder, key) for key in (KEY, FORK, CHILD)}
    assert shown[KEY] == ["only in B"]
    assert shown[CHILD] == ["only in C"]
    assert "A goes on" in shown[FORK]
    assert "only in B" not in shown[FORK]
    ran = run("sessions", "show", aside, "--json")
    entries = [row["entry"] for row in ran.json["messages"]]
    assert entries == ["a3", "a4", "a5"]
    assert ran.json["link"] is None
    assert folder.json("sessions", "show", KEY)["link"] == {
        "kind": "reset", "key": KEY, "file": str(aside),
    }  # fmt: skip
    assert folder.json("sessions", "show", CHILD)["link"]["kind"] == "subagent"
    assert folder.json("sessions", "show", FORK)["link"]["kind"] == "fork"
    assert newer.exists()


def _texts(folder: Folder, key: str) -> list[str]:
    rows = folder.json("sessions", "show", key)["messages"]
    found = []
    for row in rows:
        content = row["message"].get("content", "")
        found += [content] if isinstance(content, str) else [block.get("text", "") for block in content]
    return found
