"""Moving between the branches of a session file: going back to an entry, undoing a compaction, labels.

Only the owner does this, with the session at rest. What a view needs and truncation moved out comes back
from its segment first. A branch move is one off-chain line whose parent is the chosen entry; a checkpoint
behind it carries the decisions of the view that is shown now, so that its prompt has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION, Node, View
from perdure.edges import segments
from perdure.edges.session import lines
from perdure.edges.session.copying import answered, checkpoint_of, copies, of_view, renamed
from perdure.edges.session.facts import Opened
from perdure.edges.session.files import Held
from perdure.edges.session.heads import heads
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.restore import rewrite
from perdure.edges.session.scan import Line
from perdure.edges.session.tail import open_session
from perdure.edges.session.view import message_of
from perdure.errors import PerdureError, UsageError
from perdure.records import Assistant, Decision, Item, Items, Record, ToolResult, User

Fits = Callable[[Items, Mapping[str, Decision]], str]


class Branched(Record):
    """What a move did. `restored` entries came back from segments; `copied` are (entry, its copy)."""

    done: bool
    reason: str = ""
    leaf: str | None = None
    restored: int = 0
    copied: tuple[tuple[str, str], ...] = ()
    compaction: str = ""


# --- which entry ----------------------------------------------------------------------------------


def find(loaded: Loaded, text: str) -> str:
    """The id that `text` names: an id, a label, or the beginning of exactly one id.

    Raises `UsageError` for what is none or several.
    """
    ids = {node.id for node in loaded.past.graph.nodes if not node.off_chain}
    if text in ids:
        return text
    labelled = [target for target, label in loaded.labels().items() if label == text]
    found = labelled or sorted(id for id in ids if text and id.startswith(text))
    if len(found) == 1:
        return found[0]
    if not found:
        gone = f" (segments that are gone: {', '.join(loaded.past.lost)})" if loaded.past.lost else ""
        raise UsageError(f"{text}: no entry of that id or label in {loaded.path}{gone}: see `sessions tree`")
    what = "labelled so" if labelled else "that begin so"
    raise UsageError(f"{text}: {len(found)} entries {what} ({', '.join(found[:4])}): give the whole id")


# --- going back -----------------------------------------------------------------------------------


def switch(held: Held, text: str, now_ms: int) -> Branched:
    """Make the entry that `text` names the end of the session's branch. Nothing is deleted.

    Raises `UsageError`, `SegmentGone`, and what an append raises. Blocking.
    """
    loaded = load(held.file.path)
    target = find(loaded, text)
    if target == held.opened.leaf:
        return Branched(False, f"the session stands at {target} already", target)
    opened = loaded.opened(target)
    wanted = _from_segments(loaded, opened)
    decisions = of_view(loaded.past.decisions(), opened.items)
    if wanted:
        before = [item.entry for item in held.opened.items]
        rewrite(held, loaded, wanted, b"", before, now_ms)
    _append(held, lambda leaf, id: lines.branch_line(id, target, now_ms, held.file.epoch), now_ms)
    record = checkpoint_of(held.opened, held.file.epoch, decisions)
    _append(held, lambda leaf, id: lines.checkpoint_line(id, leaf, now_ms, record), now_ms)
    _rest(held, now_ms)
    return Branched(True, leaf=target, restored=len(wanted))


def complete(held: Held, now_ms: int) -> int:
    """Bring back what the view needs where another program went on behind an entry inside a branch.

    It knows nothing of segments: what it shows there is what truncation left. How many entries came
    back. Looks further only if the branch ends in an entry of another program, and there are segments.
    Raises as `switch`.
    """
    if not _shortened(held.opened):
        return 0
    loaded = load(held.file.path)
    whole = loaded.opened(held.opened.entries[-1].id)
    wanted = _from_segments(loaded, whole)
    if wanted:
        rewrite(held, loaded, wanted, b"", [item.entry for item in whole.items], now_ms)
    return len(wanted)


def completed(opened: Opened) -> Opened:
    """The view as a waking host would complete it, for who only looks. Changes nothing.

    As it is in the file where what it needs is gone: the host, too, goes on with that.
    """
    if not _shortened(opened):
        return opened
    try:
        return load(opened.path).opened(opened.entries[-1].id)
    except (PerdureError, OSError, KeyError):
        return opened


def _shortened(opened: Opened) -> bool:
    """Whether another program may have gone on behind an entry whose view needs what was moved out."""
    return bool(opened.entries and segments.segments_of(Path(opened.path))) and not _ours(opened)


def _ours(opened: Opened) -> bool:
    last = opened.entries[-1]
    with Path(opened.path).open("rb") as file:
        file.seek(last.start)
        found = heads(Line(0, 0, file.read(last.end - last.start)))[0]
    return bool(found) and found[0].epoch >= 0


def _from_segments(loaded: Loaded, opened: Opened) -> list[Node]:
    graph = loaded.past.graph
    nodes = (graph.nodes[graph.by_id[entry.id]] for entry in opened.entries)
    return [node for node in nodes if node.start < 0]


def _rest(held: Held, now_ms: int) -> None:
    """Who goes back to a question looks at it: only what is said next is answered."""
    last = held.opened.items[-1] if held.opened.items else None
    if last is None or not waits(last):
        return
    entry, epoch = last.entry, held.file.epoch
    _append(held, lambda leaf, id: lines.resume_line(id, leaf, now_ms, entry, epoch, never=True), now_ms)


def waits(last: Item) -> bool:
    message = last.message
    if isinstance(message, Assistant):
        return message.stop == "toolUse"
    return isinstance(message, User | ToolResult)


def _append(held: Held, make: Callable[[str | None, str], bytes], now_ms: int) -> None:
    held.file.append((make(held.opened.leaf, held.ids.entry(now_ms)),))
    held.opened = open_session(held.file.path)


# --- undo -----------------------------------------------------------------------------------------


def undo(held: Held, fits: Fits, now_ms: int) -> Branched:
    """Undo the latest compaction: go on behind the entry before it, with what was said since.

    Later entries are copied under new ids (`perdure.of` names the first one); the branch with the
    compaction stays, marked as left for good. `fits(items, decisions)` says why the view can't be sent
    ("": it can). All of it is one new file. Raises as `switch`.
    """
    loaded = load(held.file.path)
    leaf = held.opened.leaf
    view = loaded.past.view(leaf) if leaf is not None else View(None)
    if view.compaction is None:
        return Branched(False, "this branch has no compaction: there is nothing to undo")
    path = [loaded.past.graph.nodes[at] for at in view.path]
    made, later = path[view.compaction], path[view.compaction + 1 :]
    if view.compaction == 0:
        why = f"the compaction {made.id} is the first entry of its branch: what it covered is not here"
        return Branched(False, why, compaction=made.id)
    return _undo(held, loaded, path[view.compaction - 1].id, made.id, later, fits, now_ms)


def _undo(
    held: Held, loaded: Loaded, target: str, made: str, later: list[Node], fits: Fits, now_ms: int
) -> Branched:
    opened = loaded.opened(target)
    again = (node for node in later if node.type != "session_info" and not node.off_chain)
    copied = {node.id: held.ids.entry(now_ms) for node in again}
    said = [(node, message_of(node, loaded.past.read)) for node in later]
    items = (*opened.items, *(Item(copied[node.id], m) for node, m in said if m is not None))
    decisions = of_view(
        {d.key: d for d in (renamed(d, copied) for d in loaded.past.decisions().values())}, items
    )
    if why := fits(items, decisions):
        return Branched(False, why, compaction=made)
    wanted = _from_segments(loaded, opened)
    epoch = held.file.epoch
    rows = [lines.branch_line(held.ids.entry(now_ms), target, now_ms, epoch, abandoned=held.opened.leaf)]
    rows += copies(loaded, later, target, copied, epoch)
    end = next((copied[n.id] for n in reversed(later) if n.id in copied), target)
    record = replace(checkpoint_of(held.opened, epoch, decisions), leaf=end, prev=opened.compaction)
    record = replace(record, ranges=(), gaps=opened.gaps, recent=answered(held.opened, copied))
    rows.append(lines.checkpoint_line(held.ids.entry(now_ms), end, now_ms, record))
    rewrite(held, loaded, wanted, b"".join(rows), [item.entry for item in items], now_ms)
    return Branched(True, "", end, len(wanted), tuple(copied.items()), made)


# --- decisions and checkpoints --------------------------------------------------------------------


def checkpoint(held: Held, now_ms: int) -> None:
    """A new checkpoint off the chain, unless the branch ends in a compaction (nothing follows one)."""
    leaf = load(held.file.path).node(held.opened.leaf or "")
    if leaf is not None and leaf.type == COMPACTION:
        return
    record = checkpoint_of(held.opened, held.file.epoch, {d.key: d for d in held.opened.decisions})
    _append(held, lambda leaf, id: lines.checkpoint_line(id, leaf, now_ms, record), now_ms)


# --- names ----------------------------------------------------------------------------------------


def label(held: Held, text: str, name: str, now_ms: int) -> Branched:
    """Name an entry (an empty name takes it away). One in a segment comes back into the file."""
    loaded = load(held.file.path)
    target = find(loaded, text)
    node = loaded.past.graph.nodes[loaded.past.graph.by_id[target]]
    if loaded.labels().get(target, "") == name:
        return Branched(False, f"{target} is {'called so' if name else 'without a label'} already", target)
    wanted = [node] if node.start < 0 else []
    if wanted:
        rewrite(held, loaded, wanted, b"", [item.entry for item in held.opened.items], now_ms)
    epoch = held.file.epoch
    _append(held, lambda leaf, id: lines.label_line(id, leaf, now_ms, target, name or None, epoch), now_ms)
    return Branched(True, leaf=held.opened.leaf, restored=len(wanted))


def rename(held: Held, name: str, now_ms: int) -> Branched:
    """Name the session."""
    if (held.opened.name or "") == name:
        return Branched(False, "the session is called so already", held.opened.leaf)
    epoch = held.file.epoch
    _append(held, lambda leaf, id: lines.session_info_line(id, leaf, now_ms, name, epoch), now_ms)
    return Branched(True, leaf=held.opened.leaf)
