"""Marks: the last line of a session counts, whatever became of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.edges import disk
from perdure.edges.marks import Marks
from perdure.records import Record


class Mark(Record):
    session: str
    upto: str = ""


def marks(path: Path, **bounds: int) -> Marks[Mark]:
    return Marks(path / "marks.jsonl", Mark, **bounds)


def test_the_last_of_a_session_counts_in_memory_and_in_the_file(tmp_path: Path) -> None:
    here = marks(tmp_path)
    assert here.last("a") is None
    for mark in (Mark("a", "1"), Mark("b", "1"), Mark("a", "2")):
        here.put(mark)
    assert here.last("a") == marks(tmp_path).last("a") == Mark("a", "2")
    assert marks(tmp_path).last("b") == Mark("b", "1")


def test_torn_and_foreign_lines_cost_themselves(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    path.write_bytes(b'\xff\xfe\n{"session":"a","upto":"1"}\n[]\n{"session":"a","up')
    here = marks(tmp_path)
    assert here.last("a") == Mark("a", "1")
    here.put(Mark("b", "2"))
    assert marks(tmp_path).last("b") == Mark("b", "2")


def test_a_disk_that_takes_nothing_is_told_and_the_mark_holds_while_the_host_lives(tmp_path: Path) -> None:
    here = marks(tmp_path)

    def full(op: str, path: str) -> None:
        raise OSError(28, "No space left on device")

    with disk.faults(full), pytest.raises(OSError, match="No space"):
        here.put(Mark("a", "1"))
    assert here.last("a") == Mark("a", "1")
    assert marks(tmp_path).last("a") is None


def test_the_file_does_not_grow_for_ever_and_keeps_the_latest_sessions(tmp_path: Path) -> None:
    here = marks(tmp_path, grown=2_000, most=10)
    for n in range(400):
        here.put(Mark(f"s{n % 40}", str(n)))
    assert (tmp_path / "marks.jsonl").stat().st_size < 3_000
    assert marks(tmp_path).last("s39") == Mark("s39", "399")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    (tmp_path / "marks.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        marks(tmp_path).put(Mark("a", "1"))
    assert (tmp_path / "other").read_text() == ""
