"""What starts a compaction by itself, of the core: `auto`, and `manual`, which never does."""

from __future__ import annotations

from perdure.contracts import CompactionReason, Pressure


class Auto:
    """By the lines of the window, the size of the view, and idleness with a cold cache."""

    def wants(self, pressure: Pressure) -> CompactionReason | None:
        """The reason, if a line is passed."""
        if pressure.moment == "overflow":
            return "overflow"
        if pressure.moment == "idle":
            return "idle" if pressure.tokens > pressure.idle_line else None
        if pressure.tokens > pressure.threshold:
            return "model_switch" if pressure.moment == "model_switch" else "threshold"
        large = pressure.entries > pressure.size_entries or pressure.view_bytes > pressure.size_bytes
        return "size" if large else None


class Manual:
    """Only a person's command compacts; an overflow is told to the user."""

    def wants(self, pressure: Pressure) -> CompactionReason | None:
        """Never."""
        return None
