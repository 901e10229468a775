import os

import pytest

from helpers_files import HEADER, FakeGrant, entry, held
from perdure.edges.session import swap
from perdure.edges.session.writer import ForeignWrite
from perdure.errors import Fenced, StorageFailed


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER + entry(0))
    return path


def writes(data):
    return lambda out: out.write(data)


def names(path):
    return sorted(os.listdir(path.parent))


def test_a_rewrite_makes_a_new_inode_with_the_same_rights_and_leaves_nothing_beside_it(path):
    path.chmod(0o640)
    before = path.stat()
    file = held(path)
    ack = file.replace(writes(HEADER + entry(5)))
    after = path.stat()
    assert path.read_bytes() == HEADER + entry(5)
    assert (after.st_mode, ack.size) == (before.st_mode, after.st_size)
    assert after.st_ino != before.st_ino
    assert names(path) == ["s.jsonl"]
    file.append([entry(6)])
    assert path.read_bytes() == HEADER + entry(5) + entry(6)


def test_lines_appended_while_a_rewrite_is_built_follow_it(path):
    file = held(path)
    base = file.size
    staged = file.stage(writes(HEADER), base)
    file.append([entry(1)])
    file.append([entry(2)])
    file.commit(staged)
    assert path.read_bytes() == HEADER + entry(1) + entry(2)


def test_foreign_lines_that_come_during_a_rewrite_are_carried_over_and_reported(path):
    reports = []
    file = held(path, on_foreign=lambda was, now: reports.append((was, now)))

    def build(out):
        out.write(HEADER)
        with path.open("ab") as other:
            other.write(entry(8))

    file.replace(build)
    assert path.read_bytes() == HEADER + entry(8)
    assert reports == [(len(HEADER), len(HEADER + entry(8)))]


def test_a_rewrite_of_a_file_that_was_cut_meanwhile_is_refused(path):
    file = held(path)
    staged = file.stage(writes(HEADER), file.size)
    os.truncate(path, 10)
    with pytest.raises(ForeignWrite):
        file.commit(staged)
    assert names(path) == ["s.jsonl"]


def test_a_rewrite_that_fails_leaves_the_file_as_it_was(path):
    file = held(path)

    def build(out):
        out.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageFailed):
        file.replace(build)
    assert path.read_bytes() == HEADER + entry(0)
    assert names(path) == ["s.jsonl"]
    file.append([entry(1)])


def test_a_fenced_owner_can_not_rewrite_either(path):
    old, grant = held(path), FakeGrant()
    swap.take_over(path, 2, sync=False)
    with pytest.raises(Fenced):
        old.replace(writes(HEADER))
    grant.held = False
    with pytest.raises(Fenced):
        held(path, grant).replace(writes(HEADER))
    assert path.read_bytes() == HEADER + entry(0)


def test_a_take_over_finds_a_torn_line_and_ends_it(path):
    with path.open("ab") as out:
        out.write(entry(1)[:20])
    swap.take_over(path, 2, sync=False)
    assert path.read_bytes() == HEADER + entry(0) + entry(1)[:20] + b"\n"


def test_a_line_that_is_half_written_during_the_copy_is_whole_after_it(path, monkeypatch):
    """The reader of a file may see the first half of a write that will be acknowledged."""
    with path.open("ab", buffering=0) as out:
        out.write(entry(1)[:20])
        real = swap.stage

        def slow(*args, **more):
            staged = real(*args, **more)
            out.write(entry(1)[20:] + entry(2))
            return staged

        monkeypatch.setattr(swap, "stage", slow)
        swap.take_over(path, 2, sync=False)
    assert path.read_bytes() == HEADER + entry(0) + entry(1) + entry(2)


class Crash(BaseException):
    pass


def crash(*args, **more):
    raise Crash


@pytest.mark.parametrize("written", [0, 5, 10_000])
def test_a_crash_between_rename_and_re_read_loses_nothing_of_the_old_inode(path, monkeypatch, written):
    late = entry(1) + entry(2)

    def dies(old_fd, base, new_fd, path, *, sync):
        os.write(new_fd, late[:written])
        raise Crash

    real = os.rename

    def rename(old, new):
        with path.open("ab", buffering=0) as out:  # the last moment at which the old owner is acknowledged
            out.write(late)
        real(old, new)

    monkeypatch.setattr(swap, "_carry", dies)
    monkeypatch.setattr(swap.os, "rename", rename)
    with pytest.raises(Crash):
        swap.take_over(path, 2, sync=False)
    monkeypatch.undo()
    swap.finish(path, sync=False)
    assert path.read_bytes() == HEADER + entry(0) + late
    assert names(path) == ["s.jsonl"]
    swap.finish(path, sync=False)
    assert path.read_bytes() == HEADER + entry(0) + late


def test_a_crash_before_the_rename_leaves_the_file_alone(path, monkeypatch):
    monkeypatch.setattr(swap.os, "rename", crash)
    with pytest.raises(Crash):
        swap.take_over(path, 2, sync=False)
    monkeypatch.undo()
    swap.finish(path, sync=False)
    assert path.read_bytes() == HEADER + entry(0)


def test_a_full_disk_after_the_rename_is_completed_by_the_next_append(path, monkeypatch):
    file = held(path)
    staged = file.stage(writes(HEADER), file.size)
    file.append([entry(1)])

    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(swap, "_carry", full)
    with pytest.raises(StorageFailed):
        file.commit(staged)
    monkeypatch.undo()
    file.append([entry(2)])
    assert path.read_bytes() == HEADER + entry(1) + entry(2)
    assert names(path) == ["s.jsonl"]
