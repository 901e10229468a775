import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_files import HEADER, FakeGrant, child, entry, held
from perdure.edges.session import writer as module
from perdure.edges.session.writer import ForeignWrite
from perdure.errors import Fenced, StorageFailed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.jsonl"


def descriptors(path):
    names = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(name) == str(path) for name in names)


def test_lines_stand_in_the_file_in_order_and_the_ack_says_where(path):
    file = held(path)
    first = file.append([entry(0)])
    second = file.append([entry(1), entry(2)])
    assert path.read_bytes() == HEADER + entry(0) + entry(1) + entry(2)
    assert (first.offset, first.size) == (len(HEADER), len(HEADER + entry(0)))
    assert (second.offset, second.size) == (first.size, path.stat().st_size)


def test_an_append_never_glues_to_a_torn_last_line(path):
    path.write_bytes(HEADER + entry(0)[:-10])
    ack = held(path).append([entry(1)])
    assert path.read_bytes() == HEADER + entry(0)[:-10] + b"\n" + entry(1)
    assert ack.offset == len(HEADER + entry(0)[:-10]) + 1


@pytest.mark.parametrize("lines", [[], [b""], [b"{}"], [b"{}\n{}\n"], [b"{}\n", b"x"]])
def test_what_is_not_whole_lines_is_refused(path, lines):
    with pytest.raises(ValueError):
        held(path).append(lines)
    assert path.read_bytes() == HEADER


def test_an_idle_file_owns_no_descriptor_and_goes_on_afterwards(path):
    file = held(path)
    file.append([entry(0)])
    assert descriptors(path) == 1
    file.release()
    assert descriptors(path) == 0
    file.append([entry(1)])
    assert path.read_bytes() == HEADER + entry(0) + entry(1)


def test_a_foreign_append_is_told_before_anything_is_written(path):
    file = held(path)
    file.append([entry(0)])
    with path.open("ab") as other:
        other.write(entry(1))
    with pytest.raises(ForeignWrite) as told:
        file.append([entry(2)])
    assert path.read_bytes() == HEADER + entry(0) + entry(1)
    file.adopt(told.value.now, path.stat().st_ino)
    file.append([entry(2)])
    assert path.read_bytes().endswith(entry(1) + entry(2))


def test_a_foreign_edit_of_the_same_size_is_told_after_idling(path):
    file = held(path)
    file.append([entry(0)])
    file.release()
    path.write_bytes(HEADER + entry(0, text="ho"))
    os.utime(path, ns=(1, 1))
    with pytest.raises(ForeignWrite):
        file.append([entry(1)])


def test_a_foreign_cut_is_told_not_papered_over(path):
    file = held(path)
    file.append([entry(0)])
    os.truncate(path, len(HEADER))
    with pytest.raises(ForeignWrite):
        file.append([entry(1)])


def test_foreign_bytes_between_look_and_write_are_reported_and_ours_stand_behind(path, monkeypatch):
    reports = []
    file = held(path, on_foreign=lambda was, now: reports.append((was, now)))
    file.append([entry(0)])
    real = os.write

    def late(fd, data):
        with path.open("ab", buffering=0) as other:
            real(other.fileno(), entry(7))
        return real(fd, data)

    monkeypatch.setattr(module.os, "write", late)
    ack = file.append([entry(1)])
    monkeypatch.undo()
    assert len(reports) == 1
    assert path.read_bytes() == HEADER + entry(0) + entry(7) + entry(1)
    assert path.read_bytes()[ack.offset : ack.size] == entry(1)


def test_a_new_inode_before_the_write_fences(path):
    file = held(path)
    file.append([entry(0)])
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)
    with pytest.raises(Fenced):
        file.append([entry(1)])
    assert path.read_bytes() == HEADER + entry(0)
    with pytest.raises(Fenced):  # for good
        file.append([entry(1)])


def test_a_new_inode_between_write_and_look_means_no_acknowledgement(path, monkeypatch):
    file = held(path)
    file.append([entry(0)])
    real = os.write

    def paused(fd, data):
        done = real(fd, data)
        other = path.with_name("other")
        other.write_bytes(HEADER)
        other.rename(path)
        return done

    monkeypatch.setattr(module.os, "write", paused)
    with pytest.raises(Fenced):
        file.append([entry(1)])


def test_a_grant_lost_before_or_during_the_write_means_no_acknowledgement(path, monkeypatch):
    grant = FakeGrant()
    file = held(path, grant)
    real = os.write

    def paused(fd, data):
        grant.held = False
        return real(fd, data)

    monkeypatch.setattr(module.os, "write", paused)
    with pytest.raises(Fenced):
        file.append([entry(0)])
    with pytest.raises(Fenced):
        held(path, grant).append([entry(0)])


def test_a_removed_file_fences(path):
    file = held(path)
    path.unlink()
    with pytest.raises(Fenced):
        file.append([entry(0)])


@pytest.mark.parametrize("keep", [0, 1, 20])
def test_a_short_write_is_cut_back_and_the_next_append_works(path, monkeypatch, keep):
    file = held(path)
    file.append([entry(0)])
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda fd, data: real(fd, data[:keep]))
    with pytest.raises(StorageFailed) as told:
        file.append([entry(1)])
    monkeypatch.undo()
    assert "\n" not in str(told.value)
    assert path.read_bytes() == HEADER + entry(0)
    file.append([entry(1)])
    assert path.read_bytes() == HEADER + entry(0) + entry(1)


def test_a_failed_write_acknowledges_nothing(path, monkeypatch):
    file = held(path)

    def broken(fd, data):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module.os, "write", broken)
    with pytest.raises(StorageFailed):
        file.append([entry(0)])
    monkeypatch.undo()
    file.append([entry(0)])
    assert path.read_bytes() == HEADER + entry(0)


def test_a_piece_that_could_not_be_cut_at_once_is_cut_before_the_next_append(path, monkeypatch):
    file = held(path)
    real = os.write

    def broken(fd, size):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module.os, "write", lambda fd, data: real(fd, data[:9]))
    monkeypatch.setattr(module.os, "ftruncate", broken)
    with pytest.raises(StorageFailed):
        file.append([entry(0)])
    assert path.stat().st_size == len(HEADER) + 9
    monkeypatch.undo()
    file.append([entry(1)])
    assert path.read_bytes() == HEADER + entry(1)


FULL_DISK = """
import os, resource, sys
from pathlib import Path
from helpers_files import HEADER, entry, held
from perdure.errors import StorageFailed
path = Path(sys.argv[1])
file = held(path)
file.append([entry(0)])
full = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (full + 40, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        file.append([entry(1)])
    except StorageFailed as error:
        assert path.stat().st_size == full, path.stat().st_size
    else:
        raise SystemExit("it was acknowledged")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.append([entry(1)])
assert path.read_bytes() == HEADER + entry(0) + entry(1)
print("whole")
"""


def test_on_a_full_disk_the_file_stays_whole_and_appends_work_again_when_there_is_room(path):
    assert child(FULL_DISK, str(path)) == "whole\n"


READ_ONLY = """
import os, sys
from pathlib import Path
from helpers_files import entry, held
from perdure.errors import StorageFailed
path = Path(sys.argv[1])
file = held(path)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    file.append([entry(0)])
except StorageFailed as error:
    print(error)
"""


def test_a_file_without_write_rights_gets_one_clear_line(path):
    path.write_bytes(HEADER)
    path.chmod(0o444)
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_mode & 0o5 != 0o5 and folder.owner() == path.owner():
            folder.chmod(0o755)
    told = child(READ_ONLY, str(path))
    assert "Permission denied" in told
    assert told.count("\n") == 1
    assert path.read_bytes() == HEADER


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_a_cut_at_any_byte_costs_no_whole_line_before_it_and_doubles_none(tmp_path_factory, sizes, data):
    path = tmp_path_factory.mktemp("cut") / "s.jsonl"
    file, n = held(path), 0
    ends = {}
    for size in sizes:
        batch = [entry(n + i, text="ü" * (n + i)) for i in range(size)]
        ack = file.append(batch)
        at = ack.offset
        for line in batch:
            at += len(line)
            ends[at] = line
        n += size
    cut = data.draw(st.integers(len(HEADER), ack.size))
    os.truncate(path, cut)
    held(path).append([entry(99)])
    after = path.read_bytes().split(b"\n")
    whole = [line[:-1] for end, line in ends.items() if end - 1 <= cut]  # all but its newline is enough
    assert after[1 : 1 + len(whole)] == whole
    assert after[-2:] == [entry(99)[:-1], b""]
    assert len(after) <= 1 + len(whole) + 1 + 2  # header, whole lines, at most one torn, ours, the end
