"""The doctor's hand: rewrites damaged lines, so that other programs read of the file what ours reads.

Recovered records get lines of their own; pieces that no record can be made of, repeated lines, NUL
padding and lines of an owner that had lost the file go; everything else is copied byte for byte. The
file as it was stays beside it. Nothing is put in its place unless every branch shows what it showed.
What only words could mend (a missing parent, a circle, evidence that is gone) is left and still told.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from perdure.context.truncation.dag import Node
from perdure.edges import disk
from perdure.edges.session import checks, swap
from perdure.edges.session.header import NEWEST, newer
from perdure.edges.session.heads import heads, whole
from perdure.edges.session.lines import iso
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.lock import SessionLock
from perdure.edges.session.problems import Problem
from perdure.edges.session.scan import Line, forward
from perdure.edges.session.upgrade import upgrade
from perdure.errors import StorageFailed, UnreadableFile
from perdure.records import Record

MENDED: Final = frozenset({"torn", "glued", "nul", "undecodable", "bad_header", "repeated", "stale_owner"})


class Mended(Record):
    """What was rewritten, and where the file as it was is kept; `backup` is empty if nothing had to be."""

    backup: str = ""
    fixed: tuple[Problem, ...] = ()


def mend(path: Path, now_ms: int, *, sync: bool = True) -> Mended:
    """Rewrite a damaged file under its lock. Blocking.

    Raises `Locked` (another program has the session), `UnreadableFile` (no session, or a view would
    change), `StorageFailed` (no room; the file is as it was).
    """
    lock = SessionLock(path)
    lock.acquire(now_ms)
    try:
        return _mend(path, now_ms, sync)
    except OSError as error:
        raise StorageFailed(f"{path}: not mended, it is as it was ({error.strerror})") from None
    finally:
        lock.release()


def _mend(path: Path, now_ms: int, sync: bool) -> Mended:
    loaded = load(path)
    if wrong := newer(loaded.header.version):
        raise UnreadableFile(f"{path}: {wrong}")
    damage = tuple(found for found in _damage(loaded) if found.kind in MENDED)
    if not damage:
        return Mended()
    if loaded.header.version < NEWEST:  # its ids are byte offsets: they are written down on the way
        return Mended(str(upgrade(path, now_ms, sync=sync)), damage)
    backup = _kept(path, now_ms)
    try:
        done = _rewrite(path, loaded, now_ms, sync)
    except BaseException:
        disk.unlink(backup)
        raise
    if not done:
        disk.unlink(backup)
        return Mended()
    left = {(found.kind, found.detail) for found in _damage(load(path))}
    return Mended(str(backup), tuple(found for found in damage if (found.kind, found.detail) not in left))


def _rewrite(path: Path, loaded: Loaded, now_ms: int, sync: bool) -> bool:
    """Whether anything changed. Repeated lines stay where a view rests on them (a hole is bridged by the
    order of lines).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for kept in (loaded.graph.by_id.values(), range(len(loaded.nodes))):
            starts = {loaded.nodes[at].start for at in kept}
            build = partial(_write, loaded, starts)
            staged = swap.stage(path, fd, loaded.file.size, now_ms, build, sync=sync)
            if _same(loaded, load(staged.temp)):
                if filecmp.cmp(staged.temp, path, shallow=False):
                    disk.unlink(staged.temp)
                    return False
                swap.commit(path, fd, staged, sync=sync)
                return True
            disk.unlink(staged.temp)
    finally:
        os.close(fd)
    raise UnreadableFile(f"{path}: mending would change what the session shows: left as it is")


def _damage(loaded: Loaded) -> Iterator[Problem]:
    yield from loaded.problems
    with loaded.reading():
        yield from checks.repeated(loaded)
        yield from checks.bodies(loaded, None)


def _kept(path: Path, now_ms: int) -> Path:
    """A copy of the file as it is; named by the moment, so that no earlier one is replaced."""
    moment = iso(now_ms).replace(":", "").replace("-", "")
    backup = path.with_name(f"{path.name}.bak-{moment}")
    shutil.copy2(path, backup)
    return backup


def _same(before: Loaded, after: Loaded) -> bool:
    """Whether every branch shows what it showed."""
    return _views(before) == _views(after) and before.opened().items == after.opened().items


def _views(loaded: Loaded) -> dict[str, tuple[str, ...]]:
    """The view of every leaf, by ids."""
    parents = {node.parent for node in loaded.nodes}
    leaves = {node.id for node in loaded.nodes if node.id not in parents}
    return {leaf: tuple(loaded.nodes[at].id for at in loaded.view(leaf).path) for leaf in leaves}


# --- the new file ---------------------------------------------------------------------------------


def _write(loaded: Loaded, starts: set[int], out: BinaryIO) -> None:
    """The header first, then every line: as it is, or the records that begin at `starts`, each on its own."""
    with Path(loaded.path).open("rb") as file:
        out.write(_header(loaded, file) + b"\n")
        for line in forward(file.fileno(), 0, loaded.file.size):
            for data in _records(line, starts):
                out.write(data + b"\n")


def _header(loaded: Loaded, file: BinaryIO) -> bytes:
    """The file's own where it is good, wherever it stands, else one made of what is known."""
    header = loaded.header
    if header.good:
        lines = forward(file.fileno(), 0, loaded.file.size)
        return next(d for line in lines for node, d in _pieces(line) if node.type == "session")
    fields = {"type": "session", "version": NEWEST, "id": header.id, "timestamp": header.timestamp}
    fields["cwd"] = header.cwd
    if header.parent_session is not None:
        fields["parentSession"] = header.parent_session
    return json.dumps(fields).encode()


def _records(line: Line, starts: set[int]) -> Iterator[bytes]:
    pieces = list(_pieces(line))
    yield from (data for node, data in pieces if node.type != "session" and node.start in starts)
    if not pieces and not line.lost and (not line.data.strip() or whole(line.data) is not None):
        yield line.data  # a blank line, or an object that is no entry: somebody's, and harmless


def _pieces(line: Line) -> Iterator[tuple[Node, bytes]]:
    """The records of a line; bytes that are no UTF-8 become what they are shown as."""
    found, _ = heads(line)
    for node in found:
        data = line.data[node.start - line.start : node.end - line.start]
        try:
            data.decode()
        except UnicodeDecodeError:
            data = data.decode("utf-8", "replace").encode()
        yield node, data
