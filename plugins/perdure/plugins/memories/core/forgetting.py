"""Forgetting what a text says, everywhere: in the notes, then in all that was made from them.

From a note go the sentences that hold the text, of lists, tables and code the lines; what else stands there
stays. Or what stands at a place goes (`memory/2026-01-05.md`, `…#L3`, `…#L3-L9`). Then the index follows the
files, vectors and cached embeddings go with their chunks, and the database is written anew: no byte of it
stays in a free page or a log. A crash in between leaves notes that the next search indexes; the same call
completes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perdure.contracts import Forgotten
from perdure.plugins.memories.core import files
from perdure.plugins.memories.core.erasing import lines_without, wanted, without
from perdure.plugins.memories.core.index import Index

_PLACE = re.compile(r"(.+\.md)(?:#L(\d+)(?:-L(\d+))?)?")


def forget(index: Index, workspace: Path, text: str, now_ms: int) -> Forgotten:
    """Take it away; what went, and where it stood. Blocks.

    Raises `UsageError` for a text that says too little, `OSError`, `StorageFailed`.
    """
    index.sync(workspace, now_ms)
    chunks, vectors = index.sizes(workspace)
    sources = tuple(_from_files(workspace, text))
    index.sync(workspace, now_ms)
    index.store.scrub()
    left, kept = index.sizes(workspace)
    return Forgotten(len(sources), chunks - left, vectors - kept, sources)


def _from_files(workspace: Path, text: str) -> Iterator[str]:
    place = _PLACE.fullmatch(text.strip())
    if place is not None and files.parts_of(place[1]) is not None:
        yield from _at_place(workspace, place)
        return
    what = wanted(text)
    for path in [seen.path for seen in files.walk(workspace)]:
        lost = without(_text(files.read(workspace, path) or b""), what)[1]
        if lost:
            files.rewrite(workspace, path, lambda data: _bytes(without(_text(data), what)[0]))
            yield from (f"{path}#L{line}" for line in lost)


def _at_place(workspace: Path, place: re.Match[str]) -> Iterator[str]:
    first, last = int(place[2] or 1), int(place[3] or place[2] or 10**9)
    if files.read(workspace, place[1]) is not None:
        files.rewrite(workspace, place[1], lambda data: lines_without(data, first, last))
        yield place[0]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
