"""How long background work of a session may wait: the nearer its view is to the line, the shorter."""

from __future__ import annotations

from perdure.kernel.fair import Band

PATIENCE = 600.0  # seconds that the work of a session with all room still free may wait, others first


def slack(used: int, threshold: int, line: int) -> float:
    """Seconds: all of them up to the compaction's threshold, none at the line where a turn is cut off."""
    if line <= threshold:
        return 0.0 if used >= line else PATIENCE
    return PATIENCE * min(1.0, max(0.0, (line - used) / (line - threshold)))


def band(reason: str | None) -> Band:
    """Where somebody waits for it (an overflow, a command, a smaller model), it goes with the turns."""
    return "front" if reason in ("overflow", "manual", "model_switch") else "back"
