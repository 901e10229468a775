"""Whether entries stand in a session's file, or in what truncation moved out of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perdure.edges import segments

BLOCK = 4 * 1024 * 1024


def strangers(file: str | Path, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that no entry of the session has. One pass over the file's bytes; blocking."""
    path = Path(file)
    sought = {id: f'"id":"{id}"'.encode() for id in ids}
    spaced = {id: f'"id": "{id}"'.encode() for id in sought}
    longest = max(map(len, spaced.values()), default=0)
    with path.open("rb") as source:
        tail = b""
        while sought and (block := source.read(BLOCK)):
            block = tail + block
            for id in [id for id, text in sought.items() if text in block or spaced[id] in block]:
                del sought[id]
            tail = block[-longest:]
    return {id for id in sought if segments.find_entry(path, id) is None}
