"""What was decided, one line each, beside the database: summaries, and payloads shown as notes.

The database is a projection: lost, it is made again of the session's own history and this file. A line is
written before its transaction is committed; a line that is torn, or not ours, ends the file. One session,
one file, only appended to.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import msgspec

from perdure.edges import disk
from perdure.edges.sqlite import failures
from perdure.plugins.engines.lossless.pieces import Node
from perdure.records import Record


class Stubs(Record):
    """These entries are shown as the notes of their payloads from now on."""

    entries: tuple[str, ...]


Line: TypeAlias = Node | Stubs


class _Wire(Record):
    crc: int
    node: msgspec.Raw = msgspec.Raw(b"null")
    stubs: msgspec.Raw = msgspec.Raw(b"null")


class Journal:
    """The journal of the session `id` in `folder`. Calls block and raise `StorageFailed`."""

    def __init__(self, folder: Path, id: str, *, sync: bool) -> None:
        name = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path, self._sync = folder / f"{name}.jsonl", sync

    def size(self) -> int:
        """Bytes; 0 where there is none."""
        with failures(self.path):
            return self.path.stat().st_size if self.path.exists() else 0

    def read(self, start: int = 0) -> tuple[tuple[int, Line], ...]:
        """Lines behind byte `start`, each with the place behind it; up to the first that is not whole."""
        with failures(self.path):
            data = self.path.read_bytes()[start:] if self.path.exists() else b""
        found: list[tuple[int, Line]] = []
        for raw in data.splitlines(keepends=True):
            line = _decoded(raw) if raw.endswith(b"\n") else None
            if line is None:
                break
            start += len(raw)
            found.append((start, line))
        return tuple(found)

    def append(self, line: Line, at: int) -> int:
        """Write a line at byte `at`, durably; where the next one begins. What stood behind `at` is cut."""
        data = _encoded(line)
        with failures(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = disk.open_(self.path, os.O_RDWR | os.O_CREAT)
            try:
                disk.truncate(fd, at, self.path)
                disk.pwrite_all(fd, data, at, self.path)
                if self._sync:
                    disk.fdatasync(fd, self.path)
            except OSError:
                os.ftruncate(fd, at)
                raise
            finally:
                os.close(fd)
        return at + len(data)

    def remove(self) -> None:
        """Delete it; one that is not there is fine."""
        with failures(self.path):
            if self.path.exists():
                disk.unlink(self.path)


def _encoded(line: Line) -> bytes:
    body = msgspec.json.encode(line)
    name = b"node" if isinstance(line, Node) else b"stubs"
    return b'{"crc":%d,"%s":%s}\n' % (crc32(body), name, body)


def _decoded(raw: bytes) -> Line | None:
    try:
        wire = msgspec.json.decode(raw, type=_Wire)
        body = bytes(wire.node)
        if body != b"null":
            return msgspec.json.decode(body, type=Node) if crc32(body) == wire.crc else None
        body = bytes(wire.stubs)
        return msgspec.json.decode(body, type=Stubs) if crc32(body) == wire.crc else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
