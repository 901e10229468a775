"""One session's index: its messages cut into chunks, searched by words and vectors; two SQLite files.

Every step can be done again: chunks first, then that their entries were told. All of it blocks.
"""

from __future__ import annotations

import shutil
from collections.abc import Set
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from perdure.context.text.characters import clean
from perdure.edges.sqlite import damaged
from perdure.plugins.engines import views
from perdure.plugins.engines.retrieval.state import State
from perdure.plugins.search.chunks import Piece, cut, quarters
from perdure.plugins.search.searcher import Searcher
from perdure.plugins.search.stages import Stages
from perdure.plugins.search.store import Chunk, Store
from perdure.records import BranchSummary, Item, Items, Summary

TOKENS, OVERLAP = 300, 40
MOST_CHARS = 200_000
"""Characters of one message that are indexed."""
SCOPE = "session"
"""The file is one session's, so that none can be asked of another."""
CANDIDATES = 64
FRAME = 20
"""Tokens of the line above a piece that tells where it is from."""


class Index:
    """Opens or makes the index in a folder. Raises `StorageFailed`, `DamagedStore`: one file lacks, too."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state, index = folder / "state.sqlite", folder / "index.sqlite"
        if state.exists() != index.exists():
            raise damaged(folder, "one of its two files is gone")
        self.state = State(state)
        try:
            self._store = Store(index)
        except BaseException:
            self.state.close()
            raise
        self._searcher = Searcher(self._store)

    def close(self) -> None:
        self.state.close()
        self._store.close()

    def take(self, items: Items) -> int:
        """Index entries that were committed, in order; how many are new."""
        told = [item for item in items if item.entry]
        known = self.state.known([item.entry for item in told])
        fresh = [item for item in told if item.entry not in known]
        if fresh:
            self._follow(told, fresh[0].entry)
            source = fresh[0].entry  # one for all, so that they are one transaction
            self._store.put(SCOPE, source, [piece for item in fresh for piece in pieces(item)])
            self.state.tell([item.entry for item in fresh], source)
        if told:
            self.state.note("cursor", told[-1].entry)
        return len(fresh)

    def _follow(self, told: list[Item], first: str) -> None:
        """Forget what stood behind the entry before the first new one: that branch was left."""
        at = next(n for n, item in enumerate(told) if item.entry == first)
        before = told[at - 1].entry if at else self.state.about("cursor")
        gone = self.state.behind(before)
        for source in dict.fromkeys(gone.values()):
            chunks = self._store.of_source(SCOPE, source)
            self._store.remove(SCOPE, [chunk.id for chunk in chunks if chunk.entries[0] in gone])
        self.state.untell(gone)

    def search(self, query: str, *, without: Set[str], tokens: int, most: int, now: int) -> list[Chunk]:
        """What bears on a question, best first, of entries other than `without`."""
        stages = Stages(decay=False, candidates=CANDIDATES, most=CANDIDATES, chars=1_000_000)
        found = self._searcher.search(SCOPE, query, stages, now).found
        chosen: list[Chunk] = []
        for each in found:
            entry = each.chunk.entries[0]
            size = quarters(each.chunk.text) // 4 + FRAME
            if entry not in without and size <= tokens and len(chosen) < most:
                chosen.append(each.chunk)
                tokens -= size
        return chosen


def pieces(item: Item) -> tuple[Piece, ...]:
    """A message as pieces that name their entry and say how far they may be trusted."""
    message = item.message
    if isinstance(message, Summary | BranchSummary):  # said in other words by what it covers
        return ()
    text = clean(views.said(message)[:MOST_CHARS], foreign=True)
    trust, at = views.trust(message), message.timestamp
    found = cut(text, tokens=TOKENS, overlap=OVERLAP)
    return tuple(replace(each, trust=trust, entries=(item.entry,), at=at) for each in found)


def folder_of(store: Path, session: str) -> Path:
    """Where a session's index is; an id says nothing about the file system."""
    return store / sha256(session.encode("utf-8", "replace")).hexdigest()[:32]


def purge(store: Path, session: str) -> bool:
    """Forget a session by its id, wholly; whether there was anything."""
    folder = folder_of(store, session)
    there = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return there
