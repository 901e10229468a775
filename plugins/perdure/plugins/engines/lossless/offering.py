"""What the host may commit of a compaction, so that its own view of the session, which this engine does not
send, stays bounded too: what wakes, what is held in memory, what another engine would begin with.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.context.compaction.serialize import serialize_item
from perdure.plugins.engines.lossless.live import Live
from perdure.plugins.engines.lossless.pieces import Node
from perdure.records import Item, Record


class Offer(Record):
    """`first_kept` "": there is nothing worth it. `tokens`: about how many the host would be rid of."""

    summary: str = ""
    first_kept: str = ""
    tokens: int = 0


NOTHING = Offer()


def offered(live: Live, messages: Mapping[str, Item], given: int, budget: int) -> Offer:
    """The head of the view as one text, once the host carries more than a budget of what it stands for.

    `messages`: those of the head by entry; `given`: how many the host had for the latest request.
    """
    nodes = [piece for piece in live.head if isinstance(piece, Node)]
    covered, below = given - len(live.tail), sum(node.messages for node in nodes)
    if not below or covered <= 0 or not live.tail:
        return NOTHING
    tokens = sum(node.source_tokens for node in nodes) * min(covered, below) // below
    if tokens <= max(budget, 3 * sum(node.tokens for node in nodes)):
        return NOTHING
    return Offer(_told(live, messages), next(iter(live.tail)), tokens)


def _told(live: Live, messages: Mapping[str, Item]) -> str:
    texts = (
        piece.text if isinstance(piece, Node) else serialize_item(messages[piece.entry])
        for piece in live.head
    )
    return "\n\n".join(filter(None, texts))
