"""`perdure context --why ENTRY`: what became of one entry, by which rule, and where its text is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.cli.output import one_line, say
from perdure.context.truncation.dag import Node
from perdure.context.truncation.plan import RECORDS
from perdure.edges import segments
from perdure.edges.segments import Segment
from perdure.edges.session.history import shown
from perdure.edges.session.load import Loaded, load
from perdure.errors import UnreadableFile, UsageError

LONGEST = 2_000  # characters of the entry's text

Line = dict[str, Any]


def explain(path: Path, ledger: list[Line], text: str) -> tuple[list[Line], Line]:
    """The entry's lines, and `about` it: id, place, text. Raises `UsageError` where nothing is to say."""
    loaded = load(path)
    moved_out = loaded.node(text) is None and any(node.custom in RECORDS for node in loaded.nodes)
    kept = _segments(path) if moved_out else {}
    id = _find(path, {*kept, *(node.id for node in loaded.nodes)}, text)
    lines = [line for line in ledger if line["entry"] == id]
    node = loaded.node(id)
    if not lines and (moved := kept.get(id)) is not None:
        lines = [_covered(id, moved)]
    if not lines:
        raise UsageError(f"{id}: {_elsewhere(loaded, node)}")
    raw = loaded.raw(node) if node is not None else kept[id].read(id)
    said = shown(raw)
    place = "file" if node is not None else f"segment {kept[id].path.name}"
    about = {"entry": id, "place": place, "characters": len(said), "text": said[:LONGEST]}
    return lines, about | {"read": f"the agent reads it whole by the tool recall with {id}"}


def show(about: Line) -> None:
    """Where the text is, and how it begins."""
    where = "the session file" if about["place"] == "file" else f"the {about['place']}"
    say(f"its text ({about['characters']:,} characters) is in {where}; {about['read']}")
    say(f"  {one_line(about['text'], 400)}")


def _segments(path: Path) -> dict[str, Segment]:
    found: dict[str, Segment] = {}
    for place in segments.segments_of(path):
        try:
            segment = Segment(place)
        except (UnreadableFile, OSError):
            continue
        found |= dict.fromkeys(segment.ids(), segment)
    return found


def _find(path: Path, known: set[str], text: str) -> str:
    if text in known:
        return text
    found = sorted(id for id in known if text and id.startswith(text))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{text}: no entry of that id is in {path}")
    raise UsageError(f"{text}: {len(found)} entries begin so ({', '.join(found[:4])}): give the whole id")


def _covered(id: str, segment: Segment) -> Line:
    """An entry that only a segment has."""
    moved = f"moved out by truncation, in the segment {segment.path.name}"
    by = segment.index.covers(id)
    if by is None:
        return _line(id, "covered", f"compaction: covered by a summary; {moved}")
    if by:
        return _line(id, "covered", f"compaction: summarised by {by}; {moved}")
    return _line(id, "left_out", f"branch: on a branch that was left, or beside one; {moved}")


def _line(id: str, decision: str, rule: str) -> Line:
    return {"entry": id, "decision": decision, "rule": rule, "tokens": 0, "zone": "stable"}


def _elsewhere(loaded: Loaded, node: Node | None) -> str:
    """Why no line of the ledger is about an entry of the file."""
    if node is not None and node.off_chain:
        return f"a note of perdure's own ({node.custom}) beside the branches; no request shows it"
    ends = "`perdure sessions tree` shows it, `sessions switch` goes there"
    return f"this entry stands on another branch of the file, or beside it; no request shows it; {ends}"
