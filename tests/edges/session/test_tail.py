"""Waking from the tail: the same as reading the whole file, for any history, at the cost of the tail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers_sessions import Scribe, assistant, compaction, entry, line, off_chain, user, write
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session, open_tail
from perdure.errors import UnreadableFile

STEPS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40), st.integers(0, 30)), max_size=40)
ANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def differences(path: Path) -> dict[str, tuple[object, object]]:
    tail, whole = open_session(path), load(path).opened()
    names = [name for name in whole.__struct_fields__ if getattr(tail, name) != getattr(whole, name)]
    return {name: (getattr(tail, name), getattr(whole, name)) for name in names}


@ANY
@given(steps=STEPS, cut=st.integers(0, 200), newline=st.booleans())
def test_the_tail_tells_what_the_whole_file_tells(
    tmp_path: Path, steps: list[tuple[int, int, int]], cut: int, newline: bool
) -> None:
    scribe = Scribe(tmp_path / "s.jsonl")
    scribe.play(steps)
    if cut < len(scribe.rows[-1]):  # a kill in the middle of the last append
        scribe.rows[-1] = scribe.rows[-1][: len(scribe.rows[-1]) - cut]
    path = scribe.save(b"\n" if newline else b"")
    before = path.read_bytes(), os.stat(path).st_mtime_ns
    try:
        assert differences(path) == {}
    except UnreadableFile:
        assert len(scribe.rows) == 1  # only a torn header leaves nothing to read
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before


# --- what it costs, and what it leaves for later --------------------------------------------------


def long_file(path: Path, turns: int, *, ours: bool, size: int = 400) -> Path:
    """Turns of two messages, a compaction every 100 turns, each keeping 10 turns; ours carry checkpoints."""
    scribe = Scribe(path)
    rows, leaf = scribe.rows, None
    for turn in range(turns):
        if turn and turn % 100 == 0:
            details = {"perdure": {"v": 1, "e": 1, "checkpoint": {"v": 1, "epoch": 1}}} if ours else {}
            rows.append(line(compaction(f"p{turn}", leaf, f"u{turn - 10}", details=details)))
            leaf = f"p{turn}"
        rows.append(line(user(f"u{turn}", leaf, "x" * size)))
        rows.append(line(assistant(f"a{turn}", f"u{turn}", provider="p", model="m")))
        leaf = f"a{turn}"
    return scribe.save()


class Reads:
    """Counts the bytes that are read through the scanner."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        genuine = os.pread

        def counted(fd: int, size: int, at: int) -> bytes:
            data = genuine(fd, size, at)
            self.bytes += len(data)
            return data

        monkeypatch.setattr(os, "pread", counted)


@pytest.mark.parametrize("ours", [True, False], ids=["with a checkpoint", "of another program"])
def test_waking_reads_as_much_of_a_long_file_as_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    short, long = (long_file(tmp_path / f"{n}", n, ours=ours) for n in (450, 9_050))
    reads, costs = Reads(monkeypatch), []
    for path in (short, long):
        reads.bytes = 0
        assert len(open_tail(path).entries) == 121
        costs.append(reads.bytes)
    assert os.path.getsize(long) > 15 * os.path.getsize(short)
    assert costs[1] <= 1.5 * costs[0]


def test_a_dead_side_branch_is_jumped_over_where_a_checkpoint_tells_where_the_live_path_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = Scribe(tmp_path / "s")
    scribe.play([(0, 1, 0)] * 4)
    dead = "e3"
    for number in range(3_000):
        scribe.rows.append(line(user(f"dead{number}", dead, "y" * 300)))
        dead = f"dead{number}"
    scribe.rows.append(line(off_chain("branch", "back", "e3")))
    scribe.leaf = "e3"
    scribe.checkpoint("checkpoint", "cp")
    path = scribe.save()
    reads = Reads(monkeypatch)
    assert [e.id for e in open_tail(path).entries] == ["e0", "e1", "e2", "e3"]
    assert reads.bytes < os.path.getsize(path) / 4


def test_ranges_that_another_program_moved_are_hints_that_fail_safely(tmp_path: Path) -> None:
    scribe = Scribe(tmp_path / "s")
    scribe.play([(0, n, 0) for n in range(8)])
    scribe.checkpoint("checkpoint", "cp")
    scribe.rows[1:1] = [line(user(f"moved{n}", None, "z" * n)) for n in range(40)]
    path = scribe.save()
    assert differences(path) == {}
    assert len(open_session(path).entries) == 8


def test_a_view_far_beyond_the_window_is_read_in_part_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(path, [user(f"e{n}", f"e{n - 1}" if n else None, "w" * 500) for n in range(500)])
    opened = open_session(path, window_bytes=20_000)
    assert opened.unread
    assert 20_000 <= sum(e.end - e.start for e in opened.entries) < 22_000
    assert opened.leaf == "e499"
    assert opened.items == load(path).opened().items[-len(opened.items) :]
    assert not open_session(path, window_bytes=10**9).unread


def test_settings_of_a_covered_past_are_searched_for_once(tmp_path: Path) -> None:
    rows = [
        entry("thinking_level_change", "t", None, thinkingLevel="high"),
        entry("session_info", "n", "t", name="old name"),
        assistant("a", "n", provider="p", model="m"),
        user("b", "a"),
        compaction("p", "b", "b"),
        user("c", "p"),
    ]
    path = write(tmp_path / "s", rows)
    first = open_tail(path)
    assert (first.searched, first.settings.thinking, first.name) == (False, "off", None)
    whole = open_session(path)
    assert (whole.searched, whole.settings.thinking, whole.settings.model) == (True, "high", "m")
    assert (whole.name, whole.compactions) == ("old name", 1)
    assert whole.items == first.items


def test_compactions_before_the_tail_are_counted_without_decoding_them(tmp_path: Path) -> None:
    path = long_file(tmp_path / "s", 450, ours=False)
    assert open_session(path).compactions == load(path).opened().compactions == 4
