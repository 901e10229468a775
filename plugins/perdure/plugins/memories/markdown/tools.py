"""The tool of the two files: `memory_search`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perdure.contracts import ToolContext, ToolOutput
from perdure.contracts.lending import PluginRuntime
from perdure.contracts.memories import Recalled
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import make_spec, number, text
from perdure.errors import PerdureError
from perdure.plugins.memories.trust import WARNING, agent_of

SEARCH_BYTES = 2 * 1024 * 1024  # of the log, its end
LINE_CHARS = 1_000
SEARCH = make_spec(
    "memory_search",
    "Find lines in MEMORY.md (lasting facts) and memory/HISTORY.md (what happened in earlier conversations) "
    "by "
    "words. Each line is marked with how far it is to be trusted.",
    "Search what is remembered",
    {
        "query": text("Words to look for", minLength=1, maxLength=1_000),
        "limit": number("Most lines (default 10)", 1, 50),
    },
    required=("query",),
)
Find = Callable[[str, Path, str, int, int], tuple[Recalled, ...]]


class SearchTool:
    """`find(agent, workspace, query, limit, bytes)` blocks and may raise."""

    spec = SEARCH

    def __init__(self, runtime: PluginRuntime, find: Find) -> None:
        self._runtime, self._find = runtime, find

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query, limit = arguments["query"], arguments.get("limit", 10)
        agent, root = agent_of(context.session), context.workspace
        try:
            found = await self._runtime.run_blocking(
                lambda: self._find(agent, root, query, limit, SEARCH_BYTES)
            )
        except (PerdureError, OSError) as error:
            return failure(f"memory_search: {error}")
        if not found:
            return result("No line of MEMORY.md or memory/HISTORY.md holds any of these words.", found=[])
        shown = [f"{one.source} [{one.trust}] {one.text[:LINE_CHARS]}" for one in found]
        shown += [WARNING] if any(one.trust == "untrusted" for one in found) else []
        return result("\n".join(shown), found=[one.source for one in found])
