"""Who owns a state folder: one host per shard, by `flock` on `<state>/shard.lock`.

The kernel gives the lock back when its process is gone and not before, so a paused host keeps it. The
file also holds the ownership counter: it rises with every start and is the epoch of all lines written
under it. Network file systems emulate appends and cache `stat`, which the writer's rule rests on: they
are refused unless forced.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from pathlib import Path
from typing import Any

from perdure.contracts import Grant
from perdure.edges import disk
from perdure.edges.session.ids import MOST
from perdure.errors import Locked, NewerState, StorageFailed

VERSION = 1  # of the state folder as a whole: what an older perdure must not touch raises it
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ncpfs", "davfs", "ceph", "gpfs", "lustre"),
        *("beegfs", "gfs2", "ocfs2", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs"),
        *("fuse.rclone", "fuse.gcsfuse", "fuse.davfs2", "fuse.juicefs"),
    }
)


class LocalGrant:
    """This process's ownership of one state folder. `valid` until it is released."""

    shard = 0

    def __init__(self, token: int, clean: bool) -> None:
        self.token, self.clean, self._held = token, clean, True

    def valid(self) -> bool:
        """True until `release`; never again afterwards."""
        return self._held

    def end(self) -> None:
        """Nothing may be acknowledged under this grant any more."""
        self._held = False


class LocalPlacement:
    """One shard: this state folder. Everything in it belongs to the process that made this object.

    Raises `Locked` (another host, named), `NewerState`, `StorageFailed` (the folder can't be used).
    `wall_ms` gives the counter a floor above every earlier one where the counter itself was lost.
    """

    def __init__(
        self,
        state: Path,
        *,
        wall_ms: int,
        node: str | None = None,
        boot: str | None = None,
        force: bool = False,
    ) -> None:
        self.node = node or platform.node() or "unknown"
        self.boot = boot or boot_id()
        self._path = state / "shard.lock"
        if not force:
            refuse_network(state)
        self._fd = self._take(state)
        try:
            self._grant = self._own(wall_ms)
        except BaseException:
            os.close(self._fd)
            raise

    def shard_of(self, key: str) -> int:
        """Every session lives in the one shard."""
        return 0

    def grant(self, shard: int) -> LocalGrant | None:
        """The grant of the shard, `None` for another one."""
        return self._grant if shard == 0 else None

    def outgrow(self, epoch: int) -> None:
        """Count on from above `epoch`: a file that was brought here had a higher one.

        Nobody else can own this folder, so raising the counter harms no one.
        """
        if epoch >= self._grant.token:
            self._grant.token = epoch + 1
            self._write(clean=False)

    async def release(self, grant: Grant, *, clean: bool) -> None:
        """Give the folder back; `clean`: every file was closed properly."""
        self.close(clean=clean)

    def close(self, *, clean: bool) -> None:
        """As `release`, without a loop."""
        if self._fd < 0:
            return
        self._grant.end()
        try:
            self._write(clean=clean)
        finally:
            os.close(self._fd)
            self._fd = -1

    def _take(self, state: Path) -> int:
        try:
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = disk.open_(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageFailed(
                f"{state}: the state folder can't be used ({error.strerror}): correct its rights, "
                "or choose another with --state"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _read(fd)
            os.close(fd)
            raise _refused(state, holder, self.boot) from None
        return fd

    def _own(self, wall_ms: int) -> LocalGrant:
        before = _read(self._fd)
        if isinstance(version := before.get("v"), int) and version > VERSION:
            raise NewerState(str(self._path), f"state folder version {version}", VERSION)
        counter = before.get("epoch")
        if isinstance(counter, int) and 0 <= counter <= MOST // 2:
            grant = LocalGrant(counter + 1, before.get("clean") is True)
        elif _has_sessions(self._path.parent):
            grant = LocalGrant(wall_ms // 1000, clean=False)  # the counter was lost
        else:
            grant = LocalGrant(1, clean=True)
        self._grant = grant
        self._write(clean=False)
        return grant

    def _write(self, *, clean: bool) -> None:
        record = {
            "v": VERSION,
            "epoch": self._grant.token,
            "clean": clean,
            "node": self.node[:100],
            "boot": self.boot,
            "pid": os.getpid(),
        }
        data = json.dumps(record).encode().ljust(511) + b"\n"  # one sector: never half old, half new
        try:
            disk.pwrite(self._fd, data, 0, self._path)
            disk.fsync(self._fd, self._path)
        except OSError as error:
            raise StorageFailed(f"{self._path}: can't be written ({error.strerror}): make room") from None


def boot_id() -> str:
    """Tells one start of the machine from the next; `unknown` where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    """Raises `StorageFailed` if `folder` lies on a network file system."""
    found = file_system(folder, mounts)
    if found in NETWORK:
        raise StorageFailed(
            f"{folder}: lies on a network file system ({found}), where appends of two machines overwrite "
            "each other: choose a local folder with --state, or force it"
        )


def file_system(folder: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `folder` (its nearest existing parent), `""` if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(errors="surrogateescape")
        except OSError:
            return ""
    real, best, kind = os.path.realpath(folder), -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        inside = point == "/" or real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # the later of two mounts on one point hides the earlier
            best, kind = len(point), fields[2]
    return kind


def _unescape(text: str) -> str:
    for code in ("040", "011", "012", "134"):
        text = text.replace("\\" + code, chr(int(code, 8)))
    return text


def _read(fd: int) -> dict[str, Any]:
    try:
        record = json.loads(os.pread(fd, 4096, 0))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _refused(state: Path, holder: dict[str, Any], boot: str) -> Locked:
    if holder.get("boot") == boot and boot != "unknown":
        served = "" if (state / "serve.json").exists() else ", and it serves no API (no serve.json)"
        return Locked(
            f"{state}: held by a host on this machine (node {holder.get('node')}, boot {boot}, "
            f"pid {holder.get('pid')}){served}: stop it first"
        )
    who = ", ".join(f"{name} {holder.get(name, 'unknown')}" for name in ("node", "boot", "pid"))
    return Locked(f"{state}: held by another host ({who}): stop it first")


def _has_sessions(state: Path) -> bool:
    return any((state / "sessions").glob("*/**/*.jsonl"))
