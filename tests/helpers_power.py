"""A disk that dies: which bytes were synced, what a power cut leaves of the rest, and calls that fail."""

from __future__ import annotations

import os
import random
from pathlib import Path

from perdure.edges.journal.form import Identity
from perdure.edges.journal.replay import Recovered, recover
from perdure.edges.journal.segment import segments

PAGE = 4096


class Platter:
    """Told of each change; knows what of each session file and journal segment has reached the disk."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.synced: dict[int, int] = {}  # bytes of a session file, by inode
        self.wal: dict[int, bytes] = {}  # a segment's whole content

    def __call__(self, op: str, path: str) -> None:
        if op == "fsync" and os.path.isfile(path):
            status = os.stat(path)
            if path.endswith(".wal"):
                self.wal[status.st_ino] = Path(path).read_bytes()
            else:
                self.synced[status.st_ino] = status.st_size

    def cut_power(self, rng: random.Random) -> Recovered:
        """What wasn't synced is cut, NUL or partly there; then the machine starts again and replays."""
        for path in segments(self.state / "journal"):
            self._segment(path, rng)
        for path in self.state.glob("sessions/**/*.jsonl"):
            self._file(path, rng)
        return recover(self.state / "journal", self.state, Identity("another boot", ""))

    def _segment(self, path: Path, rng: random.Random) -> None:
        now = path.read_bytes()
        was = self.wal.get(path.stat().st_ino, b"").ljust(len(now), b"\0")
        first = next((at for at in range(len(now)) if now[at : at + 1] != was[at : at + 1]), len(now))
        end = rng.randrange(first, len(now) + 1)
        garbage = rng.randbytes(300) if rng.random() < 0.5 else b"\0" * 300
        path.write_bytes(now[:end] + garbage if first < len(now) else now)

    def _file(self, path: Path, rng: random.Random) -> None:
        data = bytearray(path.read_bytes())
        safe = min(self.synced.get(path.stat().st_ino, 0), len(data))
        how, end = rng.random(), rng.randrange(safe, len(data) + 1)
        if how < 0.4:
            del data[end:]
        elif how < 0.7:
            data[end:] = bytes(len(data) - end)
        else:
            for page in range(safe // PAGE * PAGE, len(data), PAGE):
                start, stop = max(safe, page), min(len(data), page + PAGE)
                if rng.random() < 0.5 and start < stop:
                    data[start:stop] = bytes(stop - start)
        with path.open("r+b") as file:  # the same inode
            file.truncate(0)
            file.write(data)
