"""Brings entries back from segments into the file, where a branch is to go on that needs them.

The inverse of truncation, for chosen entries: their bytes are spliced in before what followed them, and
links lead through them again. One new file by temp file and rename; a line may be added at its end in
the same step. Segments stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from perdure.context.truncation.dag import Node
from perdure.edges import disk
from perdure.edges.session import lines, own, splice
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.files import Held
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.rewrite import Edit, builder
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile


def rewrite(
    held: Held, loaded: Loaded, wanted: Sequence[Node], tail: bytes, expected: Sequence[str], now_ms: int
) -> None:
    """Put `wanted` (nodes of `loaded.past`) back and `tail` (whole lines) at the end, or do nothing.

    `expected`: the entries that the file must show afterwards. Raises `UnreadableFile` where it would
    show others, and as `LocalSessionFile.commit` does. Blocking; no append meanwhile.
    """
    edits = list(_edits(loaded, wanted, lambda: held.ids.entry(now_ms), now_ms)) if wanted else []
    with Path(loaded.path).open("rb") as file:
        file.seek(-1, 2)
        torn = file.read(1) != b"\n"
    end = b"\n" + tail if torn and tail else tail
    staged = held.file.stage(builder(loaded, edits, end), loaded.file.size)
    later = load(staged.temp)
    shown = [item.entry for item in later.opened(decode=True).items]
    if shown != list(expected) or len(later.stale) > len(loaded.stale):
        disk.unlink(staged.temp)
        why = "damage in the file stands in the way; `perdure doctor` says more"
        raise UnreadableFile(f"{loaded.path}: {why}")
    held.file.commit(staged)
    held.opened = open_session(loaded.path)


def _edits(loaded: Loaded, wanted: Sequence[Node], new_id: Callable[[], str], now_ms: int) -> Iterable[Edit]:
    here = {node.id for node in (*loaded.nodes, *wanted)}
    parents = {node.id: _new_parent(loaded, node, here) for node in wanted}
    cut = {n.id: n.parent for n in wanted if n.parent and parents[n.id] != n.parent}
    first = min(_place(loaded, node) for node in wanted)
    epoch = max((n.epoch for n in loaded.nodes if n.start < first), default=0)
    note = lines.restored_line(new_id(), None, now_ms, max(0, epoch), len(wanted), cut)
    yield first, first, note
    for node in wanted:
        at, raw = _place(loaded, node), loaded.past.read(node)
        yield at, at, splice.put(raw, "parentId", parents[node.id]) + b"\n"
    yield from _links(loaded, here)


def _links(loaded: Loaded, here: set[str]) -> Iterable[Edit]:
    graph = loaded.past.graph
    for node in loaded.nodes:
        parent = _nearest(loaded, graph.nodes[graph.by_id[node.id]], here)
        if parent != node.parent and (parent is None or parent in here):
            yield node.start, node.end, splice.put(loaded.raw(node), "parentId", parent)


def _new_parent(loaded: Loaded, node: Node, here: set[str]) -> str | None:
    parent = _nearest(loaded, node, here)
    return None if parent not in here and loaded.past.lost else parent


def _nearest(loaded: Loaded, node: Node, here: set[str]) -> str | None:
    """The parent an entry gets: the nearest of its first ancestors that is in the new file.

    An id that is in no segment either: the hole was there before, or a segment is gone.
    """
    graph, seen = loaded.past.graph, {node.id}
    above = node.parent
    while above and above not in here and above not in seen and above in graph.by_id:
        seen.add(above)
        above = graph.nodes[graph.by_id[above]].parent
    return None if not above or above in seen else above


def _place(loaded: Loaded, node: Node) -> int:
    """Where its line goes: where its segment is named, behind all lines of earlier epochs.

    A line of a higher epoch before one of a lower would void that one, and the other way round.
    """
    named = [n for n in loaded.nodes if n.off_chain and n.custom == f"{own.PREFIX}segment"]
    holds = loaded.past.segment_of(node)
    of_it = [n for n in named if own.segment_of(decode_entry(loaded.raw(n))) == holds]
    start = min(n.start for n in of_it or named or loaded.nodes)
    before = [n.start for n in loaded.nodes if 0 <= n.epoch < node.epoch]
    floor = max([*before, -1])
    return start if start > floor else _behind(loaded, floor)


def _behind(loaded: Loaded, start: int) -> int:
    """Where the first entry behind the one at `start` begins, else the end of the file."""
    return min((n.start for n in loaded.nodes if n.start > start), default=loaded.file.size)
