"""Recorded sessions of others, where a folder of them is named: read in place, never changed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from perdure.edges.session.doctor import examine
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile

FOLDER = Path(os.environ.get("PERDURE_SESSIONS") or "/nonexistent")
SESSIONS = [*FOLDER.glob("oc-*.jsonl"), *FOLDER.glob("pi-*.jsonl")]
FOREIGN = {"cc": "Claude Code", "cx": "Codex", "nb": "nanobot"}
TRANSCRIPTS = [path for kind in FOREIGN for path in FOLDER.glob(f"{kind}-*.jsonl")]

pytestmark = pytest.mark.skipif(not SESSIONS, reason="PERDURE_SESSIONS names no folder of recorded sessions")


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
def test_a_recorded_session_wakes_the_same_from_the_tail_and_stays_as_it_is(path: Path) -> None:
    before = path.read_bytes(), os.stat(path).st_mtime_ns
    opened = load(path).opened()
    assert open_session(path) == opened
    assert opened.items
    assert opened.gaps == ()
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
def test_a_recorded_session_is_examined_without_a_false_alarm(path: Path) -> None:
    report = examine(path)
    damage = [(p.kind, p.line) for p in report.problems if p.severity == "damage"]
    assert damage == ([("glued", 1013)] if path.name == "pi-torn-compact.jsonl" else [])
    assert report.entries == load(path).count


def test_the_record_that_lost_its_newline_is_found_at_its_byte() -> None:
    path = FOLDER / "pi-torn-compact.jsonl"
    (glued,) = (p for p in examine(path).problems if p.kind == "glued")
    row = path.read_bytes().split(b"\n")[1012]
    assert glued.byte == path.read_bytes().index(row) + row.index(b'{"type":"compaction"')
    assert load(path).opened().compaction == f"{glued.byte:016x}"


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [("oc-sonnet46-unpaired", "unpaired_call", 5), ("oc-ratelimit-107err", "empty_content", 107)],
)
def test_known_oddities_are_counted(name: str, kind: str, count: int) -> None:
    assert Counter(p.kind for p in examine(FOLDER / f"{name}.jsonl").problems)[kind] == count


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_a_transcript_of_another_kind_is_named_and_refused(path: Path) -> None:
    for read in (open_session, examine):
        with pytest.raises(UnreadableFile, match=f"a {FOREIGN[path.name[:2]]} transcript, not a session"):
            read(path)
