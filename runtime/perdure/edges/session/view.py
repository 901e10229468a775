"""From the nodes of a live branch to the decoded view, its settings, and visible markers over holes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from perdure.context.truncation.dag import Hole, Node
from perdure.edges.session.decode import decode_entry, entry_summary, line_message
from perdure.edges.session.facts import Gap, PathEntry, Settings
from perdure.edges.session.own import facts_of
from perdure.records import Assistant, Custom, Item, Items, Message, Text

GAP_KIND: Final = "perdure.gap"
_GAP: Final = (Text("[... entries are missing from the session file here ...]"),)

Read = Callable[[Node], bytes]


def items_of(nodes: Sequence[Node], compaction: Node | None, holes: Sequence[Hole], read: Read) -> Items:
    """The view of `nodes` (first kept entry to leaf): summary first, then messages, gaps marked."""
    items: list[Item] = []
    if compaction is not None:
        items.append(Item(compaction.id, entry_summary(decode_entry(read(compaction)))))
    open_holes = {hole.child for hole in holes}
    for node in nodes:
        if node.id in open_holes:
            open_holes.discard(node.id)
            items.append(gap())
        if (message := message_of(node, read)) is not None:
            items.append(Item(node.id, message))
    items.extend(gap() for _ in open_holes)  # the leaf itself is lost: a line of ours named it
    return tuple(items)


def gap() -> Item:
    """The marker of a hole."""
    return Item("", Custom(GAP_KIND, _GAP))


_SPEAKING: Final = frozenset({"message", "custom_message", "branch_summary"})


def message_of(node: Node, read: Read) -> Message | None:
    """What one entry puts into the view."""
    return line_message(read(node), node.type) if node.type in _SPEAKING else None


def gaps_of(holes: Iterable[Hole]) -> tuple[Gap, ...]:
    """Holes as facts."""
    return tuple(Gap(hole.child, hole.missing, hole.bridged_to) for hole in holes)


def path_entries(nodes: Iterable[Node]) -> tuple[PathEntry, ...]:
    """The heads of a view."""
    return tuple(PathEntry(n.type, n.id, n.parent, n.start, n.end) for n in nodes)


class Found:
    """Settings as the nearest entries say, leaf first: feed it a branch backwards until `complete`."""

    def __init__(self) -> None:
        self.thinking: str | None = None
        self.model: tuple[str, str] | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing older can say more."""
        return self.thinking is not None and self.model is not None

    def add(self, node: Node, read: Read) -> None:
        """One entry of the branch."""
        if node.type == "thinking_level_change" and self.thinking is None:
            self.thinking = decode_entry(read(node)).thinkingLevel
        elif node.type == "model_change" and self.model is None:
            entry = decode_entry(read(node))
            if entry.provider and entry.modelId:
                self.model = entry.provider, entry.modelId
        elif node.type == "message" and self.model is None:
            message = message_of(node, read)
            if (
                isinstance(message, Assistant)
                and message.provider
                and message.model
                and not _aside(node, read)
            ):
                self.model = message.provider, message.model

    def over(self, base: Settings) -> Settings:
        """What was found, and `base` for the rest."""
        provider, model = self.model or (base.provider, base.model)
        return Settings(provider, model, self.thinking or base.thinking, base.engine)


def settings_of(branch: Iterable[Node], read: Read) -> Found:
    """The settings along a branch given leaf first; reads no further than it must."""
    found = Found()
    for node in branch:
        if found.complete:
            break
        found.add(node, read)
    return found


def _aside(node: Node, read: Read) -> bool:
    """Whether a model answered for another: that the session chose it, an older entry must say."""
    raw = read(node)
    facts = facts_of(decode_entry(raw)) if b'"stand_in"' in raw else None
    return facts is not None and facts.stand_in
