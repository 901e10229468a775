"""What stands in a journal's segment: a header of one sector, then records until the first that is torn.

    {"v":1,"salt":…,"boot":…,"volume":…}   padded to 511 bytes, newline
    crc32(salt) u32 · sequence u64 · offset u64 · kind u8 · key length u16 · data length u32 · key · data

The key is the session file's path below the state folder. Little-endian. The random salt keeps records of
an earlier use of the same blocks from passing for new ones; the sequence does so inside a segment.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from perdure.errors import NewerState
from perdure.records import Record

VERSION: Final = 1
HEADER: Final = 512
Kind: TypeAlias = Literal["append", "create", "barrier"]
KINDS: Final[tuple[Kind, ...]] = ("append", "create", "barrier")
_FIXED = struct.Struct("<QQBHI")
_CRC = struct.Struct("<I")


class Logged(Record):
    """One record. `append`: bytes at an offset. `create`: the first bytes of a new file. `barrier`: the file
    is durable as it is, or gone on purpose; what the journal says of it before is void.
    """

    seq: int
    kind: Kind
    key: str
    offset: int = 0
    data: bytes = b""


class Identity(Record):
    """Which start of the machine, and which volume as it is mounted now. After a change of either the
    page cache that held unsynced bytes is gone.
    """

    boot: str
    volume: str


class SegmentHeader(Record):
    """Who wrote a segment."""

    salt: int
    identity: Identity


def identity(folder: Path, boot: str) -> Identity:
    """Of this moment. A volume that was detached and came back has another mount id."""
    return Identity(boot, f"{folder.stat().st_dev}:{_mount_id(folder)}")


def _mount_id(folder: Path) -> str:
    try:
        rows = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    real, best, found = os.path.realpath(folder), -1, ""
    for row in rows:
        fields = row.split(" ")
        point = fields[4] if len(fields) > 4 else ""
        inside = point == "/" or real == point or real.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= best:
            best, found = len(point), fields[0]
    return found


def header(salt: int, who: Identity) -> bytes:
    """The first sector."""
    told = {"v": VERSION, "salt": salt, "boot": who.boot, "volume": who.volume}
    return json.dumps(told).encode().ljust(HEADER - 1) + b"\n"


def read_header(path: Path, data: bytes) -> SegmentHeader | None:
    """`None` where there is none: it was synced before the first record, so none was acknowledged.

    Raises `NewerState`.
    """
    try:
        told = json.loads(data[:HEADER])
        version, salt = told["v"], told["salt"]
        who = Identity(str(told.get("boot", "")), str(told.get("volume", "")))
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(version, int) and version > VERSION:
        raise NewerState(str(path), f"journal version {version}", VERSION)
    return SegmentHeader(salt, who) if isinstance(salt, int) else None


def encode(record: Logged, salt: int) -> bytes:
    """The bytes of a record."""
    key = os.fsencode(record.key)
    fixed = _FIXED.pack(record.seq, record.offset, KINDS.index(record.kind), len(key), len(record.data))
    crc = zlib.crc32(record.data, zlib.crc32(key, zlib.crc32(fixed, salt)))
    return b"".join((_CRC.pack(crc), fixed, key, record.data))


def decode(data: bytes, salt: int) -> Iterator[Logged]:
    """The records of a segment, until the first that is not whole or not the next."""
    at, wanted = HEADER, None
    view = memoryview(data)
    while at + _CRC.size + _FIXED.size <= len(data):
        (crc,), start = _CRC.unpack_from(data, at), at + _CRC.size
        seq, offset, kind, key_length, length = _FIXED.unpack_from(data, start)
        body = start + _FIXED.size
        end = body + key_length + length
        if end > len(data) or zlib.crc32(view[start:end], salt) != crc:
            return
        if wanted not in (None, seq) or kind >= len(KINDS):
            return
        key = os.fsdecode(data[body : body + key_length])
        yield Logged(seq, KINDS[kind], key, offset, data[body + key_length : end])
        at, wanted = end, seq + 1
