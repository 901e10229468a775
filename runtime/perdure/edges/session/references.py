"""Which evidence a session's files refer to: by the hashes that stand in facts of ours, nowhere else.

Read in lines and blocks, never a file whole. A damaged line that may hold such facts keeps whatever looks
like a hash in it: what can't be read is no reason to delete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from perdure.edges import segments
from perdure.edges.session import keys, tolerant
from perdure.edges.session.scan import forward

_HASH: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MARK: Final = b'"evidence"'
_PLACES: Final = ("perdure", "data", "details")  # where facts of ours stand in an entry
SEGMENTS: Final = f"{keys.SUFFIX}.segments"


def references(paths: Iterable[Path]) -> set[str]:
    """The digests that these files refer to: session files, their backups, segments. Blocking.

    Raises `OSError`, and `UnreadableFile` for a damaged segment.
    """
    return {digest for path in paths for line in _records(path) for digest in of_line(line)}


def of_line(line: bytes) -> set[str]:
    """The digests that one record refers to."""
    if _MARK not in line:
        return set()
    try:
        entry = tolerant.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        return {found.decode() for found in _HASH.findall(line)}
    return {digest for place in _PLACES for digest in _walk(entry.get(place))}


def transcripts(root: Path) -> Iterator[Path]:
    """Every file below `sessions/` that may hold entries: locks and marks apart."""
    for folder, _, names in os.walk(root):
        for name in names:
            if (keys.SUFFIX in name and not name.endswith((".lock", ".swap"))) or name.endswith(".segment"):
                yield Path(folder, name)


def _records(path: Path) -> Iterator[bytes]:
    try:
        if path.name.endswith(".segment"):
            for moved in segments.Segment(path).entries():
                yield moved.raw
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # gone while we looked
    try:
        for line in forward(fd, 0, os.fstat(fd).st_size):
            yield line.data
    finally:
        os.close(fd)


def _walk(value: Any) -> Iterator[str]:
    """Every text in a list named `evidence`, however deep."""
    stack = [value]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            for name, inner in found.items():
                if name == "evidence" and isinstance(inner, list):
                    yield from (each for each in inner if isinstance(each, str))
                else:
                    stack.append(inner)
        elif isinstance(found, list):
            stack += found
