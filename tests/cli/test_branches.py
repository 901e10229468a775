"""Commands that change one session: switch, label, rename, fork, undo, truncate, compact; and the tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers_cli import failed, fingerprint, python, run
from helpers_sessions import assistant, compaction, entry, off_chain, user, write
from perdure.edges import segments
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import keys
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session

KEY, OTHER = "agent:main:cli:dm:local", "agent:main:cli:dm:other"
TWICE = (
    user("e1", None, "first question"),
    assistant("e2", "e1", "first answer"),
    user("e3", "e2", "second question"),
    assistant("e4", "e3", "second answer"),
    compaction("e5", "e4", "e3"),
    user("e6", "e5", "third question"),
    assistant("e7", "e6", "third answer"),
    compaction("e8", "e7", "e6"),
    user("e9", "e8", "fourth question"),
    assistant("f1", "e9", "fourth answer"),
)


class Folder:
    """A state folder with one session."""

    def __init__(self, tmp_path: Path, entries: object = TWICE) -> None:
        self.state = tmp_path / "state"
        self.path = self.file(KEY)
        self.state.mkdir(parents=True)
        LocalPlacement(self.state, wall_ms=1).close(clean=True)
        self.path.parent.mkdir(parents=True)
        write(self.path, entries)  # type: ignore[arg-type]

    def file(self, key: str) -> Path:
        return self.state / "sessions" / keys.relative_path(key)

    def run(self, *words: str, code: int = 0) -> dict[str, object]:
        ran = run(*words, "--state", self.state, "--json")
        assert (ran.code, ran.err) == (code, ""), (ran.out, ran.err)
        return dict(ran.json)

    def said(self, *words: str) -> str:
        ran = run(*words, "--state", self.state)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def fails(self, *words: str) -> str:
        return failed(run(*words, "--state", self.state))

    def shown(self, key: str = KEY) -> list[str]:
        return [item.entry for item in open_session(self.file(key)).items]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_tree_shows_branches_labels_and_what_is_in_segments(folder: Folder) -> None:
    folder.run("sessions", "label", KEY, "e6", "here")
    folder.run("truncate", KEY)
    folder.run("sessions", "switch", KEY, "e9")
    rows = {row["id"]: row for row in folder.run("sessions", "tree", KEY)["entries"]}  # type: ignore[attr-defined]
    assert [id for id, row in rows.items() if row["place"] == "segment"] == ["e1", "e2", "e4"]
    assert (rows["e6"]["label"], rows["e9"]["current"], rows["f1"]["current"]) == ("here", True, False)
    assert (rows["e1"]["who"], rows["e1"]["text"]) == ("user", "first question")
    told = folder.said("sessions", "tree", KEY)
    assert "> e9 user: fourth question" in told
    assert "e1 user: first question (in a segment)" in told
    assert "e6 [here]" in told


def test_the_tree_of_a_bare_foreign_file_changes_no_byte(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), user("b", "a"), user("c", "a"), user("d", "d")])
    before = fingerprint(tmp_path)
    ran = run("sessions", "tree", file, "--json")
    assert (ran.code, ran.json["leaf"]) == (0, "d")
    assert [(row["id"], row["depth"]) for row in ran.json["entries"]] == [
        ("a", 0), ("b", 1), ("c", 1), ("d", 0),
    ]  # fmt: skip
    assert fingerprint(tmp_path) == before


def test_a_switch_goes_back_and_forth(folder: Folder) -> None:
    folder.run("truncate", KEY)
    assert folder.run("sessions", "switch", KEY, "e7")["restored"] == 1
    assert folder.shown() == ["e5", "e3", "e4", "e6", "e7"]
    assert "now at f1" in folder.said("sessions", "switch", KEY, "f1")
    assert folder.shown() == ["e8", "e6", "e7", "e9", "f1"]
    assert folder.run("sessions", "switch", KEY, "f1")["done"] is False
    assert run("doctor", folder.path).code == 0


def test_labels_and_names_are_those_of_the_format(folder: Folder) -> None:
    folder.run("sessions", "label", KEY, "e2", "good idea")
    folder.run("sessions", "rename", KEY, "  the   plan ")
    found = load(folder.path)
    rows = [json.loads(found.raw(node)) for node in found.nodes[-2:]]
    assert [(row["type"], row.get("targetId"), row.get("label"), row.get("name")) for row in rows] == [
        ("label", "e2", "good idea", None),
        ("session_info", None, None, "the plan"),
    ]
    assert rows[0]["parentId"] == "f1"
    folder.run("sessions", "label", KEY, "good idea", "")
    assert load(folder.path).labels() == {}
    assert "is empty" in folder.fails("sessions", "rename", KEY, " ")


def test_a_fork_is_a_session_of_its_own(folder: Folder) -> None:
    folder.run("truncate", KEY)
    made = folder.run("sessions", "fork", KEY, "e7", "--as", OTHER)["made"]
    assert made["key"] == OTHER  # type: ignore[index]
    assert folder.shown(OTHER) == ["e5", "e3", "e4", "e6", "e7"]
    opened = open_session(folder.file(OTHER))
    assert (opened.parent_session, opened.session_id != "s1") == (str(folder.path), True)
    assert run("doctor", folder.file(OTHER)).code == 0
    assert "exists already" in folder.fails("sessions", "fork", KEY, "--as", OTHER)
    before = folder.path.read_bytes()
    folder.run("sessions", "fork", KEY, "--as", f"{OTHER}2")
    assert folder.shown(f"{OTHER}2") == folder.shown()
    assert folder.path.read_bytes() == before


def test_undo_takes_the_latest_compaction_back_and_keeps_what_was_said_since(folder: Folder) -> None:
    folder.run("truncate", KEY)
    done = folder.run("undo", KEY)
    assert (done["done"], done["proof"]["compaction"]) == (True, "e8")  # type: ignore[index]
    texts = [m["message"] for m in run("sessions", "show", folder.path, "--json").json["messages"]]
    assert [m.get("summary") or m["content"][0]["text"] for m in texts][1:] == [
        "second question", "second answer", "third question", "third answer", "fourth question",
        "fourth answer",
    ]  # fmt: skip
    assert "Undone" in folder.said("undo", KEY)
    again = folder.run("undo", KEY, code=1)
    assert (again["done"], "nothing to undo" in str(again["reason"])) == (False, True)
    assert run("doctor", folder.path).code == 0


def test_undo_that_can_not_fit_says_the_numbers(tmp_path: Path) -> None:
    large = [user("a", None, "word " * 9000), assistant("b", "a"), compaction("c", "b", "b"), user("d", "c")]
    folder = Folder(tmp_path, large)
    (folder.state / "perdure.toml").write_text("[models]\nwindow = 8000\n")
    before = folder.path.read_bytes()
    done = folder.run("undo", KEY, code=1)
    assert "the line is 7,200" in str(done["reason"])
    assert folder.path.read_bytes() == before


def test_a_dry_run_tells_what_a_truncation_then_does(folder: Folder) -> None:
    before = fingerprint(folder.state)
    plan = folder.run("truncate", KEY, "--dry-run")
    assert fingerprint(folder.state) == before
    done = folder.run("truncate", KEY)
    assert plan["proof"]["moved"] == done["proof"]["moved"] == 3  # type: ignore[index]
    assert (plan["done"], done["done"]) == (False, True)
    assert done["before"]["tokens"] == done["after"]["tokens"]  # type: ignore[index]
    assert len(done["proof"]["segments"]) == 1  # type: ignore[index]
    again = folder.run("truncate", KEY)
    assert again["done"] is False
    assert str(again["reason"]).startswith("all that is covered is needed still")


def test_discarding_segments_is_noted_and_no_damage(folder: Folder) -> None:
    folder.run("truncate", KEY)
    shown = folder.shown()
    plan = folder.run("truncate", KEY, "--discard-segments", "--dry-run")
    assert "would discard for good 1 segment" in str(plan["text"])
    assert len(segments.segments_of(folder.path)) == 1
    done = folder.run("truncate", KEY, "--discard-segments")
    assert done["done"]
    assert segments.segments_of(folder.path) == ()
    assert folder.shown() == shown
    assert run("doctor", folder.path).code == 0
    assert "session.discarded" in (folder.state / "runtime.log").read_text()
    assert "was discarded" in folder.fails("sessions", "switch", KEY, "e7")
    assert folder.run("truncate", KEY, "--discard-segments")["reason"] == "no segment is kept"


def test_why_finds_an_entry_in_its_segment(folder: Folder) -> None:
    folder.run("truncate", KEY)
    before = fingerprint(folder.state)
    found = folder.run("context", KEY, "--why", "e2")
    (line,) = found["ledger"]  # type: ignore[misc]
    (segment,) = segments.segments_of(folder.path)
    assert line["decision"] == "covered"
    assert (
        line["rule"]
        == f"compaction: summarised by e5; moved out by truncation, in the segment {segment.name}"
    )
    assert found["why"]["text"] == "assistant: first answer"  # type: ignore[index]
    assert folder.run("context", KEY, "--why", "f")["why"]["place"] == "file"  # type: ignore[index]
    assert "9 entries begin so" in folder.fails("context", KEY, "--why", "e")
    assert fingerprint(folder.state) == before


def test_compact_prints_the_proof_and_its_preview_stores_nothing(tmp_path: Path) -> None:
    rows = []
    for n in range(12):
        rows += [user(f"u{n}", rows[-1]["id"] if rows else None, f"question {n} " * 200)]
        rows += [assistant(f"a{n}", f"u{n}", f"answer {n} " * 200)]
    folder = Folder(tmp_path, rows)
    before = folder.path.read_bytes()
    seen = folder.run("compact", KEY, "--preview")
    assert folder.path.read_bytes() == before
    assert (seen["preview"], seen["model_calls"]) == ("complete", 1)
    done = folder.run("compact", KEY)
    assert (done["done"], done["proof"]["entries"]) == (True, len(seen["covered"]))  # type: ignore[index, arg-type]
    assert done["after"]["tokens"] == seen["after"]["tokens"]  # type: ignore[index]
    assert done["after"]["entries"] == done["before"]["entries"] + 1  # type: ignore[index]
    (item, *_) = open_session(folder.path).items
    assert item.message.summary == seen["summary"]  # type: ignore[union-attr]


def test_a_small_session_says_why_nothing_is_compacted(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [user("a", None), assistant("b", "a")])
    seen = folder.run("compact", KEY, "--preview", code=1)
    assert (seen["preview"], seen["proof"]) == ("plan", {})
    done = folder.run("compact", KEY, code=1)
    assert done["done"] is False
    assert "nothing" in str(done["reason"]).lower()


CHANGING = (
    ("sessions", "switch", KEY, "e7"),
    ("sessions", "label", KEY, "e7", "x"),
    ("sessions", "rename", KEY, "x"),
    ("sessions", "fork", KEY, "--as", OTHER),
    ("undo", KEY),
    ("truncate", KEY),
    ("compact", KEY),
)


@pytest.mark.parametrize("words", CHANGING, ids=" ".join)
def test_a_session_of_a_running_host_is_left_alone_and_the_holder_named(
    folder: Folder, words: tuple[str, ...]
) -> None:
    other = LocalPlacement(folder.state, wall_ms=1)
    before = folder.path.read_bytes()
    try:
        told = folder.fails(*words)
    finally:
        other.close(clean=True)
    assert f"pid {os.getpid()}" in told
    assert folder.path.read_bytes() == before


@pytest.mark.parametrize("words", CHANGING, ids=" ".join)
def test_a_session_locked_by_another_program_is_left_alone(folder: Folder, words: tuple[str, ...]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        lock = {"pid": program.pid, "createdAt": "2999-01-01T00:00:00.000Z"}
        Path(f"{folder.path}.lock").write_text(json.dumps(lock))
        before = folder.path.read_bytes()
        told = folder.fails(*words)
        program.communicate(b"\n")
    assert f"pid={program.pid}" in told
    assert folder.path.read_bytes() == before


@pytest.mark.parametrize("words", [*CHANGING, ("truncate", KEY, "--dry-run")], ids=" ".join)
def test_a_bare_file_and_an_unknown_key_cost_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = Folder(tmp_path)
    at = words.index(KEY)
    file = [*words[:at], str(folder.path), *words[at + 1 :]]
    assert "take its key" in folder.fails(*file)
    nobody = [*words[:at], "agent:main:cli:dm:nobody", *words[at + 1 :]]
    assert "no such session" in folder.fails(*nobody)


def test_a_folder_that_a_killed_host_left_is_still_taken_over_afterwards(folder: Folder) -> None:
    killed = LocalPlacement(folder.state, wall_ms=1)
    os.close(killed._fd)  # as the kernel does for a process that is gone
    folder.run("sessions", "rename", KEY, "x")
    following = LocalPlacement(folder.state, wall_ms=1)
    assert following.grant(0).clean is False  # type: ignore[union-attr]
    following.close(clean=True)


KILLED = """
import os, shutil, signal, sys
from perdure.cli import app, branches, shrinking
from perdure.cli.entry import invoke
write = os.write

def counted(real, left):
    def call(*arguments, **named):
        if real is write and bytes(arguments[1]).startswith(b'{"pid"'):
            return real(*arguments, **named)  # the lock: a line this short is written whole or not at all
        left[0] -= 1
        if left[0] == 0:
            if real is write and len(arguments[1]) > 1:
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return call

for at in range(1, 40):
    folder = f"{sys.argv[1]}-{at}"
    shutil.copytree(sys.argv[1], folder)
    if not (child := os.fork()):
        left = [at]
        for name in ("write", "rename", "fsync", "symlink"):
            setattr(os, name, counted(getattr(os, name), left))
        os._exit(invoke([*sys.argv[2:], "--state", folder]))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
        break
print(at)
"""


ACTS = [("undo", KEY), ("sessions", "switch", KEY, "e7")][: 2 if os.environ.get("KILL_ALL") else 1]


@pytest.mark.parametrize("words", ACTS, ids=" ".join)  # KILL_ALL=1: the slower one, too
def test_killed_at_any_write_the_session_shows_what_was_before_or_after(
    folder: Folder, words: tuple[str, ...]
) -> None:
    folder.run("truncate", KEY)
    before = folder.shown()
    ran = python(KILLED, folder.state, *words)
    writes = int(ran.stdout.split()[-1])
    assert writes > 3, ran.stderr
    path = folder.path.relative_to(folder.state)
    seen = []
    for at in range(1, writes + 1):
        left = Path(f"{folder.state}-{at}") / path
        opened = open_session(left)
        seen.append([getattr(item.message, "summary", item.entry) for item in opened.items])
        assert [item.entry for item in load(left).opened("e7").items] == ["e5", "e3", "e4", "e6", "e7"]
        assert load(left).opened("f1").items == open_session(folder.path).items
        if at % 3:
            continue
        ran = run(*words, "--state", f"{folder.state}-{at}")  # whoever comes next can do it
        assert ran.code in (0, 1)
    assert seen[0][1:] == before[1:]
    assert len({tuple(each[:3]) for each in seen}) == 2  # all of it, or nothing


def test_switching_to_notes_of_ours_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [user("a", None), off_chain("owner", "o", "a"), entry("custom", "c", "a")])
    assert "no entry" in folder.fails("sessions", "switch", KEY, "o")
