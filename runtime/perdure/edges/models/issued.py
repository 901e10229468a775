"""Remembers the thinking that a scripted model issued, so that a changed copy of it is refused.

The provider's rule: thinking blocks of the latest assistant message come back byte for byte, all of
them and in order, or not at all.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid
from perdure.records import Block, Thinking

REMEMBERED = 16_384  # answers


class Issued:
    """Answers with thinking, by each of their signatures; only digests are kept."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._answers: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._remembered = remembered

    def remember(self, blocks: tuple[Block, ...]) -> None:
        """Keep what one answer thought."""
        thoughts = [b for b in blocks if isinstance(b, Thinking) and b.signature]
        marks = tuple(_digest(b.signature or "", "" if b.redacted else b.thinking) for b in thoughts)
        for block in thoughts:
            self._answers[block.signature or ""] = marks
        while len(self._answers) > self._remembered:
            self._answers.popitem(last=False)

    def check(self, messages: list[Json]) -> None:
        """Refuse a latest assistant message whose thinking isn't as it was issued."""
        n = next((n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "assistant"), -1)
        if n < 0 or not isinstance(messages[n]["content"], list):
            return
        sent = [(m, block) for m, block in enumerate(messages[n]["content"]) if "thinking" in block["type"]]
        marks = tuple(_digest(_signature(block), block.get("thinking", "")) for _, block in sent)
        for m, block in sent:
            known = self._answers.get(_signature(block))
            if known is not None and known != marks:
                invalid(
                    f"messages.{n}.content.{m}: `thinking` or `redacted_thinking` blocks in the latest "
                    "assistant message cannot be modified. These blocks must remain as they were in the "
                    "original response."
                )


def _signature(block: dict[str, Any]) -> str:
    return str(block.get("signature") or block.get("data") or "")


def _digest(signature: str, text: str) -> bytes:
    return blake2b(f"{signature}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
