"""Writes session files of any length, the same bytes each time, as the host itself would have written them.

A file is made of blocks of 400 entries with the same contents and other ids, so that the live view behind
the last compaction is equal, byte for byte apart from ids and times, however long the history is.
"""

from __future__ import annotations

import math
import random
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from perdure.edges.session import lines
from perdure.edges.session.facts import RECENT_IDS, Checkpoint, Facts, Origin, Seen, Settings
from perdure.edges.session.ids import entry_id
from perdure.records import Assistant, Message, Stop, Text, Thinking, ToolCall, ToolResult, Usage, User

BLOCK = 400  # entries between two compactions
COMPACTION_AT, KEPT_FROM = 50, 8  # places in a block: the compaction, and the first entry it keeps
QUIET = frozenset(range(75, 400, 50))  # places of model changes; with the compaction they make 8 of 400
EPOCH, START_MS, STEP_MS = 1, 1_760_000_000_000, 7_000
WORDS = re.split(  # a tenth of them outside ASCII or escaped in JSON, as in real sessions
    " ",
    "the session reads a file and writes the result back to disk so that another worker can pick it up "
    "later error path test function return value import module class async await None True False config "
    '\n\t"quoted" C:\\path naïve → ✓ def run(self, *args): {"key": [1, 2, 3]} https://example.org/x?y=z ',
)


class Contents:
    """The messages of one block: questions, answers with thinking and calls, and results."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._pool = " ".join(self._rng.choice(WORDS) for _ in range(20_000))

    def _text(self, middle: int) -> str:
        length = min(30_000, int(middle * math.exp(self._rng.gauss(0, 0.9))))
        start = self._rng.randrange(len(self._pool) - length)
        return self._pool[start : start + length]

    def block(self) -> list[Message]:
        """Eight messages a round: one question, three calls with their results, one answer."""
        out: list[Message] = []
        while len(out) < BLOCK - len(QUIET) - 1:
            out.append(User((Text(self._text(180)),), START_MS))
            for _ in range(3):
                call = f"toolu_{self._rng.getrandbits(80):020x}"
                out += [self._answer(call), self._result(call)]
            out.append(self._answer(None))
        return out

    def summary(self) -> str:
        """What a compaction says."""
        return self._text(4_000)

    def _answer(self, call: str | None) -> Assistant:
        blocks: list[Thinking | Text | ToolCall] = [Text(self._text(350))]
        if self._rng.random() < 0.6:
            blocks.insert(0, Thinking(self._text(500), "c2ln" * 40))
        if call is not None:
            arguments = b'{"path":"src/module/file.py","start":12,"length":%d}' % self._rng.randrange(400)
            blocks.append(ToolCall(call, "read", arguments))
        spent = self._rng.randrange(2_000, 90_000)
        usage = Usage(spent, self._rng.randrange(20, 2_000), spent // 2, 0, spent * 3e-6)
        stop: Stop = "stop" if call is None else "toolUse"
        return Assistant(
            tuple(blocks), stop, "anthropic", "anthropic-messages", "claude-sonnet-4-5", usage, None, START_MS
        )

    def _result(self, call: str) -> ToolResult:
        details = b'{"exitCode":0,"truncated":false}'
        return ToolResult(call, "read", (Text(self._text(1_400)),), details=details, timestamp=START_MS)


class History:
    """Yields the lines of a session of `entries` entries (a multiple of 400)."""

    def __init__(self, entries: int) -> None:
        contents = Contents(7)
        self._messages, self._summary = contents.block(), contents.summary()
        self._entries, self._count, self._now = entries, 0, START_MS
        self._parent: str | None = None
        self._previous: str | None = None
        self._compactions = 0
        self._kept = ""
        self._recent: deque[Seen] = deque(maxlen=RECENT_IDS)

    def lines(self) -> Iterator[bytes]:
        """Header first."""
        yield lines.header_line("0199d5c2-7b1e-7000-8000-000000000000", START_MS, "/srv/agent/work")
        for _ in range(self._entries // BLOCK):
            yield from self._block()

    def _block(self) -> Iterator[bytes]:
        messages = iter(self._messages)
        for place in range(BLOCK):
            entry = self._next()
            if place == COMPACTION_AT:
                yield self._compaction(entry)
            elif place in QUIET:
                yield lines.model_change_line(
                    entry, self._parent, self._now, "anthropic", "claude-sonnet-4-5", EPOCH
                )
            else:
                yield self._message(entry, next(messages))
            self._kept = entry if place == KEPT_FROM else self._kept
            self._parent = entry

    def _next(self) -> str:
        self._count += 1
        self._now += STEP_MS
        return entry_id(self._now, EPOCH, self._count)

    def _message(self, entry: str, message: Message) -> bytes:
        origin = None
        if isinstance(message, User):
            origin = Origin("user", f"{self._now:x}-1-{self._count:x}", self._now)
            self._recent.append(Seen(origin.sender, origin.mid, entry))
        return lines.message_line(entry, self._parent, self._now, message, Facts(EPOCH, origin))

    def _compaction(self, entry: str) -> bytes:
        self._compactions += 1
        record = Checkpoint(
            epoch=EPOCH,
            leaf=entry,
            settings=Settings("anthropic", "claude-sonnet-4-5"),
            recent=tuple(self._recent),
            compactions=self._compactions,
            prev=self._previous,
            kept=self._kept,
        )
        self._previous = entry
        return lines.compaction_line(
            entry, self._parent, self._now, self._summary, self._kept, 150_000, record, b"{}"
        )


def write(path: Path, entries: int) -> int:
    """A session file of ours, with a checkpoint in each compaction; its size in bytes."""
    with open(path, "wb", buffering=1 << 20) as f:
        for line in History(entries).lines():
            f.write(line)
        return f.tell()


def write_foreign(path: Path, ours: Path) -> None:
    """The same session as another program would have left it: no fact of ours in it means anything."""
    with open(ours, "rb", buffering=1 << 20) as source, open(path, "wb", buffering=1 << 20) as f:
        for line in source:
            f.write(line.replace(b'"perdure"', b'"another"'))
