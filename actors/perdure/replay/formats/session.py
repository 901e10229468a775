"""Session files of pi and OpenClaw (and ours), versions 1 to 3, through the runtime's own reader.

Only the live branch is a recording; entries of other branches are counted.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from perdure.context.pictures.kept import lacking
from perdure.edges.blobs import with_images
from perdure.edges.session.decode import WireEntry, decode_entry, entry_message, millis
from perdure.edges.session.load import Loaded, load
from perdure.records import Item, Message
from perdure.replay.recording import Change, Event, Recording, counted

GONE = "images whose kept bytes are not beside the session"
_LABELS = {
    "message": "messages of unknown roles",
    "compaction": "compactions (the replay makes its own)",
    "branch_summary": "branch summaries",
    "custom": "custom entries",
    "label": "labels",
    "session_info": "session names",
}


def read(path: Path) -> Recording:
    """Raises UnreadableFile."""
    loaded = load(path)
    lost = Counter({"damaged records": sum(found.severity == "damage" for found in loaded.problems)})
    events = _events(loaded, lost, evidence_of(path))
    header = loaded.header
    return Recording(
        format=f"session-v{header.version}",
        events=events,
        entries=len(loaded.nodes),
        lost=counted(lost),
        cwd=header.cwd,
        start=millis(header.timestamp),
    )


def _events(loaded: Loaded, lost: Counter[str], evidence: Path) -> tuple[Event, ...]:
    branch = loaded.branch()
    live = {node.start for node in branch}
    lost["entries of other branches"] = len(loaded.nodes) - len(live)
    found: dict[int, Event] = {}
    for node, raw in loaded.entries():
        if node.start not in live:
            continue
        entry = decode_entry(raw)
        event = _event(entry, evidence)
        if event is None:
            lost[_LABELS.get(entry.type, f"{entry.type} entries")] += 1
        else:
            found[node.start] = event
            lost[GONE] += isinstance(event.what, Message) and bool(lacking(event.what))
    return tuple(found[node.start] for node in branch if node.start in found)


def evidence_of(path: Path) -> Path:
    """Where the host of a session keeps its images: beside the folder of all sessions."""
    folder = next((parent for parent in path.resolve().parents if parent.name == "sessions"), path.parent)
    return folder.parent / "evidence"


def _event(entry: WireEntry, evidence: Path) -> Event | None:
    time = millis(entry.timestamp)
    if entry.type == "model_change" and entry.provider and entry.modelId:
        return Event(time, Change("model", f"{entry.provider}/{entry.modelId}"))
    if entry.type == "thinking_level_change" and entry.thinkingLevel:
        return Event(time, Change("thinking", entry.thinkingLevel))
    message = entry_message(entry)
    if message is None:
        return None
    (item,) = with_images((Item("", message),), evidence)
    return Event(time, item.message)
