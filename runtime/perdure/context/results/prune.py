"""Pruning: old tool results are trimmed, then cleared, when the provider's cache is cold anyway.

Oldest first, because nothing is lost by changing a prefix that must be paid again; the last three
assistant turns stay whole. Decided once: what was pruned stays pruned, byte for byte, warm or cold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perdure.context import numbers
from perdure.context.changed import Changed
from perdure.context.results.parts import NO_IMAGES, images_of, is_blank, render, text_of
from perdure.context.text.graphemes import cut_after, cut_before
from perdure.context.tokens.estimator import Gauge
from perdure.context.tokens.sizes import Sizes
from perdure.records import Assistant, Decision, Items, LedgerLine, Record, ToolResult, User

_NOTHING: Mapping[str, Decision] = {}


class PruneSettings(Record):
    """`ttl` in seconds; ratios are shares of the window in chars; tools are globs, deny wins."""

    ttl: float = numbers.PRUNE_TTL_SECONDS
    keep_last: int = numbers.PRUNE_KEEP_LAST_ASSISTANTS
    soft_ratio: float = numbers.SOFT_TRIM_RATIO
    hard_ratio: float = numbers.HARD_CLEAR_RATIO
    soft_max: int = numbers.SOFT_TRIM_MAX_CHARS
    head: int = numbers.SOFT_TRIM_HEAD_CHARS
    tail: int = numbers.SOFT_TRIM_TAIL_CHARS
    hard_clear: bool = True
    least: int = numbers.MIN_PRUNABLE_TOOL_CHARS
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def prunable(self, tool: str) -> bool:
        """Whether results of this tool may be pruned; no allow list means all."""
        name = tool.strip().lower()
        if _matches(name, self.deny):
            return False
        return not self.allow or _matches(name, self.allow)


def prune(
    items: Items,
    settings: PruneSettings | None,
    *,
    window: int,
    cache_age: float | None,
    decided: Mapping[str, Decision] = _NOTHING,
    unseen: frozenset[str] = frozenset(),
    gauge: Gauge | None = None,
) -> Changed:
    """Replay what was pruned before and, where the cache is cold, prune what became old.

    `cache_age`: seconds since the prefix was last sent, `None` if it never was (then nothing is cold).
    Without settings only earlier decisions are replayed. What no call has shown is never pruned.
    """
    gauge = gauge or Gauge()
    sizes = gauge.sizes("prune", items)
    known = sizes.places(decided)
    warm = settings is None or cache_age is None or settings.ttl <= 0 or cache_age < settings.ttl
    warm = warm or window < 1  # a share of nothing is no line
    if warm and not known:
        return Changed(items)
    desk = _Desk(sizes, gauge, window * numbers.CHARS_PER_TOKEN_ESTIMATE)
    desk.replay(decided, known)
    if settings is None or warm:
        return desk.changed()
    old = _old(items, settings, decided, unseen)
    if not old or desk.ratio() < settings.soft_ratio:
        return desk.changed()
    desk.soft_trim(old, settings)
    if settings.hard_clear and desk.ratio() >= settings.hard_ratio and desk.worth(old) >= settings.least:
        desk.hard_clear(old, settings)
    return desk.changed()


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    """`*` stands for anything; all else, brackets and question marks too, for itself."""
    patterns = (".*".join(map(re.escape, glob.strip().lower().split("*"))) for glob in globs if glob.strip())
    return any(re.fullmatch(pattern, name, re.DOTALL) for pattern in patterns)


def _old(
    items: Items, settings: PruneSettings, decided: Mapping[str, Decision], unseen: frozenset[str]
) -> list[int]:
    """Prunable results between the first user message and the protected assistant turns, oldest first."""
    start = next((at for at, item in enumerate(items) if isinstance(item.message, User)), len(items))
    assistants = [at for at, item in enumerate(items) if isinstance(item.message, Assistant)]
    if settings.keep_last > len(assistants):
        return []
    end = assistants[-settings.keep_last] if settings.keep_last > 0 else len(items)
    return [
        at
        for at in range(start, end)
        if isinstance(message := items[at].message, ToolResult)
        and settings.prunable(message.tool)
        and items[at].entry not in unseen
        and not ((known := decided.get(items[at].entry)) and is_blank(known))
    ]


class _Desk:
    """The work on one view, sizes in raw chars beside the items."""

    def __init__(self, view: Sizes, gauge: Gauge, window_chars: int) -> None:
        self.originals, self.items, self.window = view.items, list(view.items), window_chars
        self.gauge = gauge
        self.sizes, self.total = [size.raw for size in view.sizes], view.total.raw
        self.done: dict[int, tuple[Decision, str]] = {}

    def ratio(self) -> float:
        return self.total / self.window

    def worth(self, old: list[int]) -> int:
        """Raw chars that clearing could free."""
        return sum(self.sizes[at] for at in old)

    def replay(self, decided: Mapping[str, Decision], places: list[int]) -> None:
        for at in places:
            known = decided.get(self.originals[at].entry)
            if known is not None and known.form == "pruned":
                self._put(at, known, "prune.replayed")

    def soft_trim(self, old: list[int], settings: PruneSettings) -> None:
        """Trim every long one. Images of old results go: they are the dearest and the least looked at."""
        for at in old:
            message = self.items[at].message
            if at in self.done or not isinstance(message, ToolResult):
                continue
            text, images = text_of(message), images_of(message)
            head, tail = len(text), 0
            if len(text) > settings.soft_max and settings.head + settings.tail < len(text):
                head = cut_before(text, settings.head)
                tail = len(text) - cut_after(text, len(text) - settings.tail) if settings.tail else 0
            if head < len(text) or images:
                value = NO_IMAGES if images else ""
                self._put(at, Decision(self.items[at].entry, "pruned", head, tail, value), "prune.soft")

    def hard_clear(self, old: list[int], settings: PruneSettings) -> None:
        for at in old:
            if self.ratio() < settings.hard_ratio:
                return
            self._put(at, Decision(self.items[at].entry, "pruned"), "prune.hard")

    def changed(self) -> Changed:
        if not self.done:
            return Changed(self.originals)
        done = [(at, *self.done[at]) for at in sorted(self.done)]
        lines = tuple(
            LedgerLine(self.items[at].entry, "pruned", rule, -(-self.sizes[at] // 4)) for at, _, rule in done
        )
        new = tuple(decision for _, decision, rule in done if rule != "prune.replayed" and decision.key)
        return Changed(tuple(self.items), lines, new)

    def _put(self, at: int, decision: Decision, rule: str) -> None:
        self.items[at], measured = self.gauge.shown(self.originals[at], decision, render)
        size = measured.raw
        self.total += size - self.sizes[at]
        self.sizes[at] = size
        self.done[at] = (decision, rule)
