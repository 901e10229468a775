"""Session files and blobs. A receipt means "in the owner's session file"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol

from perdure.records import Record

if TYPE_CHECKING:  # the pure core imports this package, and no path
    from pathlib import Path


class Ack(Record):
    """Proof that lines are in the file this owner still holds. `offset` is where the first begins."""

    offset: int
    size: int


class SessionFile(Protocol):
    """The only code that writes a session file or says "acknowledged"."""

    @property
    def path(self) -> Path: ...
    @property
    def epoch(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(self, lines: Sequence[bytes]) -> Ack:
        """Write whole lines, look again who owns the file, then acknowledge.

        Raises `Fenced` (another owner), `StorageFailed` (cut back, nothing written). Synchronous.
        """
        ...

    def replace(self, build: Callable[[BinaryIO], None]) -> Ack:
        """Rewrite through a temp file, fsync, rename: a new inode. Truncation, repair, take-over."""
        ...

    def close(self, *, handover: bool) -> None: ...


class Blobs(Protocol):
    """Evidence, images and segments: immutable bytes by SHA-256 (hex)."""

    async def put(self, data: bytes) -> str: ...
    async def get(self, digest: str) -> bytes: ...
