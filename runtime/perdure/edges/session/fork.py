"""Forking: a new session file with the whole path from the root to one entry of another.

Entries keep their ids and bytes; what truncation moved out of the source stands in the new file again, so
that it needs no file of the other session. Letters don't come along: the header's session id is another,
and who wrote to the first session gets no second answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perdure.edges import disk
from perdure.edges.session import lines, splice, tolerant
from perdure.edges.session.branching import waits
from perdure.edges.session.copying import checkpoint_of, of_view
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.kin import ChildGrant, Fact
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.lock import SessionLock
from perdure.errors import StorageFailed, UnreadableFile, UsageError


def fork(
    files: SessionFiles,
    source: Loaded,
    leaf: str,
    key: str,
    epoch: int,
    now_ms: int,
    *,
    sync: bool,
    grant: ChildGrant | None = None,
) -> Path:
    """Make the session of `key` from the path to `leaf`. The whole file at once, or none.

    `grant`: it is a subagent's from then on.

    Raises `UsageError` if there is one, `SegmentGone`, `Locked`, `StorageFailed`. Blocking.
    """
    path = files.path(key)
    if files.exists(key):
        raise UsageError(f"{key}: the session exists already ({path}): choose another key")
    lock = SessionLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(now_ms)
        _write(files, source, leaf, path, key, epoch, now_ms, sync=sync, grant=grant)
    except OSError as error:
        raise StorageFailed(f"{path}: can't be made ({error.strerror})") from None
    finally:
        lock.release()
    return path


def _write(
    files: SessionFiles,
    source: Loaded,
    leaf: str,
    path: Path,
    key: str,
    epoch: int,
    now_ms: int,
    *,
    sync: bool,
    grant: ChildGrant | None,
) -> None:
    temp = path.with_name(f"{path.name[:180]}.{epoch:x}.tmp")
    try:
        with temp.open("xb") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(
                lines.header_line(
                    files.ids.session(now_ms, key),
                    now_ms,
                    source.header.cwd,
                    os.path.abspath(source.path),
                )
            )
            out.writelines(_path(source, leaf))
        _finish(files, source, leaf, temp, epoch, now_ms)
        if grant is not None:
            made, fact = load(temp), Fact(grant.run, own=True, grant=grant)
            id, end = files.ids.entry(now_ms), made.opened(decode=False).leaf
            _append(temp, lines.child_line(id, end, now_ms, made.header.id, epoch, fact))
        if sync:
            disk.sync_file(temp)
        disk.rename(temp, path)
        if sync:
            disk.sync_folder(path.parent)
    finally:
        disk.unlink(temp, missing_ok=True)


def _path(source: Loaded, leaf: str) -> Iterator[bytes]:
    """The entries from the root to `leaf`, linked as they were at first."""
    past = source.past
    before: str | None = None
    for at in past.view(leaf).path:
        node = past.graph.nodes[at]
        raw = past.read(node)
        if node.parent != before and (node.parent is None or node.parent in past.graph.by_id or past.lost):
            raw = splice.put(raw, "parentId", before)  # a line of ours between them is left out
        elif node.parent != _written(raw):
            raw = splice.put(raw, "parentId", node.parent)
        if node.type == "message" and node.epoch >= 0:
            raw = _without_letter(raw)
        yield raw + b"\n"
        before = node.id


def _written(raw: bytes) -> str | None:
    value = tolerant.loads(raw)
    parent = value.get("parentId") if isinstance(value, dict) else None
    return parent if isinstance(parent, str) else None


def _without_letter(raw: bytes) -> bytes:
    found = tolerant.loads(bytes(decode_entry(raw).perdure) or b"{}")
    if not isinstance(found, dict) or "inbox" not in found:
        return raw
    return splice.put(raw, "perdure", {name: value for name, value in found.items() if name != "inbox"})


def _finish(files: SessionFiles, source: Loaded, leaf: str, temp: Path, epoch: int, now_ms: int) -> None:
    """Name, labels and a checkpoint; then the new file is read, and shows the same."""
    made, expected = load(temp), source.opened(leaf)
    known = source.known().name
    rows = _labels(files, source, made, leaf, epoch, now_ms)
    if known and made.known().name != known:
        parent = rows[-1][0] if rows else leaf
        id = files.ids.entry(now_ms)
        rows.append((id, lines.session_info_line(id, parent, now_ms, known, epoch)))
    _append(temp, *(row for _, row in rows))
    opened = load(temp).opened()
    if [item for item in opened.items if item.entry] != [item for item in expected.items if item.entry]:
        raise UnreadableFile(f"{source.path}: damage stands in the way; `perdure doctor` says more")
    if made.nodes[-1].type == "compaction" and not rows:
        return  # nothing of ours follows one
    record = checkpoint_of(opened, epoch, of_view(source.past.decisions(), opened.items))
    _append(temp, lines.checkpoint_line(files.ids.entry(now_ms), opened.leaf, now_ms, record))
    if opened.items and waits(opened.items[-1]):
        entry, id = opened.items[-1].entry, files.ids.entry(now_ms)
        _append(temp, lines.resume_line(id, opened.leaf, now_ms, entry, epoch, never=True))


def _labels(
    files: SessionFiles, source: Loaded, made: Loaded, leaf: str, epoch: int, now_ms: int
) -> list[tuple[str, bytes]]:
    """Labels that stand, or were taken away, on other branches."""
    rows: list[tuple[str, bytes]] = []
    wanted, there = source.labels(), made.labels()
    for target in sorted(there.keys() | (wanted.keys() & made.graph.by_id.keys())):
        if wanted.get(target) != there.get(target):
            id, parent = files.ids.entry(now_ms), rows[-1][0] if rows else leaf
            rows.append((id, lines.label_line(id, parent, now_ms, target, wanted.get(target), epoch)))
    return rows


def _append(temp: Path, *rows: bytes) -> None:
    fd = disk.open_(temp, os.O_WRONLY | os.O_APPEND)
    try:
        disk.write_all(fd, b"".join(rows), temp)
    finally:
        os.close(fd)
