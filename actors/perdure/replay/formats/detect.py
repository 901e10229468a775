"""Which program wrote a recording, and its reader. Told by the records, never by the file's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from perdure.errors import UsageError
from perdure.replay.formats import claude_code, codex, nanobot, session
from perdure.replay.recording import Recording

Rows: TypeAlias = list[dict[str, Any]]
_LOOKED_AT = 20
_READERS: tuple[tuple[Callable[[Rows], bool], Callable[[Rows, int], Recording]], ...] = (
    (codex.recognised, codex.read),
    (claude_code.recognised, claude_code.read),
    (nanobot.recognised, nanobot.read),
)
_KNOWN = "pi and OpenClaw (versions 1 to 3), Claude Code, Codex and nanobot session files"


def read_recording(path: Path) -> Recording:
    """Raises UsageError (missing, or of no known format) and UnreadableFile (broken)."""
    first = _rows(_lines(path, _LOOKED_AT))
    if any(row.get("type") == "session" for row in first):
        return session.read(path)
    if any("scenario" in row for row in first):
        raise UsageError(f"{path}: this is a scenario already; run it with `perdure replay {path}`")
    for recognised, read in _READERS:
        if recognised(first):
            lines = _lines(path, None)
            rows = _rows(lines)
            return read(rows, len(lines) - len(rows))
    raise UsageError(f"{path}: no known recording; import reads {_KNOWN}")


def _lines(path: Path, most: int | None) -> list[bytes]:
    try:
        with path.open("rb") as file:
            lines = [file.readline(1 << 22) for _ in range(most)] if most else file.readlines()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as failed:
        raise UsageError(f"{path}: can't be read ({failed.strerror})") from None
    return [line for line in lines if line.strip()]


def _rows(lines: Iterable[bytes]) -> Rows:
    """The lines that are JSON objects."""
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
