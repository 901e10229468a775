"""What commands say, once and rightly: counts, places, nothing twice and nothing by the megabyte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers_cli import run
from helpers_sessions import assistant, compaction, line, user, write
from perdure.context.text.plural import counted
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import branching, keys
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.tail import open_session
from perdure.edges.state import StateFolder

KEY = "agent:main:cli:dm:local"
LONG = (
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


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    folder = StateFolder(str(tmp_path / "state"))
    path = folder.sessions / keys.relative_path(KEY)
    path.parent.mkdir(parents=True)
    LocalPlacement(folder.path, wall_ms=1).close(clean=True)
    write(path, LONG)
    return folder


def path_of(state: StateFolder) -> Path:
    return state.sessions / keys.relative_path(KEY)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "message", "1 message"), (0, "entry", "0 entries"), (2000, "message", "2,000 messages")],
)
def test_counts_agree_with_their_nouns(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_one_message_is_one_message(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None)])
    assert "1 message in view" in run("sessions", "show", file).out
    assert "1 entry" in run("doctor", file).out
    assert "1 entry" in run("sessions", "tree", file).out


def test_where_a_replay_is_kept_is_said(tmp_path: Path) -> None:
    scenario = Path(__file__).parents[2] / "scenarios" / "abort-and-steering.jsonl"
    keep = tmp_path / "kept"
    assert f"kept in {keep / scenario.stem}" in run("replay", scenario, "--keep", keep).out
    told = run("replay", scenario, "--keep", tmp_path / "again", "--json").json
    assert Path(told["kept"]).is_dir()
    assert "kept" not in run("replay", scenario, "--json").json


def test_why_tells_of_one_entry_without_the_whole_request(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None, "x" * 100_000), assistant("b", "a")])
    ran = run("context", file, "--why", "b", "--json")
    assert ran.code == 0
    assert "request" not in ran.json
    assert ran.json["why"]["entry"] == "b"
    assert len(ran.out) < 10_000
    assert run("context", file, "--json").json["request"]


def test_undo_is_judged_by_the_window_that_is_asked_for(state: StateFolder) -> None:
    path = path_of(state)
    rows = [user("a", None, "word " * 20_000), assistant("b", "a"), compaction("c", "b", "c"), user("d", "c")]
    write(path, rows)
    refused = run("undo", KEY, "--window", "8000", "--state", state.path, "--json")
    assert (refused.code, refused.json["proof"]["window"]) == (1, 8_000)
    assert run("undo", KEY, "--window", "200000", "--state", state.path).code == 0


def test_a_view_that_another_program_shortened_is_looked_at_as_a_host_would_complete_it(
    state: StateFolder,
) -> None:
    path = path_of(state)
    assert run("truncate", KEY, "--state", state.path).code == 0
    with path.open("ab") as other:
        other.write(line(user("x1", "e7", "from elsewhere")) + b"\n")
    before = path.read_bytes()
    seen = run("sessions", "show", KEY, "--state", state.path, "--json").json
    ledger = run("context", KEY, "--state", state.path, "--json").json["ledger"]
    assert path.read_bytes() == before
    placement = LocalPlacement(state.path, wall_ms=1)
    grant = placement.grant(0)
    assert grant is not None
    held = SessionFiles(state.path, grant).open(KEY, 1_790_000_000_000)
    branching.complete(held, 1_790_000_000_000)
    held.close(handover=True)
    placement.close(clean=True)
    woken = [item.entry for item in open_session(path).items]
    assert [row["entry"] for row in seen["messages"]] == woken == ["e5", "e3", "e4", "e6", "e7", "x1"]
    assert set(woken) <= {row["entry"] for row in ledger}


def test_no_message_text_is_in_the_runtime_log(state: StateFolder) -> None:
    canary = "zq-canary-7361"
    words = ("--state", state.path)
    for command in (
        ("chat", "-m", f"hello {canary}"),
        ("chat", "-m", f"/pin {canary}"),
        ("sessions", "rename", KEY, canary),
        ("sessions", "label", KEY, "e9", canary),
        ("truncate", KEY),
        ("compact", KEY),
        ("undo", KEY),
        ("sessions", "delete", KEY),
    ):
        assert run(*command, *words).code in (0, 1)
    log = state.log.read_text()
    assert '"session.deleted"' in log
    assert canary not in log
    assert [json.loads(row)["event"] for row in log.splitlines()]
