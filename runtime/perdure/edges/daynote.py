"""The day's note of a workspace, `memory/YYYY-MM-DD.md`: text is appended, nothing in it is ever changed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path


def append(root: Path, text: str, now_ms: int) -> Path:
    """Add `text` behind what the note of the day (UTC) holds; where that is. Raises `OSError`."""
    day = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d")
    path = root / "memory" / f"{day}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        between = "\n" if os.fstat(fd).st_size else ""
        data = memoryview(f"{between}{text}\n".encode("utf-8", "replace"))
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
    return path
