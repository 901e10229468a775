"""The memory `none`: the agent has its workspace's files, and nothing beside them."""

from __future__ import annotations

from perdure.contracts import MemoryInfo, Tool


class NoMemory:
    """No tools, no guidance, no recall."""

    info = MemoryInfo("none", "No memory")

    def tools(self) -> tuple[Tool, ...]:
        return ()

    def guidance(self) -> str:
        return ""
