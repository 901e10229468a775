"""Whether a tool runs under a virtual clock, where nothing outside the script may happen."""

from __future__ import annotations

from perdure.contracts import ToolContext


def is_virtual(context: ToolContext) -> bool:
    """The context's own `virtual`, if it says so; real time otherwise."""
    return bool(getattr(context, "virtual", False))
