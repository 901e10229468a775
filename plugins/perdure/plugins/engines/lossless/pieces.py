"""What a view is made of: messages as they are, and summaries that stand for others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, TypeAlias

from perdure.context.compaction.serialize import neutral
from perdure.contracts import Trust
from perdure.records import Assistant, Item, Message, Record, Text, User

Rung: TypeAlias = Literal["normal", "aggressive", "digest"]
_RANKS: tuple[Trust, ...] = ("untrusted", "agent", "owner", "system")


class Raw(Record):
    """A message of the view. `place`: its position on the path; `at`: ms since 1970, 0 where not told;
    `stub`: it is shown as the note of a large payload, which was decided once.
    """

    entry: str
    place: int
    role: str
    tokens: int
    at: int = 0
    trust: Trust = "untrusted"
    stub: bool = False

    @property
    def key(self) -> str:
        return f"m:{self.entry}"


class Node(Record):
    """A summary. `sources`: keys of what it stands for (`m:` messages, `s:` summaries), in order.

    `depth` 0: all of them are messages. `messages`, `source_tokens`: all that lie below; `first`, `last`:
    the range of entries; `replaces`: the digest of the same sources that it improves.
    """

    id: str
    depth: int
    sources: tuple[str, ...]
    text: str
    tokens: int
    messages: int
    source_tokens: int
    first: str
    last: str
    earliest: int
    latest: int
    rung: Rung
    trust: Trust
    model: str = ""
    made: int = 0
    replaces: str = ""

    @property
    def key(self) -> str:
        return f"s:{self.id}"

    @property
    def kind(self) -> Literal["leaf", "condensed"]:
        return "condensed" if self.depth else "leaf"


Piece: TypeAlias = Raw | Node
View: TypeAlias = tuple[Piece, ...]


def trust_of(message: Message) -> Trust:
    """Whose words a message holds: the owner's, the agent's; all else is not to be trusted."""
    if isinstance(message, User) and message.provenance is None:
        return "owner"
    return "agent" if isinstance(message, Assistant) else "untrusted"


def lowest(trusts: Iterable[Trust]) -> Trust:
    """What a text made of such sources deserves; an agent wrote it, so never more than an agent."""
    return min(("agent", *trusts), key=_RANKS.index)


def name_of(session: str, sources: tuple[str, ...], text: str) -> str:
    """The id of a summary: the same session, sources and text have the same."""
    told = "\x00".join((session, *sources, text))
    return f"sum_{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def shown(node: Node) -> Message:
    """A summary as the model gets it: a user's message whose frame says whose words these are not."""
    span = f'earliest="{moment(node.earliest)}" latest="{moment(node.latest)}"' if node.latest else ""
    head = " ".join(
        filter(
            None,
            (
                f'<summary id="{node.id}" kind="{node.kind}" depth="{node.depth}"',
                f'descendants="{node.messages}"',
                span,
                f'trust="{node.trust}">',
            ),
        )
    )
    return User((Text(f"{head}\n{neutral(node.text)}\n</summary>"),), node.latest)


def item_of(node: Node) -> Item:
    """The same as an item of a request; it stands for no entry of its own."""
    return Item("", shown(node))


def moment(ms: int) -> str:
    """Wall time as ISO 8601 in UTC, to the second."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)
