"""The tools of the graph: `memory_entity`, `memory_relate`, `memory_query`, `memory_tidy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.contracts.lending import PluginRuntime
from perdure.contracts.memories import Trust
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import flag, make_spec, number, text
from perdure.errors import PerdureError
from perdure.plugins.memories.graph import names, shown, times
from perdure.plugins.memories.graph.reading import MAX_HOPS
from perdure.plugins.memories.graph.store import Graph, Question, Statement
from perdure.plugins.memories.trust import agent_of
from perdure.records import ToolSpec

CALL = "call:"
_NAME = {"minLength": 1, "maxLength": names.MAX_NAME}
_LABEL = {"minLength": 1, "maxLength": names.MAX_LABEL}
_TIME = "a year, month, day or moment, like 2026-01-05"
_UNTRUSTED = flag("True if a web page, file or tool output says so, rather than the user or yourself")
_KINDS = ", ".join(names.KINDS)

ENTITY = make_spec(
    "memory_entity",
    "Remember a person, organisation, project, place or other thing, and what else it is called. "
    "Names in other spelling, case or width are known as the same.",
    "Remember a thing and its names",
    {
        "name": text("Its usual name", **_NAME),
        "kind": text(f"{_KINDS}, or a word of your own", **_LABEL),
        "aliases": {
            "type": "array", "items": text("Another name of it", **_NAME), "maxItems": 20,
            "description": "Other names, abbreviations, names in other scripts",
        },
        "untrusted": _UNTRUSTED,
    },
    required=("name",),
)  # fmt: skip
RELATE = make_spec(
    "memory_relate",
    "Remember how two things are related, from when and until when. Things that are new are added. Of a "
    "relation "
    "that has one target at a time (WorksAt, LocatedIn) the new one ends the old one. To end a relation, "
    "tell it again with valid_to.",
    "Remember a relation between two things",
    {
        "source": text("Name of the first thing, or its reference (e12)", **_NAME),
        "relation": text(f"{', '.join(names.RELATIONS)}, or one of your own", **_LABEL),
        "target": text("Name of the second thing, or its reference", **_NAME),
        "source_kind": text(f"Where it is new: {_KINDS}, or your own", **_LABEL),
        "target_kind": text("Where it is new: as for source_kind", **_LABEL),
        "valid_from": text(f"Since when it holds: {_TIME}", maxLength=40),
        "valid_to": text(f"Until when it held: {_TIME}", maxLength=40),
        "confidence": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "How sure it is (default 1)",
        },
        "untrusted": _UNTRUSTED,
    },
    required=("source", "relation", "target"),
)
QUERY = make_spec(
    "memory_query",
    "Ask what is remembered of things and their relations. Give source, relation and target as a pattern; "
    "leave out "
    "what you ask for. With hops above 1: one thing gives all around it, two give the ways between them.",
    "Ask for things and how they are related",
    {
        "source": text("Name or reference of the first thing", **_NAME),
        "relation": text("Only this relation", **_LABEL),
        "target": text("Name or reference of the second thing", **_NAME),
        "hops": number("How many relations away (default 1)", 1, MAX_HOPS),
        "as_of": text(f"What held then (default: now): {_TIME}", maxLength=40),
        "past": flag("Also what no longer holds"),
        "limit": number("Most results (default 20)", 1, 100),
    },
)
TIDY = make_spec(
    "memory_tidy",
    "Make things that are remembered twice into one, or take such a merge back by its number.",
    "Merge what is remembered twice",
    {"undo": number("The merge to take back", 1)},
)

Work: TypeAlias = Callable[[Graph, Mapping[str, Any], ToolContext, int], ToolOutput]


def graph_tools(graph: Graph, runtime: PluginRuntime) -> tuple[Tool, ...]:
    """All tools, their arguments checked."""
    made = ((ENTITY, _entity), (RELATE, _relate), (QUERY, _query), (TIDY, _tidy))
    return tuple(Checked(GraphTool(spec, work, graph, runtime)) for spec, work in made)


class GraphTool:
    """One tool: its work runs where blocking work does; what a model can act on is a result, not an error."""

    def __init__(self, spec: ToolSpec, work: Work, graph: Graph, runtime: PluginRuntime) -> None:
        self.spec = spec
        self._work, self._graph, self._runtime = work, graph, runtime

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        now = self._runtime.wall_ms()
        try:
            return await self._runtime.run_blocking(lambda: self._work(self._graph, arguments, context, now))
        except PerdureError as error:
            return failure(f"{self.spec.name}: {error}")


def _entity(graph: Graph, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    also = [names.named(name, "aliases") for name in given.get("aliases", ())]
    agent, kind = agent_of(context.session), names.kind(given["kind"]) if "kind" in given else ""
    entity = graph.add(agent, names.named(given["name"], "name"), kind, also, _trust(given), now)
    return result(shown.card(entity, graph.aliases(agent, entity.id)), id=entity.ref, kind=entity.kind)


def _relate(graph: Graph, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    said = Statement(
        source=names.named(given["source"], "source"),
        relation=names.relation(given["relation"]),
        target=names.named(given["target"], "target"),
        session=context.session,
        ref=f"{CALL}{context.call_id}",
        source_kind=names.kind(given["source_kind"]) if "source_kind" in given else "",
        target_kind=names.kind(given["target_kind"]) if "target_kind" in given else "",
        trust=_trust(given),
        valid_from=_time(given, "valid_from"),
        valid_to=_time(given, "valid_to"),
        confidence=float(given.get("confidence", 1.0)),
    )
    stored = graph.tell(agent_of(context.session), (said,), now)[0]
    ended = [edge.ref for edge in stored.ended]
    return result(shown.told(said.relation, stored), id=f"r{stored.related.id}", ended=ended)


def _query(graph: Graph, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    question = Question(
        source=names.named(given["source"], "source") if "source" in given else "",
        relation=names.relation(given["relation"]) if "relation" in given else "",
        target=names.named(given["target"], "target") if "target" in given else "",
        hops=given.get("hops", 1),
        at=_time(given, "as_of"),
        past=given.get("past", False),
        limit=given.get("limit", 20),
    )
    answer = graph.ask(agent_of(context.session), question, now)
    paths = [[edge.ref for edge in path] for path in answer.paths]
    return result(shown.answer(answer), found=[edge.ref for edge in answer.edges], paths=paths)


def _tidy(graph: Graph, given: Mapping[str, Any], context: ToolContext, now: int) -> ToolOutput:
    agent = agent_of(context.session)
    if "undo" in given:
        merge = graph.undo(agent, given["undo"])
        return result(f"{merge.gone} is a thing of its own again, apart from {merge.kept}.", undone=merge.id)
    merges = graph.consolidate(agent, now)
    return result(shown.merges(merges), merged=len(merges), merges=[merge.id for merge in merges])


def _trust(given: Mapping[str, Any]) -> Trust:
    """What a model tells is the agent's at most, even where it quotes the user."""
    return "untrusted" if given.get("untrusted", False) else "agent"


def _time(given: Mapping[str, Any], name: str) -> int | None:
    return times.to_ms(given[name], name) if given.get(name) else None
