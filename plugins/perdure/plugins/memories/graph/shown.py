"""What the graph holds as lines that a model reads; every line says how far it is to be trusted. Pure."""

from __future__ import annotations

from perdure.contracts.memories import Recalled
from perdure.plugins.memories.graph.entities import Entity
from perdure.plugins.memories.graph.merging import Merge
from perdure.plugins.memories.graph.reading import Edge
from perdure.plugins.memories.graph.store import Answer, Stored
from perdure.plugins.memories.graph.times import to_text
from perdure.plugins.memories.trust import WARNING

MAX_SHOWN = 50


def card(entity: Entity, aliases: tuple[str, ...]) -> str:
    """An entity with its names."""
    also = [name for name in aliases if name != entity.name]
    called = f", also called {', '.join(also)}" if also else ""
    return f"{entity.ref} [{entity.trust}] {entity.name} ({entity.kind}){called}"


def told(relation: str, stored: Stored) -> str:
    """What was stored, and what ended by it."""
    state = "Remembered" if stored.related.new else "Known already, updated"
    source, target = stored.source, stored.target
    lines = [
        f"{state}: r{stored.related.id} {source.name} ({source.ref}, {source.kind}) {relation} "
        f"{target.name} ({target.ref}, {target.kind})."
    ]
    lines += [f"Ended by it: {edge.ref} {sentence(edge)}." for edge in stored.ended]
    return "\n".join(lines)


def sentence(edge: Edge) -> str:
    """`Ada WorksAt Acme, since 2026-01-05`."""
    since = f", since {to_text(edge.since)}" if edge.since is not None else ""
    until = f", until {to_text(edge.until)}" if edge.until is not None else ""
    return f"{edge.source} {edge.relation} {edge.target}{since}{until}"


def answer(found: Answer) -> str:
    """All edges or paths of an answer."""
    if found.unknown:
        return f"Nothing is remembered under the name {' or '.join(map(repr, found.unknown))}."
    lines = [_line(edge) for edge in found.edges]
    for path in found.paths:
        lines.append(f"A way of {len(path)}:")
        lines += [f"  {_line(edge)}" for edge in path]
    if not lines:
        return "Nothing that fits is remembered."
    shown = (*found.edges, *(edge for path in found.paths for edge in path))
    return "\n".join([*lines, WARNING] if any(edge.trust == "untrusted" for edge in shown) else lines)


def merges(made: tuple[Merge, ...]) -> str:
    """What consolidation did."""
    if not made:
        return "Merged 0: nothing is remembered twice."
    lines = [f"- merge {merge.id}: {merge.gone} is now part of {merge.kept}" for merge in made[:MAX_SHOWN]]
    more = [f"- and {len(made) - MAX_SHOWN} more"] if len(made) > MAX_SHOWN else []
    return "\n".join([f"Merged {len(made)} (undo takes one back):", *lines, *more])


def recalled(found: Answer, chars: int) -> tuple[Recalled, ...]:
    """Edges as remembered texts, together at most `chars` characters."""
    kept: list[Recalled] = []
    for edge in found.edges:
        text = sentence(edge)
        if len(text) <= chars:
            chars -= len(text)
            kept.append(_recalled(edge, text))
    return tuple(kept)


def _recalled(edge: Edge, text: str) -> Recalled:
    return Recalled(
        text,
        f"graph:{edge.ref}",
        min(1.0, edge.strength),
        edge.trust,
        tuple(ref for _, ref in edge.told_in if not ref.startswith("call:")),
        edge.recorded,
        edge.past,
    )


def _line(edge: Edge) -> str:
    """Marks stand in front: a name could hold brackets of its own, but no line end."""
    where = ", ".join(f"{session} {ref}" for session, ref in edge.told_in[:1])
    marks = [edge.trust, *(["past"] if edge.past else []), f"confidence {edge.confidence:g}"]
    kinds = f"{edge.source_kind} → {edge.target_kind}"
    told = f"told {to_text(edge.recorded)} in {where}"
    return f"{edge.ref} [{', '.join(marks)}] {sentence(edge)} ({kinds}; {told})"
