"""Virtual times of a scenario: what a person writes (`at`, `start`) to seconds and epoch milliseconds.

Pure: nothing here reads a clock. Everything is UTC, so that a scenario means the same everywhere.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

FORMS = 'seconds (90), "1h30m", "+30s" (after the step above), "day 2 09:00" or an ISO time'
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_DAY = re.compile(r"day (\d+) (\d{1,2}):(\d{2})(?::(\d{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (86_400.0, 3600.0, 60.0, 1.0, 0.001)


def epoch_ms(iso: str) -> int:
    """Epoch milliseconds of an ISO 8601 time; one without an offset is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(iso)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def iso(ms: int) -> str:
    """The ISO form of epoch milliseconds, for headers and messages."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


def seconds(at: float | str, start_ms: int, previous: float) -> float:
    """Seconds since the start for one written `at`, to the millisecond. Raises ValueError."""
    if isinstance(at, str):
        at = _read(at.strip(), start_ms, previous)
    if not 0 <= at < 1e9:
        raise ValueError("a time lies before the scenario's start, or more than 30 years after it")
    return round(at * 1000) / 1000


def _read(at: str, start_ms: int, previous: float) -> float:
    if at.startswith("+"):
        return previous + _span(at[1:])
    if found := _DAY.fullmatch(at):
        return _wall(start_ms, *(int(part or 0) for part in found.groups()))
    if "T" in at or at.count("-") == 2:
        return (epoch_ms(at) - start_ms) / 1000
    return _span(at)


def _wall(start_ms: int, day: int, hour: int, minute: int, second: int) -> float:
    if day < 1 or hour > 23 or minute > 59 or second > 59:
        raise ValueError("days count from 1 (the day of the start), hours go to 23")
    midnight = start_ms - start_ms % 86_400_000
    return (midnight - start_ms) / 1000 + (day - 1) * 86_400 + hour * 3600 + minute * 60 + second


def _span(text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    found = _SPAN.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"{text!r} is no time: write {FORMS}")
    return sum(float(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True) if part)
