"""`recall`: read back what left the context: covered entries, evidence, moved segments.

A hash or entry id resolves only for the session's own past; that is the host's doing, not the model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import make_spec, number, text
from perdure.errors import PerdureError

PAGE_CHARS = 16_000
MAX_CHARS = 64_000

SPEC = make_spec(
    "recall",
    "Read back parts of this conversation that are no longer in view: give ref (an entry id or the sha256 of "
    "an output that was kept) to read it in pages and see its images, or search to find entries by text. "
    "Secrets that a summary left out are found by the words around them, [redacted] included.",
    "Read back earlier messages and full outputs",
    {
        "ref": text("Entry id, or sha256 of a kept output", maxLength=200),
        "search": text("Text to look for in earlier messages and outputs", maxLength=1_000),
        "start": number("First character to read, counted from 0", 0),
        "length": number("Most characters to read (default 16,000)", 1, MAX_CHARS),
        "limit": number("Most search results (default 10)", 1, 50),
    },
)


class RecallTool:
    """See the module."""

    spec = SPEC

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        ref, query = arguments.get("ref", "").strip(), arguments.get("search", "").strip()
        if bool(ref) == bool(query):
            return failure("Give either ref (an entry id or sha256) or search (a text), not both or none.")
        try:
            if query:
                found = await context.recall.search(query, arguments.get("limit", 10))
                return result(found or f"Nothing earlier in this session mentions {query!r}.", search=query)
            start = arguments.get("start", 0)
            page = await context.recall.recall(
                ref.removeprefix("sha256:"), start, arguments.get("length", PAGE_CHARS)
            )
            shown = result(page or "[nothing at this position]", ref=ref, start=start, chars=len(page))
            pictures = () if start else await context.recall.images(ref.removeprefix("sha256:"))
            return ToolOutput((*shown.content, *pictures), details=shown.details, full=shown.full)
        except (PerdureError, LookupError, ValueError) as error:
            reason = (
                str(error)
                if isinstance(error, PerdureError)
                else f"nothing of this session is named {ref or query!r}"
            )
            return failure(f"recall: {reason}. Use search to find entries by text.")
