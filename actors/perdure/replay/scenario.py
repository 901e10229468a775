"""Scenario files: read and checked, and written. The records are in `steps`, the checks in `parse`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.errors import UsageError
from perdure.replay.parse import parse
from perdure.replay.steps import VERSION, Header, Scenario, Step

__all__ = ["Header", "Scenario", "Step", "dump", "load", "parse"]


def load(path: str | Path) -> Scenario:
    """Read and check a scenario file. Raises UsageError: one line with file, line and what to do."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as failed:
        raise UsageError(f"{path}: can't be read ({failed.strerror})") from None
    return parse(data, str(path))


def dump(scenario: Scenario) -> bytes:
    """The file's bytes: one JSON object a line, defaults left out. Reading them gives the same record."""
    header = b'{"scenario":%d,' % VERSION + msgspec.json.encode(scenario.header)[1:]
    return b"\n".join([header, *map(msgspec.json.encode, scenario.steps)]) + b"\n"
