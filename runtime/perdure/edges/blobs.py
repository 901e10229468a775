"""`LocalBlobs`: evidence and images as immutable files by SHA-256, in fan-out folders.

A blob is complete or absent (temp file and rename), stored once however often it is put, and verified
whenever it is read: what does not fit its name is never handed out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.kernel.io import IoPolicy

_DIGEST: Final = re.compile("[0-9a-f]{64}")


class LocalBlobs:
    """Blobs below one folder: `<root>/ab/cd/<the other 60 digits>`."""

    def __init__(self, root: Path, io: IoPolicy) -> None:
        self.root, self._io = root, io
        self._made = 0

    async def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex. Raises `StorageFailed` (nothing is left behind)."""
        return await self._io.run(self.put_now, data)

    async def get(self, digest: str) -> bytes:
        """The bytes of a digest. `UsageError`: no digest; `UnreadableFile`: missing or damaged."""
        return await self._io.run(self.get_now, digest)

    def path(self, digest: str) -> Path:
        """Where a blob stands, whether it exists or not."""
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest[:80]!r} is not a SHA-256 in 64 hex digits")
        return self.root / digest[:2] / digest[2:4] / digest[4:]

    def put_now(self, data: bytes) -> str:
        """As `put`, blocking."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if not self._stands(path, data):
                self._write(path, data)
        except OSError as error:
            raise StorageFailed(f"{path}: can't be written ({error.strerror or error}): make room") from None
        return digest

    def get_now(self, digest: str) -> bytes:
        """As `get`, blocking."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UnreadableFile(f"{path}: the evidence is missing") from None
        except OSError as error:
            raise UnreadableFile(f"{path}: can't be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise UnreadableFile(f"{path}: the evidence is damaged: it does not fit its digest")
        return data

    def has(self, digest: str) -> bool:
        """Whether a blob is there (its content isn't looked at)."""
        return self.path(digest).is_file()

    def sizes(self) -> Iterator[tuple[str, int]]:
        """All blobs with their sizes in bytes, for quotas and collection."""
        for path in self.root.glob("??/??/*"):
            digest = "".join(path.parts[-3:])
            if _DIGEST.fullmatch(digest):
                yield digest, path.stat().st_size

    def remove(self, digest: str) -> int:
        """Delete a blob nobody refers to any more; returns its size (0 if it was not there)."""
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def _stands(self, path: Path, data: bytes) -> bool:
        """Whether the very bytes are there; a damaged blob is written again."""
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except FileNotFoundError:
            return False

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._made += 1
        temp = path.with_name(f"{path.name}.{os.getpid():x}.{self._made:x}.tmp")
        try:
            fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as out:
                out.write(data)
                out.flush()
                if self._io.sync:
                    os.fsync(out.fileno())
            os.replace(temp, path)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        if self._io.sync:
            _sync(path.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
