"""Histories in the mix of a working agent: questions, calls, results of 0.2 to 20 kB, and damage if asked.

Damaged: every 50th result is missing, every 90th stands behind what follows it, every 70th is there twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sessions import WORDS
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint, Facts
from perdure.edges.session.ids import entry_id
from perdure.records import Assistant, Item, Items, Message, Text, ToolCall, ToolResult, User

START_MS, EPOCH = 1_760_000_000_000, 1
COMPACTIONS = (0.25, 0.5, 0.75, 0.95)
SUMMARY = "What was asked, what was found, and what is left to do. " * 60


class Mix:
    """Makes messages, the same each time."""

    def __init__(self, seed: int = 11) -> None:
        self._rng = random.Random(seed)
        self._pool = " ".join(self._rng.choice(WORDS) for _ in range(40_000))
        self._count = 0

    def _text(self, least: int, most: int) -> str:
        length = int(math.exp(self._rng.uniform(math.log(least), math.log(most))))
        start = self._rng.randrange(len(self._pool) - length)
        return self._pool[start : start + length]

    def _answer(self, *calls: ToolCall) -> Assistant:
        blocks = (Text(self._text(80, 900)), *calls)
        stop = "toolUse" if calls else "stop"
        return Assistant(blocks, stop, "bench", "anthropic-messages", "instant", timestamp=START_MS)

    def step(self) -> tuple[Assistant, ToolResult]:
        """An answer with a call, and its result."""
        self._count += 1
        ident = f"toolu_{self._count:016d}"
        call = ToolCall(ident, "read", b'{"path":"src/module/file.py","start":%d}' % self._count)
        return self._answer(call), ToolResult(ident, "read", (Text(self._text(200, 20_000)),))

    def turn(self) -> Iterator[Message]:
        """A question, three steps, an answer: eight messages."""
        yield User((Text(self._text(60, 600)),), START_MS)
        for _ in range(3):
            yield from self.step()
        yield self._answer()

    def messages(self, count: int) -> list[Message]:
        """So many, whole turns."""
        found: list[Message] = []
        while len(found) < count:
            found += self.turn()
        return found[:count]


def damaged(messages: list[Message]) -> list[Message]:
    """The same with results missing, displaced and doubled."""
    found: list[Message] = []
    late: list[Message] = []
    results = 0
    for message in messages:
        if isinstance(message, ToolResult):
            results += 1
            if results % 50 == 0:
                continue
            if results % 90 == 0:
                late.append(message)
                continue
            found += [message] * (2 if results % 70 == 0 else 1)
            continue
        found.append(message)
        found += late
        late = []
    return found


def items(messages: list[Message]) -> Items:
    """As a view."""
    return tuple(Item(entry_id(START_MS + n, EPOCH, n), message) for n, message in enumerate(messages))


def write(path: Path, entries: int) -> int:
    """A session file of so many messages with four compactions; its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    marks = {int(entries * share) for share in COMPACTIONS}
    parent: str | None = None
    ids: list[str] = []
    count = 0
    with open(path, "wb", buffering=1 << 20) as f:
        f.write(lines.header_line("0199d5c2-7b1e-7000-8000-000000000000", START_MS, "/srv"))
        for n, message in enumerate(Mix().messages(entries)):
            count += 1
            entry = entry_id(START_MS + count, EPOCH, count)
            f.write(lines.message_line(entry, parent, START_MS + count, message, Facts(EPOCH)))
            ids.append(entry)
            parent = entry
            if n in marks:
                count += 1
                entry, kept = entry_id(START_MS + count, EPOCH, count), ids[n - n % 8]
                record = Checkpoint(epoch=EPOCH, leaf=entry, kept=kept)
                f.write(
                    lines.compaction_line(entry, parent, START_MS + count, SUMMARY, kept, 9, record, b"{}")
                )
                parent = entry
        return f.tell()
