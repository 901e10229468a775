"""Brings a file of version 1 or 2 to version 3, under the lock, before the first append; with a backup.

The ids it writes are those that reading derived (byte offsets), so what was known about the file before
stays true. Everything else in each entry survives byte for byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from perdure.context.truncation.dag import COMPACTION, Node
from perdure.edges import disk
from perdure.edges.session import splice, swap
from perdure.edges.session.load import Loaded, load
from perdure.errors import UnreadableFile

NEWEST = 3


def upgrade(path: Path, token: int, *, sync: bool) -> Path:
    """Rewrite the file as version 3; returns the backup `<file>.bak-v<version>`. Owner only; blocking."""
    loaded = load(path)
    if not loaded.header.good:
        raise UnreadableFile(
            f"{path}: has no good header, nor ids in its entries: put one before them by hand"
        )
    backup = _backup(path, loaded.header.version)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = loaded.file.size
        staged = swap.stage(path, fd, size, token, lambda out: out.writelines(upgraded(loaded)), sync=sync)
        swap.commit(path, fd, staged, sync=sync)
    finally:
        os.close(fd)
    return backup


def _backup(path: Path, version: int) -> Path:
    backup = path.with_name(f"{path.name}.bak-v{version}")
    if backup.exists():  # of an earlier, interrupted upgrade; the file itself is still the old one
        disk.unlink(backup)
    shutil.copy2(path, backup)
    return backup


def upgraded(loaded: Loaded) -> Iterator[bytes]:
    """The lines of an older version's file as version 3 has them."""
    yield _header(loaded) + b"\n"
    for node, raw in loaded.entries():
        yield _entry(node, raw, loaded.header.version) + b"\n"


def _header(loaded: Loaded) -> bytes:
    with Path(loaded.path).open("rb") as file:
        for line in file:
            if line.strip():
                return splice.put(line.strip().removeprefix(b"\xef\xbb\xbf"), "version", NEWEST)
    raise AssertionError("a file that was loaded has a first line")


def _entry(node: Node, raw: bytes, version: int) -> bytes:
    if version < 2:
        if node.type == COMPACTION and node.kept:
            raw = splice.put(raw, "firstKeptEntryId", node.kept)
        raw = splice.put(splice.put(raw, "parentId", node.parent), "id", node.id)
    return _role(raw) if node.type == "message" else raw


def _role(raw: bytes) -> bytes:
    """Version 2 called the role `custom` by another name."""
    span = splice.value_span(raw, "message")
    if span is None or not raw[span[0] : span[1]].startswith(b"{"):
        return raw
    message = raw[span[0] : span[1]]
    role = splice.value_span(message, "role")
    if role is None or message[role[0] : role[1]] != b'"hookMessage"':
        return raw
    return raw[: span[0]] + splice.put(message, "role", "custom") + raw[span[1] :]
