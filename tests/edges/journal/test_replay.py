"""What a start makes of a file that somebody touched: hands off, lines put aside, nothing resurrected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.edges import disk
from perdure.edges.journal import aside
from perdure.edges.journal.form import Identity
from perdure.edges.journal.journal import Journal
from perdure.edges.journal.replay import pending, recover
from perdure.edges.journal.segment import segments
from perdure.errors import StorageFailed

WHO, LATER = Identity("boot", "1:2"), Identity("later", "1:2")
LINES = (b'{"id":"a"}\n', b'{"id":"b"}\n', b'{"id":"c"}\n')


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file of three lines whose journal holds all of them, as a crash leaves both."""
    (tmp_path / "journal").mkdir()
    log, path = Journal(tmp_path / "journal", tmp_path, WHO, size=4096), tmp_path / "s.jsonl"
    for line in LINES:
        size = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(line)
        log.appended(os.fspath(path), size, line)
    log.commit()
    log.close(clean=False)
    return tmp_path


def replayed(state: Path, who: Identity = LATER):
    return recover(state / "journal", state, who)


def kept_aside(state: Path) -> bytes:
    return b"".join(path.read_bytes() for path in aside.of(state / "journal", "s.jsonl"))


def test_on_the_same_boot_nothing_is_replayed_and_the_segments_are_retired(state):
    (state / "s.jsonl").write_bytes(b"whatever\n")
    done = replayed(state, WHO)
    assert (done.replayed, done.segments) == (False, 1)
    assert (state / "s.jsonl").read_bytes() == b"whatever\n"
    assert segments(state / "journal") == []


@pytest.mark.parametrize("who", [LATER, Identity("boot", "1:3"), Identity("boot", "9:2")])
def test_another_boot_device_or_mount_is_reason_to_replay(state, who):
    os.truncate(state / "s.jsonl", 15)
    assert pending(state / "journal", who) == {"s.jsonl"}
    assert replayed(state, who).restored == 1
    assert (state / "s.jsonl").read_bytes() == b"".join(LINES)
    assert pending(state / "journal", who) == set()


def test_an_edited_file_is_left_as_it_is_and_the_lines_are_put_aside(state):
    (state / "s.jsonl").write_bytes(b'{"id":"a"}\n{"id":"EDITED"}\n')
    [(place, why)] = replayed(state).aside
    assert "changed" in why
    assert (state / "s.jsonl").read_bytes() == b'{"id":"a"}\n{"id":"EDITED"}\n'
    assert Path(place).read_bytes() == kept_aside(state) == b"".join(LINES)


def test_a_deleted_file_is_not_resurrected(state):
    (state / "s.jsonl").unlink()
    [(_, why)] = replayed(state).aside
    assert "gone" in why
    assert not (state / "s.jsonl").exists()
    assert kept_aside(state) == b"".join(LINES)


def test_a_file_whose_making_is_in_the_journal_is_made_again(tmp_path):
    (tmp_path / "journal").mkdir()
    log = Journal(tmp_path / "journal", tmp_path, WHO, size=4096)
    log.created(f"{tmp_path}/deep/er/s.jsonl", b"header\n")
    log.appended(f"{tmp_path}/deep/er/s.jsonl", 7, b"line\n")
    log.created(f"{tmp_path}/gone.jsonl", b"header\n")
    log.barrier(f"{tmp_path}/gone.jsonl", sync=False)
    log.commit()
    log.close(clean=False)
    assert replayed(tmp_path).made == 1
    assert (tmp_path / "deep/er/s.jsonl").read_bytes() == b"header\nline\n"
    assert not (tmp_path / "gone.jsonl").exists()


def test_lines_of_others_behind_ours_are_kept(state):
    with (state / "s.jsonl").open("ab") as file:
        file.write(b'{"id":"foreign"}\n')
    assert not replayed(state).aside
    assert (state / "s.jsonl").read_bytes() == b"".join(LINES) + b'{"id":"foreign"}\n'


def test_a_torn_rest_is_cut_and_what_it_said_is_kept_aside(state):
    with (state / "s.jsonl").open("ab") as file:
        file.write(b'{"id":"torn')
    assert replayed(state).cut == 1
    assert (state / "s.jsonl").read_bytes() == b"".join(LINES)
    assert kept_aside(state) == b'{"id":"torn'


def test_a_replay_that_dies_at_any_call_is_finished_by_the_next(state, tmp_path_factory):
    os.truncate(state / "s.jsonl", 15)
    (state / "journal/other.txt").write_bytes(b"not ours")
    done = False
    for at in range(40):
        count = 0

        def dies(op: str, path: str, at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at + 1:
                raise OSError(28, "No space left on device")

        with disk.faults(dies):
            try:
                replayed(state)
                done = True
                break
            except StorageFailed:
                continue
    assert done
    assert (state / "s.jsonl").read_bytes() == b"".join(LINES)


def test_the_same_lines_are_put_aside_once(state):
    for _ in range(3):
        aside.put(state / "journal", "s.jsonl", 7, b"lines\n")
    assert kept_aside(state) == b"lines\n"
    aside.forget(state / "journal", "s.jsonl")
    assert kept_aside(state) == b""
