"""The journal by itself: its form, its syncs and their errors, trimming, deletion."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_files import FakeGrant
from perdure.edges import disk
from perdure.edges.blobs import LocalBlobs
from perdure.edges.erasing import Eraser
from perdure.edges.journal.form import HEADER, Identity, Logged, decode, encode, header
from perdure.edges.journal.journal import SUSPECT, Journal
from perdure.edges.journal.replay import recover
from perdure.edges.journal.segment import read, segments
from perdure.edges.session.files import SessionFiles
from perdure.edges.state import StateFolder
from perdure.errors import NewerState, StorageFailed
from perdure.hosting import storage
from perdure.kernel.io import IoPolicy

WHO, LATER = Identity("boot", "1:2"), Identity("later", "1:2")
KEY = "agent:main:cli:dm:local"
RECORDS = st.lists(st.tuples(st.text(min_size=1, max_size=9), st.binary(max_size=50)), min_size=1, max_size=9)


def journal(state: Path, **options: int) -> Journal:
    (state / "journal").mkdir(parents=True, exist_ok=True)
    return Journal(state / "journal", state, WHO, **{"size": 4096, **options})


def written(state: Path, name: str, *datas: bytes, log: Journal | None) -> Path:
    """Bytes appended to a file, and told to the journal."""
    path = state / name
    for data in datas:
        size = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(data)
        if log is not None:
            log.appended(os.fspath(path), size, data)
    return path


def held(state: Path) -> list[Logged]:
    return [record for path in segments(state / "journal") for record in read(path)[1]]


def fails(wanted: Callable[[str, str], bool], times: int = 10**9) -> Callable[[str, str], None]:
    left = [times]

    def fault(op: str, path: str) -> None:
        if left[0] and wanted(op, path):
            left[0] -= 1
            raise OSError(5, "Input/output error")

    return fault


# --- form -----------------------------------------------------------------------------------------


@given(RECORDS, st.data())
def test_a_segment_cut_anywhere_yields_the_records_before_the_cut(records, data):
    logged = [Logged(n + 5, "append", key, n, body) for n, (key, body) in enumerate(records)]
    rows = [encode(record, 77) for record in logged]
    whole = header(77, WHO) + b"".join(rows)
    cut = data.draw(st.integers(HEADER, len(whole)))
    garbage = data.draw(st.binary(max_size=40))
    fits = sum(HEADER + sum(map(len, rows[: n + 1])) <= cut for n in range(len(rows)))
    assert list(decode(whole[:cut] + b"\0" * 64, 77)) == logged[:fits]
    found = list(decode(whole[:cut] + garbage, 77))
    assert found[:fits] == logged[:fits]
    assert found == logged[: len(found)]  # garbage is never a record


def test_records_of_an_earlier_use_of_the_same_blocks_are_not_read():
    old = header(1, WHO) + b"".join(encode(Logged(n, "append", "a", n, b"x"), 1) for n in range(1, 6))
    new = bytearray(header(2, WHO) + encode(Logged(1, "append", "a", 0, b"y"), 2))
    new += old[len(new) :]
    assert [record.data for record in decode(bytes(new), 2)] == [b"y"]


# --- commit ---------------------------------------------------------------------------------------


def test_a_batch_is_one_write_and_one_sync(tmp_path):
    log, seen = journal(tmp_path), []
    written(tmp_path, "s", b"one\n", log=log)
    log.commit()
    written(tmp_path, "s", b"two\n", b"three\n", log=log)
    with disk.faults(lambda op, path: seen.append(op)):
        assert log.commit() == log.durable == 3
    assert seen == ["write", "fsync"]
    log.close(clean=False)


def test_a_descriptor_whose_sync_failed_is_never_written_again(tmp_path):
    log = journal(tmp_path)
    written(tmp_path, "s", b"one\n", log=log)
    log.commit()
    first = segments(tmp_path / "journal")[0]
    before = first.stat().st_mtime_ns
    written(tmp_path, "s", b"two\n", log=log)
    with disk.faults(fails(lambda op, path: op == "fsync" and path.endswith(".wal"), times=1)):
        log.commit()
    assert len(segments(tmp_path / "journal")) == 2
    written(tmp_path, "s", b"three\n", log=log)
    after = first.stat().st_mtime_ns
    log.commit()
    assert first.stat().st_mtime_ns == after >= before
    log.close(clean=False)
    (tmp_path / "s").write_bytes(b"")
    assert recover(tmp_path / "journal", tmp_path, WHO).restored  # the same boot: a failed sync is enough
    assert (tmp_path / "s").read_bytes() == b"one\ntwo\nthree\n"


def test_a_journal_that_fails_twice_refuses_and_keeps_what_it_owes(tmp_path):
    log = journal(tmp_path)
    written(tmp_path, "s", b"one\n", log=log)
    with disk.faults(fails(lambda op, path: path.endswith(".wal"))):
        with pytest.raises(StorageFailed, match="nothing is acknowledged"):
            log.commit()
        with pytest.raises(StorageFailed):
            log.check()
    assert log.durable == 0
    assert log.commit() == 1
    log.check()
    assert [record.data for record in held(tmp_path)] == [b"one\n"]
    log.close(clean=False)


def test_what_waits_for_the_disk_is_bounded(tmp_path):
    log = journal(tmp_path)
    log.appended(f"{tmp_path}/s", 0, b"x" * (33 * 1024 * 1024))
    with pytest.raises(StorageFailed, match="behind"):
        log.check()
    log.close(clean=False)


# --- trim -----------------------------------------------------------------------------------------


def test_old_segments_go_when_their_files_are_synced_and_not_before(tmp_path):
    log = journal(tmp_path, size=600)
    synced = []
    for n in range(3):
        written(tmp_path, f"s{n}", b"line\n" * 40, log=log)
        log.commit()
    assert len(segments(tmp_path / "journal")) == 3
    with disk.faults(fails(lambda op, path: path.endswith("s1"))), pytest.raises(StorageFailed):
        log.trim()
    assert len(segments(tmp_path / "journal")) == 2  # the one that names s1 stays
    assert (tmp_path / "journal" / SUSPECT).exists()
    with disk.faults(lambda op, path: synced.append(path) if op == "fsync" else None):
        log.trim()
    assert f"{tmp_path}/s1" in synced
    assert len(segments(tmp_path / "journal")) == 1
    log.close(clean=False)


def test_a_journal_never_grows_beyond_a_few_segments(tmp_path):
    log = journal(tmp_path, size=600)
    for n in range(20):
        written(tmp_path, f"s{n % 3}", b"line\n" * 40, log=log)
        log.commit()  # nobody trims beside: the commit does
        assert len(segments(tmp_path / "journal")) <= 5
    log.close(clean=True)
    assert segments(tmp_path / "journal") == []


def test_a_deleted_session_leaves_no_byte_in_the_journal(tmp_path):
    log = journal(tmp_path)
    files = SessionFiles(tmp_path, FakeGrant(), journal=log)
    held = files.create(KEY, "/w", 1)
    held.file.append((b'{"type":"message","id":"a","secret":"CANARY"}\n',))
    other = files.create(f"{KEY}2", "/w", 1)
    other.file.append((b'{"type":"message","id":"b"}\n',))
    log.commit()
    held.close(handover=True)
    path = os.fspath(files.path(KEY))
    assert any(b"CANARY" in found.read_bytes() for found in (tmp_path / "journal").iterdir())
    forget = storage.forgetting(StateFolder(os.fspath(tmp_path)), log)
    blobs = LocalBlobs(tmp_path / "evidence", IoPolicy(False))
    Eraser(tmp_path, blobs, None, forget_journal=forget).erase(KEY)
    left = [found for found in tmp_path.rglob("*") if found.is_file() and b"CANARY" in found.read_bytes()]
    assert left == []
    other.file.append((b'{"type":"message","id":"c"}\n',))
    log.commit()
    log.close(clean=False)
    recover(tmp_path / "journal", tmp_path, LATER)
    assert not Path(path).exists()  # nor is it put back


def test_a_newer_journal_is_refused_and_left_alone(tmp_path):
    log = journal(tmp_path)
    path = tmp_path / "journal" / "00000001.wal"
    path.write_bytes(header(1, WHO).replace(b'"v": 1', b'"v": 7'))
    before = path.read_bytes()
    with pytest.raises(NewerState, match=r"journal version 7.*update perdure"):
        recover(tmp_path / "journal", tmp_path, LATER)
    assert path.read_bytes() == before
    log.close(clean=False)


# --- foreign writers ------------------------------------------------------------------------------


def test_foreign_bytes_between_ours_are_synced_before_we_go_on_behind_them(tmp_path):
    log = journal(tmp_path)
    files = SessionFiles(tmp_path, FakeGrant(), journal=log)
    file = files.create(KEY, "/w", 1).file
    file.append((b'{"type":"message","id":"a"}\n',))
    log.commit()
    with file.path.open("ab") as foreign:
        foreign.write(b'{"type":"message","id":"f"}\n')
    status = file.path.stat()
    file.adopt(status.st_size, status.st_ino)
    file.append((b'{"type":"message","id":"b"}\n',))
    synced = []
    with disk.faults(lambda op, path: synced.append(path) if op == "fsync" else None):
        log.commit()
    assert synced.index(os.fspath(file.path)) < synced.index(os.fspath(segments(log.folder)[0]))
    log.close(clean=False)
    whole = file.path.read_bytes()
    os.truncate(file.path, whole.index(b'{"type":"message","id":"b"}'))  # what was never synced is lost
    assert recover(log.folder, tmp_path, LATER).restored == 1
    assert file.path.read_bytes() == whole


@settings(max_examples=60)
@given(data=st.data())
def test_replay_is_idempotent_and_exact_for_any_loss_behind_the_last_sync(data, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    log = journal(state)
    lines = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=12))
    before = b"durable\n" * data.draw(st.integers(0, 900))
    path = written(state, "s", before, log=None) if before else state / "s"
    path.touch()
    for n, length in enumerate(lines):
        written(state, "s", bytes([97 + n]) * length + b"\n", log=log)
    log.commit()
    log.close(clean=False)
    whole = path.read_bytes()
    rest = data.draw(st.sampled_from([b"", b"torn", b"whole\n", b"whole\ntorn", b"\0" * 50, b"x\0\0y\nz\n"]))
    lost = bytearray(whole + rest)
    for page in range(len(before) // 4096 * 4096, len(lost), 4096):
        if data.draw(st.booleans()):
            start = max(page, len(before))
            lost[start : page + 4096] = bytes(max(0, min(len(lost), page + 4096) - start))
    path.write_bytes(lost[: data.draw(st.integers(len(before), len(lost)))])
    recover(state / "journal", state, LATER)
    once = path.read_bytes()
    assert once.startswith(whole)
    assert once[len(whole) :] in (b"", b"whole\n")
    assert recover(state / "journal", state, LATER).segments == 0
    assert path.read_bytes() == once
