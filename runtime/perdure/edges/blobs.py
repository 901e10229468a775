"""`LocalBlobs`: evidence and images as immutable files by SHA-256, in fan-out folders.

A blob is complete or absent (temp file and rename), stored once however often it is put, and verified
whenever it is read: what does not fit its name is never handed out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Final

from perdure.context.pictures.kept import filled, lacking
from perdure.edges.files import read_bytes, write_bytes
from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.kernel.io import IoPolicy
from perdure.records import Items

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_HASHED_INLINE = 1 << 20  # bytes that are hashed in about a millisecond; more goes where the policy says


def with_images(items: Items, root: Path) -> Items:
    """The items with the images that they keep below `root`, for who reads a session without a host.

    What is missing or damaged there stays without its bytes.
    """
    return tuple(
        filled(item, dict(_read(root, lacking(item.message)))) if lacking(item.message) else item
        for item in items
    )


def _read(root: Path, digests: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for digest in filter(_DIGEST.fullmatch, digests):
        try:
            data = place(root, digest).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            yield digest, data


def place(root: Path, digest: str) -> Path:
    """Where a blob stands below its folder."""
    return root / digest[:2] / digest[2:4] / digest[4:]


def _pass(_digest: str) -> None: ...


class LocalBlobs:
    """Blobs below one folder: `<root>/ab/cd/<the other 60 digits>`."""

    def __init__(self, root: Path, io: IoPolicy) -> None:
        self.root, self._io = root, io
        self._lock = Lock()
        self._unsettled: Counter[str] = Counter()  # stored, and no entry refers to it yet
        self._spared: list[set[str]] = []  # of the sweeps under way

    async def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex. Raises `StorageFailed` (nothing is left behind).

        Until `settle` says that an entry refers to it, no sweep of this process takes it away.
        """
        digest = await self._hash(data)
        with self._lock:
            self._unsettled[digest] += 1
            for spared in self._spared:
                spared.add(digest)
        path = self.path(digest)
        try:
            if not self.has(digest) or await read_bytes(path, self._io) != data:  # a damaged one is healed
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                await write_bytes(path, data, self._io)
        except OSError as error:
            self.settle((digest,))
            raise StorageFailed(f"{path}: can't be written ({error.strerror or error}): make room") from None
        return digest

    async def get(self, digest: str) -> bytes:
        """The bytes of a digest. `UsageError`: no digest; `UnreadableFile`: missing or damaged."""
        path = self.path(digest)
        try:
            data = await read_bytes(path, self._io)
        except FileNotFoundError:
            raise UnreadableFile(f"{path}: the evidence is missing") from None
        except OSError as error:
            raise UnreadableFile(f"{path}: can't be read ({error.strerror})") from None
        if await self._hash(data) != digest:
            raise UnreadableFile(f"{path}: the evidence is damaged: it does not fit its digest")
        return data

    def settle(self, digests: Iterable[str]) -> None:
        """Entries that refer to these are in their files, or never will be."""
        with self._lock:
            for digest in digests:
                self._unsettled[digest] -= 1
                if self._unsettled[digest] <= 0:
                    del self._unsettled[digest]

    def sweep(self, doomed: Callable[[], Iterable[str]], before: Callable[[str], None] = _pass) -> list[str]:
        """Delete the blobs that `doomed` finds, those apart that anybody stores meanwhile. Blocking.

        `doomed` reads who refers to what; a blob that is stored while it does, or was and has no entry
        yet, is spared. `before` is called with each that goes. Returns what went.
        """
        with self._lock:
            spared = set(self._unsettled)
            self._spared.append(spared)
        try:
            return [digest for digest in doomed() if self._took(digest, spared, before)]
        finally:
            with self._lock:
                self._spared.remove(spared)

    def _took(self, digest: str, spared: set[str], before: Callable[[str], None]) -> bool:
        path = self.path(digest)
        with self._lock:
            if digest in spared or not path.is_file():
                return False
            before(digest)
            path.unlink()
        for folder in (path.parent, path.parent.parent):
            try:
                folder.rmdir()
            except OSError:
                break  # others are in it
        return True

    def stored(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every blob that is there."""
        for path in self.root.glob("??/??/*"):
            digest = "".join(path.relative_to(self.root).parts)
            try:
                if _DIGEST.fullmatch(digest):
                    yield digest, path.stat()
            except FileNotFoundError:
                continue

    def path(self, digest: str) -> Path:
        """Where a blob stands, whether it exists or not."""
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest[:80]!r} is not a SHA-256 in 64 hex digits")
        return place(self.root, digest)

    def has(self, digest: str) -> bool:
        """Whether a blob is there (its content isn't looked at)."""
        return self.path(digest).is_file()

    async def _hash(self, data: bytes) -> str:
        if len(data) <= _HASHED_INLINE:
            return hashlib.sha256(data).hexdigest()
        return await self._io.run(lambda: hashlib.sha256(data).hexdigest())
