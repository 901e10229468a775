"""Discarding one segment of a session that nobody has in hand: its file is opened for it, and let go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.edges.session.files import SessionFiles
from perdure.edges.session.references import SEGMENTS
from perdure.edges.session.retention import discard, kept
from perdure.errors import UsageError


def discarder(files: SessionFiles, now_ms: int) -> Callable[[Path], None]:
    """What discards the segment at a path, noted in its session's file first. Raises as `files.open`."""

    def run(segment: Path) -> None:
        home = segment.parent
        key = files.key(home.with_name(home.name.removesuffix(".segments")))
        if key is None or not home.name.endswith(SEGMENTS):
            raise UsageError(f"{segment}: no segment of a session that has a key")
        held = files.open(key, now_ms)
        try:
            discard(held, [each for each in kept(held.file.path) if each.name == segment.name], now_ms)
        finally:
            held.close(handover=True)

    return run
