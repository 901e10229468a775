"""`rewrite_transcript_entries`: other messages in place of some, by a branch that begins before the first.

Nothing is edited in place and nothing is deleted: the old branch stays, marked as left for good, and what
followed is written again under new ids. Labels, branch summaries, compactions and decisions follow their
entries. (OpenClaw's rule; there the compaction's anchor and labels are remapped, decisions don't exist.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION, Node
from perdure.contracts import Replacement, Rewritten
from perdure.edges.session import lines, splice, tolerant
from perdure.edges.session.copying import answered, checkpoint_of, copies, of_view, renamed
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.encode import encode_message
from perdure.edges.session.files import Held
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.restore import rewrite
from perdure.records import Decision, Item, Items, Message


def rewrite_entries(held: Held, now_ms: int, *, replacements: tuple[Replacement, ...]) -> Rewritten:
    """Branch, write again, remap. Raises `UnreadableFile`, and as `LocalSessionFile.commit`. Blocking.

    Only `message` entries that the view shows match; the last replacement of an entry counts.
    """
    wanted = {each.entry: each.message for each in replacements if each.entry.strip()}
    if not wanted:
        return Rewritten(False, reason="no replacements requested")
    if held.opened.leaf is None:
        return Rewritten(False, reason="empty session")
    loaded = load(held.file.path)
    view = loaded.past.view(held.opened.leaf)
    path = [loaded.past.graph.nodes[at] for at in view.path]
    shown = {item.entry for item in held.opened.items}
    matched = [node for node in path if node.id in wanted and node.id in shown and node.type == "message"]
    if not matched:
        return Rewritten(False, reason="no matching message entries")
    at = path.index(matched[0])
    if at == 0:  # nothing lies before it to branch from
        return Rewritten(False, reason="invalid first rewrite target")
    changed = {node.id: encode_message(wanted[node.id]) for node in matched}
    freed = sum(
        max(0, len(bytes(decode_entry(loaded.past.read(n)).message)) - len(changed[n.id])) for n in matched
    )
    _Branch(held, loaded, path[at - 1].id, path[at:], wanted, changed, now_ms).write()
    return Rewritten(True, len(matched), freed)


class _Branch:
    """The new branch behind `parent`: `later` entries again, some with another message."""

    def __init__(
        self,
        held: Held,
        loaded: Loaded,
        parent: str,
        later: list[Node],
        wanted: Mapping[str, Message],
        changed: Mapping[str, bytes],
        now_ms: int,
    ) -> None:
        self.held, self.loaded, self.parent, self.later = held, loaded, parent, later
        self.wanted, self.changed, self.now_ms = wanted, changed, now_ms
        self.epoch = held.file.epoch
        self.copied = {node.id: held.ids.entry(now_ms) for node in later if not node.off_chain}

    def write(self) -> None:
        """Append it in one step, verified before it counts."""
        held, now = self.held, self.now_ms
        left = lines.branch_line(
            held.ids.entry(now), self.parent, now, self.epoch, abandoned=held.opened.leaf
        )
        rows = copies(self.loaded, self.later, self.parent, self.copied, self.epoch, self._change)
        end = next(self.copied[node.id] for node in reversed(self.later) if node.id in self.copied)
        if self.later[-1].type != COMPACTION:  # one carries its own, and nothing of ours stands behind it
            rows.append(lines.checkpoint_line(held.ids.entry(now), end, now, self._checkpoint(end)))
        expected = [item.entry for item in self.items]
        rewrite(held, self.loaded, (), left + b"".join(rows), expected, now)

    @property
    def items(self) -> Items:
        """The view as it will be."""
        old = self.held.opened.items
        return tuple(
            Item(self.copied.get(item.entry, item.entry), self.wanted.get(item.entry, item.message))
            for item in old
        )

    @property
    def decisions(self) -> dict[str, Decision]:
        """Those of what stays as it is; what was replaced is decided anew."""
        old = (d for d in self.held.opened.decisions)
        kept = {d.key: d for d in old}
        for entry in self.changed:
            kept = {key: d for key, d in kept.items() if entry not in key}
        return of_view({d.key: d for d in (renamed(d, self.copied) for d in kept.values())}, self.items)

    def _checkpoint(self, leaf: str) -> Any:
        record = checkpoint_of(self.held.opened, self.epoch, self.decisions)
        prev = self.held.opened.compaction
        return replace(
            record,
            leaf=leaf,
            prev=None if prev is None else self.copied.get(prev, prev),
            ranges=(),
            recent=answered(self.held.opened, self.copied),
        )

    def _change(self, node: Node, raw: bytes) -> bytes:
        if node.id in self.changed:
            return splice.put_raw(raw, "message", self.changed[node.id])
        if node.type == COMPACTION:
            return self._compaction(node, raw)
        if node.type == "branch_summary":
            source = tolerant.loads(raw).get("fromId", "")
            return splice.put(raw, "fromId", self.copied[source]) if source in self.copied else raw
        return raw

    def _compaction(self, node: Node, raw: bytes) -> bytes:
        """Its anchor is the copy of what it kept; its checkpoint speaks of the new branch."""
        entry = tolerant.loads(raw)
        anchor = entry.get("firstKeptEntryId", "")
        raw = splice.put(raw, "firstKeptEntryId", self.copied.get(anchor, anchor))
        details = entry.get("details")
        ours = details.get("perdure") if isinstance(details, dict) else None
        if not isinstance(ours, dict):
            return raw
        if isinstance(ours.get("proof"), dict) and ours["proof"].get("first_kept") in self.copied:
            ours["proof"]["first_kept"] = self.copied[ours["proof"]["first_kept"]]
        ours.pop("checkpoint", None)
        ours["e"] = self.epoch  # of an older one it would count as a stale owner's
        return splice.put(raw, "details", details)
