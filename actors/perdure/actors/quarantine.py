"""Sessions that could not be opened: each alone, tried again with a back-off or on command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.errors import Busy, Closed, Fenced, Locked, Quarantined, StorageFailed
from perdure.kernel.intensity import Backoff

PAUSES = Backoff(first=5.0, factor=2.0, cap=600.0)
PASSING = (Closed, StorageFailed, Locked, Busy, Fenced)  # the file itself is not at fault: tried each time


@dataclass(frozen=True, slots=True)
class Case:
    """One session: its error, how often it was tried, and when (of the clock's now) mail may try again."""

    key: str
    error: str
    tries: int
    since_ms: int
    until: float


class Quarantine:
    """Small records by key; a session that opens is struck off."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def note(self, key: str, error: BaseException, now: float, wall_ms: int) -> Case | None:
        """It did not open. `None`: for a reason that passes."""
        if isinstance(error, PASSING):
            return None
        before = self._cases.get(key)
        tries = before.tries + 1 if before else 1
        since = before.since_ms if before else wall_ms
        case = self._cases[key] = Case(key, str(error), tries, since, now + PAUSES.delay(tries))
        return case

    def refusal(self, key: str, now: float) -> Quarantined | None:
        """Why mail for it is turned away now, if it is."""
        case = self._cases.get(key)
        if case is None or now >= case.until:
            return None
        return Quarantined(
            f"{key}: it could not be opened and is tried again in {case.until - now:.0f} s, "
            f"or by `perdure parked retry`: {case.error}"
        )

    def release(self, key: str) -> bool:
        """It opened, or an operator wants it tried. False: it was not here."""
        return self._cases.pop(key, None) is not None

    def lines(self, now: float) -> list[dict[str, Any]]:
        """For `status`."""
        return [
            {
                "session": case.key,
                "error": case.error,
                "tries": case.tries,
                "since": case.since_ms,
                "retry_seconds": round(max(0.0, case.until - now), 1),
            }
            for case in self._cases.values()
        ]
