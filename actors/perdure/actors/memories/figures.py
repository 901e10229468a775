"""What a memory did since the host started, in numbers and its latest failure in words."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.records import Usage


class Figures:
    """Counted, never kept per session."""

    def __init__(self) -> None:
        self.recalled = self.captured = self.lost = 0
        self.failed: Counter[str] = Counter()  # by what was tried
        self.flushes: Counter[str] = Counter()  # by how they ended
        self.notes = self.calls = 0
        self.usage = Usage()
        self.trouble = ""
        self.healthy = True  # the latest call went well

    def recall_ended(self, error: BaseException | None, texts: int = 0) -> None:
        """Something was recalled, or nothing, or it broke or was too slow."""
        self._ended("recall", error)
        self.recalled += bool(texts)

    def capture_ended(self, error: BaseException | None) -> None:
        """A capture came to its end."""
        self._ended("capture", error)
        self.captured += error is None

    def flush_ended(self, how: str, notes: int, calls: int, usage: Usage) -> None:
        """A flush did: `done`, `failed`, `skipped`."""
        self.flushes[how] += 1
        self.notes, self.calls, self.usage = self.notes + notes, self.calls + calls, self.usage + usage

    def _ended(self, what: str, error: BaseException | None) -> None:
        self.failed[what] += error is not None
        self.healthy, self.trouble = error is None, f"{what}: {error}"[:200] if error is not None else ""

    def line(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "recalled": self.recalled,
            "recalls_failed": self.failed["recall"],
            "captured": self.captured,
            "captures_failed": self.failed["capture"],
            "captures_lost": self.lost,
            "flushes": {how: self.flushes[how] for how in ("done", "failed", "skipped")},
            "flush_notes": self.notes,
            "flush_calls": self.calls,
            "flush_tokens": self.usage.prompt + self.usage.output,
            "flush_cost_usd": round(self.usage.cost_usd, 6),
        }
