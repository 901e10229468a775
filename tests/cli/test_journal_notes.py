"""`doctor` on a file whose lines wait in a journal; commands that change a session replay it first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers_host import KEY, Play, ask, hosted, session_path, virtual
from perdure.cli import changing, doctor
from perdure.edges.journal.segment import segments
from perdure.edges.settings import HostSettings, Settings
from perdure.kernel.io import IoPolicy
from perdure.kernel.virtual import VirtualClock

POWER = Settings(host=HostSettings(durability="power", journal_mb=1))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """As a power cut leaves it: an answer is in the journal, and not in the file."""

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=IoPolicy(True, sync=True)) as host:
            await ask(host, "one")
            host.kill()

    virtual(main)
    path = session_path(tmp_path)
    os.truncate(path, path.read_bytes().index(b"\n") + 1)
    [segment] = segments(tmp_path / "state/journal")
    boot = json.loads(segment.read_bytes()[:512])["boot"]
    segment.write_bytes(segment.read_bytes().replace(boot.encode(), b"x" * len(boot), 1))
    return tmp_path / "state"


def notes(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    doctor.run(str(path), as_json=True)
    found = json.loads(capsys.readouterr().out)["problems"]
    return [each["detail"] for each in found if each["kind"] == "journal_pending"]


def test_doctor_notes_a_journal_that_names_the_file_until_it_is_replayed(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session_path(tmp_path)
    before = path.read_bytes()
    assert len(notes(path, capsys)) == 1
    assert path.read_bytes() == before
    with changing.owned(KEY, state) as desk:  # any command that takes the folder replays first
        assert [item.message.content[0].text for item in desk.held.opened.items] == ["one", "ok 1"]  # type: ignore[union-attr]
    assert notes(path, capsys) == []


def test_doctor_says_where_lines_are_that_could_not_be_put_back(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session_path(tmp_path)
    path.write_bytes(
        path.read_bytes() + b'{"type":"custom","id":"edited","parentId":null,"customType":"x"}\n'
    )
    with changing.owned(KEY, state):
        pass
    [note] = notes(path, capsys)
    assert "kept in" in note
