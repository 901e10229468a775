"""Segments: entries that truncation moved out, verbatim, in one verified and compressed file each.

`<session file>.segments/<n>-<digest>.segment`: blocks of about 256 KiB, an index, a footer. zlib, not
lzma: on recorded sessions lzma is a quarter smaller but reads four times and writes ten times slower,
and a segment is read in the middle of a turn (`recall`), one block for one entry: 2 to 3 ms.
Each block and the index carry a SHA-256; a segment is read back whole before its entries leave the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from perdure.edges import disk
from perdure.errors import UnreadableFile
from perdure.records import Record

MAGIC = b"PERDSEG1"
BLOCK = 256 * 1024
_FOOTER = struct.Struct("<QQ32s")


class Moved(Record):
    """One entry on its way into a segment: its id, where its line stood in the file, its bytes."""

    id: str
    offset: int
    raw: bytes


class SegmentInfo(Record):
    """A finished segment: file name, SHA-256 of the file, entries, their bytes, bytes on disk."""

    name: str
    digest: str
    entries: int
    raw_bytes: int
    size: int


class Place(Record):
    """Where an entry stands: block, begin and length inside it, and its offset in the old session file."""

    id: str
    block: int
    start: int
    length: int
    offset: int


class Block(Record):
    """Where a block stands in the segment, its sizes, and the SHA-256 of its bytes before compression."""

    start: int
    size: int
    raw: int
    digest: str


class Index(Record):
    """`reparented` are `(entry, its parent before)` of those that stayed: the file can be rebuilt.

    `bridges`: holes there were then, as (child, missing parent, what stands in for it). `covered`: which
    compaction covers the entries, as runs (id, how many); "" for those that no compaction covers.
    """

    session: str
    entries: tuple[Place, ...]
    blocks: tuple[Block, ...]
    reparented: tuple[tuple[str, str], ...] = ()
    v: int = 1
    bridges: tuple[tuple[str, str, str | None], ...] = ()
    covered: tuple[tuple[str, int], ...] = ()

    def covers(self, id: str) -> str | None:
        """The compaction that covers an entry, "" if none does, `None` where it was not written down."""
        at = next((n for n, place in enumerate(self.entries) if place.id == id), -1)
        for compaction, count in self.covered if at >= 0 else ():
            if at < count:
                return compaction
            at -= count
        return None


def folder(session: Path) -> Path:
    """Where the segments of a session file stand."""
    return session.with_name(f"{session.name}.segments")


def segments_of(session: Path) -> tuple[Path, ...]:
    """The segments of a session file, oldest first."""
    return tuple(sorted(folder(session).glob("*.segment")))


def write_segment(
    session: Path,
    entries: Iterable[Moved],
    *,
    session_id: str,
    reparented: tuple[tuple[str, str], ...] = (),
    bridges: tuple[tuple[str, str, str | None], ...] = (),
    covered: tuple[tuple[str, int], ...] = (),
    sync: bool,
) -> SegmentInfo:
    """Write a segment and read it back. Blocking. `OSError` (nothing left behind), `UnreadableFile`."""
    home = folder(session)
    home.mkdir(mode=0o700, exist_ok=True)
    temp = home / "new.tmp"
    try:
        disk.announce("open", temp)
        with temp.open("wb") as out:
            os.fchmod(out.fileno(), 0o600)
            about = Index(session_id, (), (), reparented, bridges=bridges, covered=covered)
            disk.announce("write", temp)
            index = _write(out.write, entries, about)
            if sync:
                out.flush()
                disk.fsync(out.fileno(), temp)
        found = Segment(temp)
        found.verify()
        data_digest = _file_digest(temp)
        name = f"{_next_number(home):04d}-{data_digest[:16]}.segment"
        disk.rename(temp, home / name)
        if sync:
            disk.sync_folder(home)
    finally:
        disk.unlink(temp, missing_ok=True)
    raw = sum(place.length for place in index.entries)
    return SegmentInfo(name, data_digest, len(index.entries), raw, (home / name).stat().st_size)


class Segment:
    """One segment, its index in memory. Raises `UnreadableFile` for what is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._latest = -1, b""  # the block that was read last: entries are asked for in their order
        self.index = self._index()
        self._places = {place.id: place for place in self.index.entries}

    def ids(self) -> tuple[str, ...]:
        """The entries in the order in which they stood in the file."""
        return tuple(place.id for place in self.index.entries)

    def read(self, id: str) -> bytes:
        """The bytes of one entry. `KeyError` if it is not in here."""
        place = self._places[id]
        return self._block(place.block)[place.start : place.start + place.length]

    def entries(self) -> Iterator[Moved]:
        """All entries, each block read once."""
        at, data = -1, b""
        for place in self.index.entries:
            if place.block != at:
                at, data = place.block, self._block(place.block)
            yield Moved(place.id, place.offset, data[place.start : place.start + place.length])

    def verify(self, digest: str | None = None) -> None:
        """Read everything back and compare; with `digest` the file as a whole, too."""
        if digest is not None and _file_digest(self.path) != digest:
            raise self._damaged("its content does not fit its digest")
        for number in range(len(self.index.blocks)):
            self._block(number)

    def _block(self, number: int) -> bytes:
        if number == self._latest[0]:
            return self._latest[1]
        block = self.index.blocks[number]
        with self.path.open("rb") as file:
            file.seek(block.start)
            packed = file.read(block.size)
        try:
            data = zlib.decompress(packed)
        except zlib.error as error:
            raise self._damaged(str(error)) from None
        if hashlib.sha256(data).hexdigest() != block.digest:
            raise self._damaged(f"block {number} does not fit its digest")
        self._latest = number, data
        return data

    def _index(self) -> Index:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < len(MAGIC) + _FOOTER.size:
                    raise self._damaged("it is too short")
                file.seek(size - _FOOTER.size)
                start, length, digest = _FOOTER.unpack(file.read(_FOOTER.size))
                file.seek(min(start, size))
                packed = file.read(min(length, size))
        except OSError as error:
            raise UnreadableFile(f"{self.path}: can't be read ({error.strerror})") from None
        if hashlib.sha256(packed).digest() != digest:
            raise self._damaged("its index does not fit its digest")
        try:
            return _decoded(zlib.decompress(packed))
        except (zlib.error, ValueError, msgspec.MsgspecError) as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, why: str) -> UnreadableFile:
        return UnreadableFile(f"{self.path}: the segment is damaged: {why}")


def _decoded(data: bytes) -> Index:
    try:
        return msgspec.json.decode(data, type=Index)
    except msgspec.DecodeError:  # an id of others with half a surrogate pair
        return msgspec.convert(json.loads(data), Index)


def find_entry(session: Path, id: str) -> bytes | None:
    """The bytes of an entry that was moved out of a session file, `None` if no segment has it."""
    for path in reversed(segments_of(session)):
        segment = Segment(path)
        if id in segment._places:
            return segment.read(id)
    return None


def search(session: Path, text: bytes, limit: int) -> list[Moved]:
    """Up to `limit` moved entries whose bytes hold `text`, newest first (case counts)."""
    found: list[Moved] = []
    for path in reversed(segments_of(session)):
        hits = [entry for entry in Segment(path).entries() if text in entry.raw]
        found += reversed(hits)
        if len(found) >= limit:
            break
    return found[:limit]


def discard(session: Path, name: str) -> int:
    """Delete one segment for good: an explicit act. Returns its size in bytes."""
    path = folder(session) / Path(name).name
    size = path.stat().st_size
    disk.unlink(path)
    return size


def _write(
    write: Callable[[bytes], int],
    entries: Iterable[Moved],
    about: Index,
) -> Index:
    places: list[Place] = []
    blocks: list[Block] = []
    at = write(MAGIC)
    pending = bytearray()

    def flush() -> int:
        packed = zlib.compress(pending, 6)
        blocks.append(Block(at, len(packed), len(pending), hashlib.sha256(pending).hexdigest()))
        pending.clear()
        return at + write(packed)

    for entry in entries:
        if pending and len(pending) + len(entry.raw) > BLOCK:
            at = flush()
        places.append(Place(entry.id, len(blocks), len(pending), len(entry.raw), entry.offset))
        pending += entry.raw
    if pending:
        at = flush()
    index = replace(about, entries=tuple(places), blocks=tuple(blocks))
    # the standard library's JSON: ids of others may hold lone surrogates
    packed = zlib.compress(json.dumps(msgspec.to_builtins(index)).encode(), 6)
    write(packed)
    write(_FOOTER.pack(at, len(packed), hashlib.sha256(packed).digest()))
    return index


def _next_number(home: Path) -> int:
    numbers = (path.name.split("-")[0] for path in home.glob("*-*.segment"))
    return max((int(n) for n in numbers if n.isdigit()), default=0) + 1


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
