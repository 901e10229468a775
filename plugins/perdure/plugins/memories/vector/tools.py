"""The tools of `memory-vector`: `memory_recall`, `memory_store`, `memory_forget`; named as in OpenClaw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from perdure.context.text.characters import clean
from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.contracts.lending import PluginRuntime
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import flag, make_spec, number, text
from perdure.errors import PerdureError
from perdure.plugins.memories.trust import WARNING, agent_of
from perdure.plugins.memories.vector.keeping import Keeping
from perdure.plugins.memories.vector.table import Hit, Row, id_of
from perdure.records import ToolSpec

STORE_CHARS = 2_000
QUERY_CHARS = 2_000
_ID = {"minLength": 1, "maxLength": 40}

RECALL = make_spec(
    "memory_recall",
    "Find what was remembered in earlier conversations: preferences, decisions, facts about people and work.",
    "Recall what was remembered",
    {
        "query": text("What to look for, in words or as a question", minLength=1, maxLength=QUERY_CHARS),
        "limit": number("Most results (default 5)", 1, 50),
    },
    required=("query",),
)
STORE = make_spec(
    "memory_store",
    "Remember one statement for later conversations, in a sentence that can be understood by itself. What "
    "is known "
    "already isn't stored twice. Never passwords or keys.",
    "Remember a statement",
    {
        "text": text("The statement", minLength=1, maxLength=STORE_CHARS),
        "replaces": text("Id of an older statement that this one corrects", **_ID),
        "untrusted": flag(
            "True if a web page, file or tool output says so, rather than the user or yourself"
        ),
    },
    required=("text",),
)
FORGET = make_spec(
    "memory_forget",
    "Forget what is remembered under an id. With a query instead, lists what could be meant, with ids.",
    "Forget something remembered",
    {
        "id": text("Id of what to forget, as memory_recall names it", **_ID),
        "query": text("What to look for, where the id isn't known", minLength=1, maxLength=QUERY_CHARS),
    },
)

Work: TypeAlias = Callable[[Keeping, Mapping[str, Any], ToolContext, int], ToolOutput]


def vector_tools(keeping: Keeping, runtime: PluginRuntime) -> tuple[Tool, ...]:
    """All tools, their arguments checked."""
    made = ((RECALL, _recall), (STORE, _store), (FORGET, _forget))
    return tuple(Checked(VectorTool(spec, work, keeping, runtime)) for spec, work in made)


class VectorTool:
    """One tool: its work runs where blocking work does; what a model can act on is a result, not an error."""

    def __init__(self, spec: ToolSpec, work: Work, keeping: Keeping, runtime: PluginRuntime) -> None:
        self.spec = spec
        self._work, self._keeping, self._runtime = work, keeping, runtime

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        now = self._runtime.wall_ms()
        try:
            return await self._runtime.run_blocking(
                lambda: self._work(self._keeping, arguments, context, now)
            )
        except PerdureError as error:
            return failure(f"{self.spec.name}: {error}")


def line(row: Row) -> str:
    """`m0123… [agent] The text (2026-01-05)`, in one line; the mark stands before what others wrote."""
    when = f" ({datetime.fromtimestamp(row.at / 1000, UTC):%Y-%m-%d})" if row.at else ""
    return f"{row.id} [{row.trust}] {' '.join(row.text.split())}{when}"


def _recall(keeping: Keeping, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    hits = keeping.search(agent_of(context.session), given["query"], given.get("limit", 5), now)
    if not hits:
        return result("Nothing like it is remembered.", found=[])
    return result(_lines(hits), found=[hit.row.id for hit in hits], scores=[hit.score for hit in hits])


def _store(keeping: Keeping, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    said = clean(given["text"], foreign=True).strip()
    row = Row(id_of(said), said, "untrusted" if given.get("untrusted", False) else "agent", (), now)
    stored = keeping.store(agent_of(context.session), row, given.get("replaces", ""))
    state = "Remembered" if stored.new else "Known already"
    return result(f"{state}: {line(stored.row)}", id=stored.row.id, new=stored.new)


def _forget(keeping: Keeping, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    agent, id = agent_of(context.session), given.get("id", "")
    if bool(id) == ("query" in given):
        return failure("Give either id or query, not both or none.")
    if not id:
        hits = keeping.search(agent, given["query"], 10, now)
        told = f"Nothing was forgotten. Call again with one of these ids:\n{_lines(hits)}"
        return result(told if hits else "Nothing like it is remembered.", found=[hit.row.id for hit in hits])
    if keeping.get(agent, id) is None:
        return failure(f"memory_forget: nothing is remembered under {id!r}; find its id with a query")
    [row] = keeping.forget(agent, id)
    return result(f"Forgotten: {row.id}", forgotten=[row.id])


def _lines(hits: Iterable[Hit]) -> str:
    found = [hit.row for hit in hits]
    warning = [WARNING] if any(row.trust == "untrusted" for row in found) else []
    return "\n".join([*map(line, found), *warning])
