"""What was spent today, in `<state>/spend.jsonl`: so that no crash gives a tenant its budget anew.

A line before each call says what it may cost at most, one after it what it did cost; a call whose second
line a crash took is counted at the most. The file is one day's; it is rewritten as sums when it has grown.
Kept only where something is capped. It isn't in the index, which may be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from perdure.errors import StorageFailed
from perdure.records import Record

GROWN = 1024 * 1024  # bytes; then the sums replace the lines, if they are less than half of it


class Amount(Record):
    """US dollars and tokens."""

    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.usd + other.usd, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.usd - other.usd, self.tokens - other.tokens)


class _Line(Record):
    """`call` 0: a sum. A second line of the same call replaces the first."""

    day: str
    who: tuple[str, ...]
    usd: float
    tokens: int
    call: int = 0


def known_zone(name: str) -> bool:
    """Whether the machine knows that time zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError):  # of these is also what a missing zone raises
        return False
    except LookupError:
        return False
    return True


def day_of(wall_ms: int, zone: str) -> str:
    """The date of a moment in a zone, as 2026-01-31."""
    return datetime.fromtimestamp(wall_ms / 1000, ZoneInfo(zone)).date().isoformat()


class SpendJournal:
    """The file. `append` raises `StorageFailed`: what can't be written down must not be spent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._limit = GROWN
        self._descriptor: int | None = None

    def load(self, day: str) -> tuple[dict[str, Amount], int]:
        """What each has spent on that day, and the highest number of a call. Damaged lines are skipped."""
        try:
            rows = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            rows = []
        except OSError as error:
            raise StorageFailed(f"{self._path}: can't be read: {error.strerror}") from None
        found: list[_Line] = []
        for row in rows:
            try:
                found.append(msgspec.json.decode(row, type=_Line))
            except msgspec.DecodeError:
                continue
        last: dict[object, _Line] = {line.call or object(): line for line in found if line.day == day}
        spent: dict[str, Amount] = {}
        for line in last.values():
            for who in line.who:
                spent[who] = spent.get(who, Amount()) + Amount(line.usd, line.tokens)
        self.rewrite(day, spent)
        return spent, max((line.call for line in found), default=0)

    def append(self, day: str, who: tuple[str, ...], amount: Amount, call: int) -> None:
        """One line in one write; a short one is cut back."""
        line = msgspec.json.encode(_Line(day, who, amount.usd, amount.tokens, call)) + b"\n"
        try:
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.ftruncate(self._descriptor, self._size)
                raise OSError(28, "short write")
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error.strerror}: make room and send again") from None
        self._size += written

    @property
    def grown(self) -> bool:
        """Whether `rewrite` is due."""
        return self._size > self._limit

    def rewrite(self, day: str, spent: dict[str, Amount]) -> None:
        """Sums in place of lines, whole or not at all. Only while no call is under way."""
        rows = (_Line(day, (who,), amount.usd, amount.tokens) for who, amount in spent.items())
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        self.close()
        self._replace((data,))
        self._size, self._limit = len(data), max(GROWN, 2 * len(data))

    def _replace(self, parts: Iterable[bytes]) -> None:
        new = self._path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error.strerror}: make room and start again") from None

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
