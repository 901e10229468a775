"""`perdure sessions tree`: every branch of a session file, what truncation moved out included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.cli.output import emit, one_line, patience, say
from perdure.context.text.plural import counted
from perdure.context.truncation.dag import Node
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.history import said
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.view import message_of
from perdure.looking.target import find
from perdure.records import Assistant, BranchSummary, ToolResult, User

TEXT = 100  # characters of an entry's text
MOST_SHOWN = 2_000  # lines for a person

Row = dict[str, Any]


def run(target: str, *, state: Path | None, as_json: bool) -> int:
    """Print it. Changes nothing; takes a key or a session file of any origin."""
    found = find(target, state)
    patience(found.path)
    loaded = load(found.path)
    with loaded.reading():
        rows = list(_rows(loaded))
    leaf = loaded.view().leaf
    if as_json:
        lost = loaded.past.lost
        head = {"key": found.key, "file": os.fspath(found.path), "leaf": leaf, "lost_segments": lost}
        emit(head | {"entries": rows})
    else:
        _show(found.key or os.fspath(found.path), rows, leaf)
    return 0


def _rows(loaded: Loaded) -> Iterator[Row]:
    """Entries root first, a branch after the other; `depth` counts the forks above an entry."""
    graph, labels = loaded.past.graph, loaded.labels()
    leaf = loaded.view().leaf
    live = set(graph.walk(graph.by_id[leaf])[0]) if leaf is not None else set()
    children: dict[int | None, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        if graph.by_id[node.id] == at and not node.off_chain:
            children.setdefault(_above(loaded, at), []).append(at)
    seen: set[int] = set()
    starts = [*children.get(None, []), *(at for ats in children.values() for at in ats)]  # circles last
    for start in starts:
        stack = [(start, 0)]
        while stack:
            at, depth = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            below = children.get(at, [])
            yield _row(loaded, at, depth, labels, at in live, len(below))
            stack += [(child, depth + (len(below) > 1)) for child in reversed(below)]


def _above(loaded: Loaded, at: int) -> int | None:
    """The parent; entries of ours in between are passed over."""
    graph, seen = loaded.past.graph, {at}
    up = graph.parent(at)[0]
    while up is not None and graph.nodes[up].off_chain and up not in seen:
        seen.add(up)
        up = graph.parent(up)[0]
    return up


def _row(loaded: Loaded, at: int, depth: int, labels: dict[str, str], live: bool, below: int) -> Row:
    node = loaded.past.graph.nodes[at]
    who, text = _words(loaded, node)
    return {
        "id": node.id,
        "parent": node.parent,
        "type": node.type,
        "who": who,
        "text": one_line(text, TEXT),
        "label": labels.get(node.id),
        "current": live,
        "place": "segment" if node.start < 0 else "file",
        "depth": depth,
        "children": below,
    }


def _words(loaded: Loaded, node: Node) -> tuple[str, str]:
    if node.type == "compaction":
        return "summary", decode_entry(loaded.past.read(node)).summary or ""
    message = message_of(node, loaded.past.read)
    if message is None:
        return "", ""
    text = said(message)
    match message:
        case User():
            return "user", text.removeprefix("user: ")
        case Assistant():
            return "assistant", text.removeprefix("assistant: ")
        case ToolResult():
            return "tool", text
        case BranchSummary():
            return "summary", text.removeprefix("summary: ")
        case _:
            return "user", text


# --- for a person ---------------------------------------------------------------------------------


def _show(name: str, rows: list[Row], leaf: str | None) -> None:
    say(f"{name}: {counted(len(rows), 'entry')}, at {leaf or 'no entry yet'}")
    passed = shown = 0
    for row in rows:
        if not _telling(row, leaf):
            passed += 1
            continue
        shown += 1
        if shown > MOST_SHOWN:
            say("… and more: `--json` lists all")
            return
        if passed:
            say(f"{'  ' * row['depth']}    … {passed:,} more")
        passed = 0
        say(_line(row, leaf))
    if passed:
        say(f"    … {passed:,} more")


def _telling(row: Row, leaf: str | None) -> bool:
    """What one goes back to: questions, summaries, forks, ends, labels."""
    forks = row["children"] != 1
    return forks or row["who"] in ("user", "summary") or row["label"] or row["id"] == leaf


def _line(row: Row, leaf: str | None) -> str:
    mark = ">" if row["id"] == leaf else "*" if row["current"] else " "
    label = f" [{one_line(row['label'])}]" if row["label"] else ""
    place = " (in a segment)" if row["place"] == "segment" else ""
    return f"{'  ' * row['depth']}{mark} {row['id']}{label} {row['who'] or row['type']}: {row['text']}{place}"
