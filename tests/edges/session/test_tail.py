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
    try:
        before = path.read_bytes(), os.stat(path).st_mtime_ns
        assert differences(path) == {}
        assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before
    except Exception as error:
        if type(error).__name__ != "UnreadableFile":
            raise
        assert len(scribe.rows) == 1  # only a torn header leaves nothing to read
