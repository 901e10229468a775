"""The index of one agent's notes: kept in step with the files, from which it can be made again."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock

from msgspec.structs import replace

from perdure.edges import sqlite
from perdure.errors import DamagedStore
from perdure.plugins.memories.core import files, notes
from perdure.plugins.memories.core.superseding import marked, outdated
from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.embedding import Embedder
from perdure.plugins.search.searcher import Answer, Searcher
from perdure.plugins.search.stages import Stages
from perdure.plugins.search.store import Chunk, Kind, Store
from perdure.plugins.search.tables import digest

DAY_MS = 86_400_000
RACY_NS = 50_000_000
"""A file that was changed so shortly before it was read may change again without a newer time."""


class Index:
    """Opens or makes the index at `path`; one that is damaged is thrown away and made again.

    `virtual`: time is virtual, so the times of files say nothing. Blocks; raises `StorageFailed`.
    """

    def __init__(self, path: Path, embedder: Embedder | None = None, *, vectors: Kind, virtual: bool) -> None:
        self.path, self._virtual = path, virtual

        def opened() -> Store:
            return Store(path, embedder, vectors=vectors, sync=False)  # what is lost is made again

        self.store = _opened(path, opened)
        self._searcher = Searcher(self.store)
        self._lock = Lock()
        self._settled: set[str] = set()

    def sync(self, workspace: Path, now_ms: int) -> int:
        """Bring the index in step with the files of a workspace; how many had changed. Raises `OSError`."""
        scope = scope_of(workspace)
        with self._lock:
            known = self.store.stamps(scope)
            seen = {each.path: each for each in files.walk(workspace)}
            gone = [path for path in known if path not in seen]
            self.store.delete(scope, *gone)
            changed = [path for path in seen if _stamp(known.get(path, "")) != seen[path].stamp()]
            told = sum(self._read(workspace, scope, seen[path], known.get(path), now_ms) for path in changed)
            if told or gone or scope not in self._settled:
                self._supersede(scope)
                self._settled.add(scope)
        return told + len(gone)

    def search(self, workspace: Path, query: str, stages: Stages, now_ms: int) -> Answer:
        """What the notes say about `query`, as they are now."""
        self.sync(workspace, now_ms)
        return self.found(workspace, query, stages, now_ms)

    def found(self, workspace: Path, query: str, stages: Stages, now_ms: int) -> Answer:
        """What the index says, as it was when it last followed the notes."""
        return self._searcher.search(scope_of(workspace), query, stages, now_ms, evergreen)

    def sizes(self, workspace: Path) -> tuple[int, int]:
        """How many chunks a workspace has, and how many vectors are kept for them and others."""
        return len(self.store.chunks(scope_of(workspace))), self.store.cached()

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    def _read(self, workspace: Path, scope: str, seen: files.Seen, known: str | None, now_ms: int) -> bool:
        """Take one file in; False if its bytes are those that are known."""
        racy = seen.ctime_ns > self._disk_ns() - RACY_NS
        try:
            data = files.read(workspace, seen.path)
        except OSError:
            data = None  # what can't be read can't be quoted
        stamp = f"{'?' if racy else ''}{seen.stamp()} {sha256(data or b'').hexdigest()}"
        if known is not None and known.split(" ")[-1] == stamp.split(" ")[-1]:
            self.store.put(scope, seen.path, (), stamp=stamp)
            return False
        pieces = notes.pieces(files.text_of(data)) if data is not None else ()
        self.store.replace(scope, seen.path, self._dated(scope, seen, pieces, now_ms), stamp=stamp)
        return True

    def _dated(self, scope: str, seen: files.Seen, pieces: tuple[Piece, ...], now_ms: int) -> list[Piece]:
        """Pieces with their times: what stood there before keeps its own."""
        was = {chunk.hash: chunk.at for chunk in self.store.of_source(scope, seen.path)}
        written = now_ms if self._virtual else min(now_ms, seen.mtime_ns // 1_000_000)
        if (day := files.day_of(seen.path)) and (begin := _begin(day)) is not None:
            written = max(begin, min(written, begin + DAY_MS - 1))
        return [replace(piece, at=was.get(digest(piece.searched()), written)) for piece in pieces]

    def _supersede(self, scope: str) -> None:
        past = outdated(each for each in self.store.stated(scope) if each.subject != notes.SUPERSEDES)
        counts = self.store.statements(past)
        marks = self.store.stated(scope, notes.SUPERSEDES)
        own: dict[int, int] = {}
        for mark in marks:
            own[mark.chunk] = own.get(mark.chunk, 0) + 1
        whole = {id for id, count in past.items() if count >= counts.get(id, 0) - own.get(id, 0)}
        self.store.supersede(scope, whole | (marked(marks, self.store.chunks(scope)) if marks else set()))

    def _disk_ns(self) -> int:
        """What time it is for the file system."""
        os.utime(self.path)
        return self.path.stat().st_mtime_ns


def scope_of(workspace: Path) -> str:
    """An agent's sessions may have several workspaces: each is searched by itself."""
    return os.path.realpath(workspace)


def evergreen(chunk: Chunk) -> bool:
    """Whether a piece stands where nothing ages."""
    return files.is_evergreen(chunk.source)


def _stamp(stored: str) -> str:
    return stored.split(" ")[0]


def _begin(day: str) -> int | None:
    try:
        return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None


def _opened(path: Path, opened: Callable[[], Store]) -> Store:
    try:
        return opened()
    except DamagedStore:
        sqlite.discard(path)
        return opened()
