"""`perdure import`: a scenario beside an account of what didn't come through; nothing is overwritten."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from helpers_cli import failed, run
from helpers_sessions import assistant, compaction, user, write


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    rows = [user("a", None, "hello"), assistant("b", "a", "hi"), compaction("c", "b", "a"), user("d", "c")]
    return write(tmp_path / "talk.jsonl", [*rows, assistant("e", "d")])


def header(path: Path) -> Any:
    return json.loads(path.read_text().splitlines()[0])


def test_a_scenario_is_written_into_the_working_folder(recording: Path) -> None:
    before = recording.read_bytes()
    told = run("import", recording, "--json").json
    assert set(told) == {"source", "format", "entries", "kept", "lost", "out"}
    assert told["out"] == "talk.scenario.jsonl"
    assert any("compaction" in row["what"] for row in told["lost"])
    assert all(set(row) == {"what", "count"} for row in told["lost"])
    assert "hello" in Path(told["out"]).read_text()
    assert recording.read_bytes() == before


def test_it_goes_where_it_is_sent_with_the_window_it_is_given(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.jsonl"
    assert run("import", recording, "-o", out, "--window", "32000").code == 0
    assert header(out)["window"] == 32000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["desk", "made.jsonl", "talk.jsonl"]


def test_nothing_is_overwritten_unless_it_is_asked_for(recording: Path) -> None:
    there = Path("talk.scenario.jsonl")
    there.write_text("precious")
    assert "--force" in failed(run("import", recording))
    assert there.read_text() == "precious"
    assert run("import", recording, "--force").code == 0
    assert "hello" in there.read_text()


def test_the_recording_itself_is_never_overwritten(recording: Path) -> None:
    before = recording.read_bytes()
    assert "recording itself" in failed(run("import", recording, "-o", recording, "--force"))
    assert recording.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("-o", "no/such/folder/x.jsonl"), "no such folder"),
        (("-o", "."), "a folder"),
        (("--window", "0"), "window"),
        (("--window=-1",), "window"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(recording: Path, words: tuple[str, ...], about: str) -> None:
    assert about in failed(run("import", recording, *words))
    assert list(Path().iterdir()) == []


def test_a_folder_that_takes_no_file_is_told(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    assert "Read-only" in failed(run("import", recording))


def test_a_scenario_is_not_imported_again(recording: Path) -> None:
    run("import", recording)
    assert "perdure replay" in failed(run("import", "talk.scenario.jsonl", "-o", "again.jsonl"))


def test_a_person_reads_what_was_not_kept(recording: Path) -> None:
    out = run("import", recording).out
    assert "not kept: 1 × compactions" in out
    assert "perdure replay talk.scenario.jsonl" in out
