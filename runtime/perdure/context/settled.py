"""The part of a history that no later message can change, so that a step costs only its tail.

An optimisation and nothing else: with it or without, the outcome is the same. A history is cut where
a user speaks after an answer without calls; what comes later can reach back over such a cut only in
a few ways, and then everything is done anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perdure.context.changed import Changed, Decisions
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.image_floor import size
from perdure.context.safety.repair import calls_of
from perdure.context.safety.sanitize import Before
from perdure.context.safety.thinking import compacted_at
from perdure.records import (
    Assistant,
    Custom,
    Decision,
    Item,
    Items,
    LedgerLine,
    Summary,
    ToolResult,
    User,
)

Steps: TypeAlias = Callable[[Items, Before | None], Changed]
_TRIES = 4
JUMP = 12  # items of tail worth settling: doing them again costs less than to copy a long history each time


class Settled:
    """What one session's last run left: settled items as stored and as sent, and what was said of them.

    `jump`: how long the tail grows before more of it is settled.
    """

    __slots__ = ("before", "decisions", "image_chars", "images", "jump", "key", "lines", "out", "source")

    def __init__(self, jump: int = JUMP) -> None:
        self.jump = jump
        self.key: object = None
        self.before = Before()
        self.reset(None)

    def reset(self, key: object) -> None:
        """Forget everything; the next run starts with the first item."""
        clean = self.before.clean if key == self.key else {}
        self.key = key
        self.source: Items = ()
        self.out: Items = ()
        self.lines: tuple[LedgerLine, ...] = ()
        self.decisions: tuple[Decision, ...] = ()
        self.before = Before(clean=clean)
        self.images = self.image_chars = 0

    def run(
        self, items: Items, steps: Steps, *, key: object, policy: TranscriptPolicy, decided: Decisions
    ) -> Changed:
        """What `steps(items, None)` gives, from the settled part and the tail.

        `key` holds all that `steps` depends on but items and decisions: a new one settles anew.
        """
        if key != self.key or items[: len(self.source)] != self.source:
            self.reset(key)
        tail = items[len(self.source) :]
        if self._changes_all(tail, policy, decided):
            return self._anew(items, steps)
        if len(tail) >= self.jump and not self._reaches_back(tail):
            tail = self._settle(tail, steps)
        if self._reaches_back(tail):
            return self._anew(items, steps)
        done = steps(tail, self.before.fork())
        if self._joins(done.items):
            return self._anew(items, steps)
        new = tuple(each for each in self.decisions if each.key not in decided)
        return Changed(self.out + done.items, self.lines + done.lines, new + done.decisions, done.thinking)

    def _anew(self, items: Items, steps: Steps) -> Changed:
        self.reset(self.key)
        return steps(items, self.before.fork())

    def _changes_all(self, tail: Items, policy: TranscriptPolicy, decided: Decisions) -> bool:
        """A new compaction, too many pictures; models that are sent the newest turn's thinking only."""
        if policy.drop_thinking or "images" in decided:
            return True
        found = list(map(_images, tail))
        if self.images + sum(count for count, _ in found) > policy.images.many:
            return True
        if self.image_chars + sum(chars for _, chars in found) > policy.images.max_total:
            return True
        return any(type(item.message) is Summary and (self.source or n) for n, item in enumerate(tail))

    def _reaches_back(self, tail: Items) -> bool:
        """Whether a result in the tail may belong to a call that was settled."""
        called: set[str] = set()
        for item in tail if self.source else ():
            message = item.message
            if type(message) is Assistant:
                called.update(call.id for call in calls_of(message))
            elif type(message) is ToolResult and message.call_id not in called:
                return True
        return False

    def _joins(self, sent: Items) -> bool:
        """Whether what comes next is one message on the wire with the last of the settled part."""
        return bool(self.source) and bool(sent) and type(sent[0].message) is Assistant

    def _settle(self, tail: Items, steps: Steps) -> Items:
        """Settle as much of the tail as can be; what is left of it."""
        for cut in _cuts(tail)[:_TRIES]:
            part, before = tail[:cut], self.before.fork()
            done = steps(part, before)
            kept = done.items[-1] if done.items else None
            if kept is None or self._joins(done.items) or not _is_same(kept, part[-1]):
                continue
            self.source += part
            self.out += done.items
            self.lines += done.lines
            self.decisions += done.decisions
            for count, chars in map(_images, part):
                self.images += count
                self.image_chars += chars
            self.before.ids.join(before.ids)
            self.before.since = max(self.before.since, compacted_at(part))
            return tail[cut:]
        return tail


def _cuts(items: Items) -> list[int]:
    """Where a user speaks after an answer without calls, the latest first."""
    found = []
    for n in range(len(items) - 1, 0, -1):
        message = items[n - 1].message
        if type(items[n].message) is User and type(message) is Assistant and not calls_of(message):
            found.append(n)
            if len(found) == _TRIES:
                break
    return found


def _is_same(sent: Item, stored: Item) -> bool:
    return sent.entry == stored.entry and type(sent.message) is Assistant


def _images(item: Item) -> tuple[int, int]:
    message = item.message
    if type(message) is User or type(message) is ToolResult or type(message) is Custom:
        return size(message.content)
    return 0, 0
