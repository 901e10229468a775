"""`memory_search` and `memory_get`: names, parameters and answers are those of OpenClaw. Neither raises."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.contracts import ToolContext, ToolOutput
from perdure.errors import PerdureError
from perdure.plugins.memories.core import answers, files
from perdure.records import ToolSpec

if TYPE_CHECKING:
    from perdure.plugins.memories.core.memory import MemoryCore

CHARS = 12_000
"""Characters that one answer takes of the context, at most."""
MOST = 20
_SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, in words or as a question"},
        "maxResults": {"type": "integer", "minimum": 1, "description": "At most so many results"},
        "minScore": {"type": "number", "description": "Leave out results below this score, 0 to 1"},
    },
    "required": ["query"],
}
_GET = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "MEMORY.md or a file in memory/, as memory_search names it",
        },
        "from": {"type": "integer", "minimum": 1, "description": "First line; the first one by default"},
        "lines": {"type": "integer", "minimum": 1, "description": "So many lines; all by default"},
    },
    "required": ["path"],
}


class MemorySearch:
    """Searches the notes of the agent whose session asks."""

    def __init__(self, memory: MemoryCore) -> None:
        self._memory = memory
        self.spec = ToolSpec(
            "memory_search",
            "Search MEMORY.md and the notes in memory/ by words and likeness. Returns JSON: passages with "
            "path, lines, score and trust.",
            msgspec.json.encode(_SEARCH),
        )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return answers.output(answers.unavailable("query required"))
        try:
            return answers.output(await self._search(query, arguments, context))
        except (PerdureError, OSError) as error:
            return answers.output(answers.unavailable(str(error)))

    async def _search(self, query: str, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        settings = self._memory.settings
        most = answers.whole(arguments, "maxResults", settings.max_results, MOST)
        agent = agent_of(context.session)
        answer = await self._memory.search(agent, context.workspace, query, most, CHARS)
        least = answers.share(arguments, "minScore", settings.min_score)
        kept = tuple(each for each in answer.found if each.score >= least)
        cite = settings.citations == "on" or (settings.citations == "auto" and _is_direct(context.session))
        return answers.results(
            msgspec.structs.replace(answer, found=kept),
            provider=self._memory.indexes.embedder.id,
            cite=cite,
            citations=settings.citations,
        )


class MemoryGet:
    """Reads a note, or lines of it."""

    spec = ToolSpec(
        "memory_get",
        "Read MEMORY.md or a note in memory/, whole or some lines. Returns JSON: text and path.",
        msgspec.json.encode(_GET),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        path = arguments.get("path")
        if not isinstance(path, str) or files.parts_of(path) is None:
            shown = path if isinstance(path, str) else ""
            return answers.output(
                {"path": shown[:200], "text": "", "disabled": True, "error": "path required"}
            )
        first = answers.whole(arguments, "from", 1, 10**9)
        count = answers.whole(arguments, "lines", 10**9, 10**9)
        try:
            text = await context.run_blocking(partial(_text, context.workspace, path))
        except (PerdureError, OSError) as error:
            return answers.output({"path": path, "text": "", "disabled": True, "error": str(error)})
        return answers.output({"text": answers.lines_of(text, first, count, CHARS), "path": path})


def _text(workspace: Path, path: str) -> str:
    data = files.read(workspace, path)
    return files.text_of(data) if data is not None else ""


def agent_of(session: str) -> str:
    """The agent of a session key `agent:<agent>:…`; others belong to `main`."""
    parts = session.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else "main"


def _is_direct(session: str) -> bool:
    """Whether a session is a conversation with one person: `agent:<agent>:<channel>:<kind>:<peer>`."""
    parts = session.split(":")
    return len(parts) < 4 or parts[3] in ("dm", "direct")
