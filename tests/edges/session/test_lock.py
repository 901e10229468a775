import errno
import json
import os
import subprocess
import sys

import pytest

from perdure.edges import disk
from perdure.edges.session.lines import iso
from perdure.edges.session.lock import (
    REFRESH_MS,
    STALE_MS,
    SessionLock,
    holder_of,
    read_lock,
    stale_reasons,
    start_time,
)
from perdure.errors import Locked, StorageFailed

NOW = 1_790_000_000_000


@pytest.fixture
def session(tmp_path):
    return tmp_path / "s.jsonl"


@pytest.fixture
def neighbour():
    """A live process that is not us."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def put(session, **content):
    path = session.with_name(session.name + ".lock")
    path.write_text(json.dumps(content))
    return path


def test_a_lock_has_the_name_and_fields_that_the_reference_reads(session):
    lock = SessionLock(session)
    lock.acquire(NOW)
    assert lock.path.name == "s.jsonl.lock"
    assert read_lock(lock.path) == {
        "pid": os.getpid(),
        "createdAt": "2026-09-21T14:13:20.000Z",
        "starttime": start_time(os.getpid()),
    }
    lock.release()
    assert not lock.path.exists()


def test_a_lock_of_a_live_program_is_respected_and_named(session, neighbour):
    path = put(session, pid=neighbour, createdAt=iso(NOW - 1000), starttime=start_time(neighbour))
    with pytest.raises(Locked, match=f"pid={neighbour}") as told:
        SessionLock(session).acquire(NOW)
    assert "\n" not in str(told.value)
    assert path.exists()
    assert holder_of(session, NOW) == neighbour


def test_our_own_live_lock_is_not_taken_twice(session):
    SessionLock(session).acquire(NOW)
    with pytest.raises(Locked):
        SessionLock(session).acquire(NOW)


@pytest.mark.parametrize("age", [STALE_MS + 1, 10 * STALE_MS])
def test_a_lock_older_than_half_an_hour_is_cleared(session, neighbour, age):
    put(session, pid=neighbour, createdAt=iso(NOW - age), starttime=start_time(neighbour))
    lock = SessionLock(session)
    lock.acquire(NOW)
    assert read_lock(lock.path)["pid"] == os.getpid()


def test_a_lock_that_is_being_written_right_now_is_left_alone(session):
    path = put(session)
    os.utime(path, (NOW / 1000, NOW / 1000))
    with pytest.raises(Locked, match="pid=unknown"):
        SessionLock(session).acquire(NOW + STALE_MS)
    SessionLock(session).acquire(NOW + STALE_MS + 1000)


def test_an_empty_lock_keeps_nobody_out_for_longer_than_it_takes_to_write_one(session):
    path = put(session)
    path.write_bytes(b"")  # its writer was killed behind making it
    os.utime(path, (NOW / 1000, NOW / 1000))
    with pytest.raises(Locked, match="pid=unknown"):
        SessionLock(session).acquire(NOW + 1000)
    SessionLock(session).acquire(NOW + 6000)


class Killed(BaseException):
    """Takes the process away where it is raised."""


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("at", ["open", "write", "link"])
def test_a_kill_while_a_lock_is_made_leaves_no_lock_that_names_nobody(session, at, nameless, monkeypatch):
    if not nameless:  # there, this promise is for seconds only; the lock is as good as any
        monkeypatch.delattr(os, "O_TMPFILE")
        SessionLock(session).acquire(NOW)
        assert read_lock(session.with_name("s.jsonl.lock"))["pid"] == os.getpid()
        return

    def kill(op, path):
        if op == at:
            raise Killed

    with disk.faults(kill), pytest.raises(Killed):
        SessionLock(session).acquire(NOW)
    assert not list(session.parent.iterdir())
    SessionLock(session).acquire(NOW)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[]", b'{"pid": 1e999}'])
def test_a_lock_of_garbage_is_read_as_one_that_says_nothing(session, content):
    path = put(session)
    path.write_bytes(content)
    os.utime(path, (NOW / 1000, NOW / 1000))
    assert "pid" not in read_lock(path) or content.startswith(b"{")
    SessionLock(session).acquire(NOW + STALE_MS + 1000)


def check(holder, *, own=1, alive=True, started=50):
    return stale_reasons(holder, NOW, own_pid=own, alive=lambda pid: alive, started=lambda pid: started)


def test_each_reason_why_a_lock_no_longer_counts():
    good = {"pid": 9, "createdAt": iso(NOW), "starttime": 50}
    assert check(good) == ()
    assert check(good | {"createdAt": iso(NOW - STALE_MS)}) == ()
    assert check(good | {"createdAt": iso(NOW - STALE_MS - 1)}) == ("too-old",)
    assert check(good, alive=False) == ("dead-pid",)
    assert check(good, started=51) == ("recycled-pid",)
    assert check(good, started=None) == ()
    assert check(good | {"pid": "x"}) == ("missing-pid",)
    assert check(good | {"createdAt": "soon"}) == ("invalid-createdAt",)
    assert check({"pid": 1, "createdAt": iso(NOW)}) == ("orphan-self-pid",)
    assert check({}) == ("missing-pid", "invalid-createdAt")


def test_refreshing_rewrites_the_time_every_ten_minutes_only(session):
    lock = SessionLock(session)
    lock.acquire(NOW)
    assert lock.refresh(NOW + REFRESH_MS - 1)
    assert read_lock(lock.path)["createdAt"] == iso(NOW)
    assert lock.refresh(NOW + REFRESH_MS)
    assert read_lock(lock.path)["createdAt"] == iso(NOW + REFRESH_MS)


def test_a_stolen_lock_is_noticed_and_not_removed(session):
    lock = SessionLock(session)
    lock.acquire(NOW)
    lock.path.unlink()
    other = put(session, pid=1, createdAt=iso(NOW))
    assert not lock.refresh(NOW + REFRESH_MS)
    lock.release()
    assert other.exists()


def test_no_folder_to_lock_in_gives_one_clear_line(tmp_path):
    with pytest.raises(StorageFailed):
        SessionLock(tmp_path / "missing" / "s.jsonl").acquire(NOW)


@pytest.mark.parametrize("written", [0, OSError(errno.ENOSPC, "No space left on device")])
def test_a_lock_that_finds_no_room_is_one_line_and_leaves_none(session, monkeypatch, written):
    def refuse(_fd, _data):
        if isinstance(written, OSError):
            raise written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        lock = SessionLock(session)
        with pytest.raises(StorageFailed, match="make room"):
            lock.acquire(NOW)
        lock.release()
    assert os.listdir(session.parent) == []
    lock.acquire(NOW)
    lock.release()
