"""`perdure status`: who holds a state folder and what is in it, seen from beside."""

from __future__ import annotations

import json
import os
from pathlib import Path

from helpers_cli import fingerprint, run
from helpers_sessions import assistant, compaction, user, write
from perdure.edges.placement import LocalPlacement

NAME = "agent+main+cli+dm+local.jsonl"


def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    sessions = folder / "sessions" / "main"
    sessions.mkdir(parents=True)
    usage = {"input": 10, "output": 5, "cacheRead": 70, "cacheWrite": 20}
    rows = [user("a", None), assistant("b", "a"), compaction("c", "b", "b"), assistant("d", "c", usage=usage)]
    failed = assistant("e", "d", "", stopReason="error", errorMessage="overloaded, key sk-ant-REDACTED")
    write(sessions / NAME, [*rows, failed])
    return folder


def test_a_folder_that_no_host_ever_had_says_so(tmp_path: Path) -> None:
    told = run("status", "--state", state(tmp_path), "--json").json
    assert (told["host"]["held"], told["host"]["pid"]) == (False, None)
    assert (told["host"]["sessions"], told["totals"]["sessions"]) == (1, 1)
    assert "none ever had" in run("status", "--state", tmp_path / "state").out


def test_the_host_that_holds_the_folder_is_named(tmp_path: Path) -> None:
    folder = state(tmp_path)
    placement = LocalPlacement(folder, wall_ms=1)
    try:
        before = fingerprint(folder)
        told = run("status", "--state", folder, "--json").json["host"]
        assert (told["held"], told["pid"], told["node"]) == (True, os.getpid(), placement.node)
        assert told["rss_bytes"] > 0
        assert f"pid {os.getpid()}" in run("status", "--state", folder).out
        assert fingerprint(folder) == before
    finally:
        placement.close(clean=True)
    released = run("status", "--state", folder, "--json").json["host"]
    assert (released["held"], released["clean"]) == (False, True)


def test_a_host_that_died_holds_nothing(tmp_path: Path) -> None:
    folder = state(tmp_path)
    LocalPlacement(folder, wall_ms=1).close(clean=False)
    told = run("status", "--state", folder, "--json").json["host"]
    assert (told["held"], told["clean"]) == (False, False)
    assert "left without releasing" in run("status", "--state", folder).out


def test_looking_does_not_keep_a_host_out(tmp_path: Path) -> None:
    folder = state(tmp_path)
    LocalPlacement(folder, wall_ms=1).close(clean=False)
    run("status", "--state", folder)
    LocalPlacement(folder, wall_ms=1).close(clean=True)


def test_deep_looks_into_every_session(tmp_path: Path) -> None:
    folder = state(tmp_path)
    (folder / "sessions" / "main" / "agent+main+cli+dm+broken.jsonl").write_bytes(b"\0" * 50)
    (folder / "perdure.toml").write_text("[models]\nwindow = 50000\n")
    told = run("status", "--deep", "--state", folder, "--json").json
    assert set(told) >= {"host", "workers", "engines", "models", "totals", "sessions"}
    rows = {os.path.basename(row["file"]): row for row in told["sessions"]}
    row = rows[NAME]
    assert (row["key"], row["state"], row["entries"]) == ("agent:main:cli:dm:local", "asleep", 5)
    assert (row["window"], row["last_compaction"]) == (50000, "c")
    budget = row["budget"]
    sources = sum(budget[name] for name in ("identity", "knowledge", "history", "tools"))
    assert row["view_tokens"] == budget["total"] == sources > budget["identity"] > 0
    cache = row["cache"]
    assert (cache["read"], cache["prompt"], cache["share"], cache["breaks"]) == (70, 100, 0.7, {})
    assert len(row["errors"]) == 1
    assert "overloaded" in row["errors"][0]
    assert "sk-ant" not in json.dumps(told)
    broken = rows["agent+main+cli+dm+broken.jsonl"]
    assert broken["entries"] is None
    assert broken["errors"]
    human = run("status", "--deep", "--state", folder)
    assert human.code == 0
    assert "agent:main:cli:dm:local" in human.out
    assert all(name in human.out for name in ("identity", "knowledge", "history", "tools"))


def test_deep_tells_from_the_log_what_broke_a_sessions_cache(tmp_path: Path) -> None:
    folder = state(tmp_path)
    told = {"ts": 7, "level": "warning", "event": "cache.break", "session": "agent:main:cli:dm:local"}
    told |= {"cause": "clock", "rule": "engine", "declared": False, "lost": 5_000, "cost_usd": 0.01}
    told |= {"entry": "a", "byte": 9, "read": 0, "previous": 5_000}
    rows = [told, told | {"cause": "expired", "declared": True, "ts": 8}, told | {"session": "agent:else"}]
    torn = json.dumps(told)[:-9]
    (folder / "runtime.log").write_text(
        "\n".join([*map(json.dumps, rows), torn, '{"event":"cache.break"}']) + "\n"
    )
    row = run("status", "--deep", "--state", folder, "--json").json["sessions"][0]
    cache = row["cache"]
    assert (cache["breaks"], cache["lost_tokens"], cache["lost_usd"]) == (
        {"clock": 1, "expired": 1},
        10_000,
        0.02,
    )
    assert (cache["last_break"]["cause"], cache["last_break"]["ts"]) == ("expired", 8)
    assert "1 clock, 1 expired" in run("status", "--deep", "--state", folder).out


def test_every_count_means_the_same_in_every_command(tmp_path: Path) -> None:
    folder = state(tmp_path)
    file = folder / "sessions" / "main" / NAME
    status = run("status", "--deep", "--state", folder, "--json").json
    listed = run("sessions", "list", "--state", folder, "--json").json["sessions"]
    doctor = run("doctor", file, "--json").json
    assert status["sessions"][0]["entries"] == doctor["entries"]
    assert status["totals"]["bytes"] == sum(row["bytes"] for row in listed)
    assert status["host"]["sessions"] == len(listed)


def test_a_session_in_use_counts_as_awake(tmp_path: Path) -> None:
    folder = state(tmp_path)
    lock = folder / "sessions" / "main" / f"{NAME}.lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "createdAt": "2999-01-01T00:00:00Z"}))
    told = run("status", "--deep", "--state", folder, "--json").json
    assert (told["host"]["awake"], told["host"]["asleep"]) == (1, 0)
    assert told["sessions"][0]["state"] == "awake"
