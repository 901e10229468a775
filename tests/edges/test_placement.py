import json
import os

import pytest

from helpers_files import child
from perdure.edges.placement import LocalPlacement, file_system, refuse_network
from perdure.errors import Locked, StorageFailed

NOW = 1_790_000_000_000


def owned(state, **more):
    return LocalPlacement(state, wall_ms=NOW, node="here", boot="b-1", **more)


def test_every_start_has_a_higher_token_and_knows_how_the_last_one_ended(tmp_path):
    seen = []
    for clean in (True, False, True):
        placement = owned(tmp_path)
        grant = placement.grant(0)
        seen.append((grant.token, grant.clean))
        placement.close(clean=clean)
    last = owned(tmp_path).grant(0)
    assert [*seen, (last.token, last.clean)] == [(1, True), (2, True), (3, False), (4, True)]


def test_a_second_host_is_refused_with_node_boot_id_and_pid_of_the_first(tmp_path):
    first = owned(tmp_path)
    with pytest.raises(Locked) as told:
        owned(tmp_path)
    assert f"node here, boot b-1, pid {os.getpid()}" in str(told.value)
    assert "\n" not in str(told.value)
    first.close(clean=True)
    owned(tmp_path).close(clean=True)


def test_a_killed_host_gives_the_folder_back_uncleanly(tmp_path):
    code = """
import os, signal, sys
from pathlib import Path
from perdure.edges.placement import LocalPlacement
kept = LocalPlacement(Path(sys.argv[1]), wall_ms=0)
print(kept.grant(0).token, flush=True)
"""
    assert child(code, str(tmp_path)) == "1\n"
    grant = owned(tmp_path).grant(0)
    assert (grant.token, grant.clean) == (2, False)


def test_a_grant_is_never_valid_again_after_its_release(tmp_path):
    placement = owned(tmp_path)
    grant = placement.grant(0)
    assert grant.valid()
    placement.close(clean=True)
    assert not grant.valid()
    assert placement.grant(1) is None


@pytest.mark.parametrize("left", [b"", b"\0" * 512, b"garbage", b"[" * 4096, b'{"epoch": %d}' % (2**70)])
def test_a_lost_counter_goes_on_above_every_earlier_one(tmp_path, left):
    (tmp_path / "sessions" / "main").mkdir(parents=True)
    (tmp_path / "sessions" / "main" / "a.jsonl").touch()
    (tmp_path / "shard.lock").write_bytes(left)
    grant = owned(tmp_path).grant(0)
    assert (grant.token, grant.clean) == (NOW // 1000, False)


def test_the_counter_can_outgrow_a_file_that_was_brought_here(tmp_path):
    placement = owned(tmp_path)
    placement.outgrow(57)
    assert placement.grant(0).token == 58
    placement.outgrow(5)
    assert json.loads((tmp_path / "shard.lock").read_bytes())["epoch"] == 58


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local ext4 rw 0 0
tmpfs /mnt/a\\040b tmpfs rw 0 0
server:/x /mnt/a\\040b fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/local/x", "ext4"),
        ("/mnt/a b/c", "fuse.sshfs"),
        ("/homer", "ext4"),
    ],
)
def test_the_innermost_and_latest_mount_tells_the_file_system(folder, kind, tmp_path):
    assert file_system(tmp_path.__class__(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused_by_name(tmp_path):
    with pytest.raises(StorageFailed, match="nfs4"):
        refuse_network(tmp_path.__class__("/home/me"), MOUNTS)
    refuse_network(tmp_path.__class__("/srv"), MOUNTS)


def test_a_state_folder_that_is_a_file_gives_one_clear_line(tmp_path):
    (tmp_path / "state").touch()
    with pytest.raises(StorageFailed) as told:
        owned(tmp_path / "state")
    assert "\n" not in str(told.value)
