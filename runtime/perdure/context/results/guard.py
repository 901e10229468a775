"""The guard: brings tool results under the lines of the window before every model call.

Newest first, so that the cached prefix stays as it was sent. A result that no call has shown yet is
trimmed to the room left, not blanked: else a tool loop would never read its own output; results that were
read make room for it up to a share of the line. What was decided
once is replayed byte for byte; a decision only ever gets stronger, and only where the lines ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.context.changed import Changed
from perdure.context.numbers import (
    CHARS_PER_TOKEN_ESTIMATE,
    IMAGE_CHAR_ESTIMATE,
    UNSEEN_FLOOR_CHARS,
    UNSEEN_LEAST_CHARS,
    UNSEEN_SHARE,
    Limits,
)
from perdure.context.results.parts import NO_IMAGES, image_notice, images_of, render, text_of
from perdure.context.results.shorten import plan
from perdure.context.tokens.estimator import RESULT_WEIGHT, Estimator, Gauge, Measure, measure
from perdure.context.tokens.floor import floor_of, owners
from perdure.context.tokens.sizes import Sizes
from perdure.errors import ContextOverflow
from perdure.records import Decision, Item, Items, LedgerLine, ToolResult

_NOTHING: Mapping[str, Decision] = {}
_TRIES = 6
"""Rounds to find the length whose estimate fits: dense and plain stretches mix in one text."""


def guard(
    items: Items,
    *,
    fixed_tokens: int,
    limits: Limits,
    estimator: Estimator,
    decided: Mapping[str, Decision] = _NOTHING,
    unseen: frozenset[str] = frozenset(),
    gauge: Gauge | None = None,
    tool_tokens: int = 0,
) -> Changed:
    """Bring a view under the lines.

    `fixed_tokens`: system prompt and tool schemas, `tool_tokens`: these alone. `decided`: by entry id, what
    earlier calls did. `unseen`: entries that no call has shown. Raises `ContextOverflow` where the view
    stays over the overflow line: compaction must act.
    """
    gauge = gauge or Gauge()
    sizes = gauge.sizes("guard", items)
    whole = estimator.whole_chars(sizes.total, fixed_tokens)
    if whole <= limits.total_chars and sizes.largest <= limits.single_chars and not sizes.places(decided):
        return Changed(items)
    desk = _Desk(sizes, fixed_tokens, limits, estimator, decided, unseen, gauge)
    desk.replay_and_limit()
    desk.fit()
    if desk.total > limits.overflow_chars:
        raise desk.overflow(tool_tokens)
    return desk.changed()


class _Desk:
    """The work on one view: measures beside the items, and what was done so far.

    A request's size is the larger of two readings; an item's, in chars, is by the one that is in force.
    """

    def __init__(
        self,
        view: Sizes,
        fixed_tokens: int,
        limits: Limits,
        estimator: Estimator,
        decided: Mapping[str, Decision],
        unseen: frozenset[str],
        gauge: Gauge,
    ) -> None:
        self.view, self.originals, self.items = view, view.items, list(view.items)
        self.limits, self.estimator, self.decided, self.unseen = limits, estimator, decided, unseen
        self.gauge = gauge
        self.measures, self.size, self.fixed_tokens = list(view.sizes), view.total, fixed_tokens
        self.plain = True
        self.done: dict[int, tuple[Decision, str]] = {}

    @property
    def total(self) -> int:
        """The request's size as it stands, in chars."""
        return self.estimator.whole_chars(self.size, self.fixed_tokens)

    def chars(self, at: int, size: Measure | None = None) -> int:
        """What an item takes of the total, or would with another size."""
        found = self.measures[at] if size is None else size
        if self.plain:
            return found.seed
        return self.estimator.saved_chars(found, sent=self.originals[at].entry not in self.unseen)

    def fit(self) -> None:
        """Bring the total under the line; where one reading fits, the other may still be above it."""
        for _ in range(2):
            if self.total <= self.limits.total_chars:
                return
            self.plain = self.total == self.estimator.plain_chars(self.size, self.fixed_tokens)
            self.blank_newest_first()
            if self.total > self.limits.total_chars:
                self.share_what_is_left()

    def replay_and_limit(self) -> None:
        """Replay what was decided; a result over the single limit is shortened."""
        single, sizes = self.limits.single_chars, self.view.sizes
        looked = set(self.view.places(self.decided))
        if self.view.largest > single:  # a raw size leaves out the line ends between blocks
            looked.update(
                at for at in self.view.results if sizes[at].raw + len(self._original(at).content) > single
            )
        for at in sorted(looked):
            item = self.originals[at]
            known = self.decided.get(item.entry)
            if known is not None and known.form in ("shortened", "trimmed", "placeholder"):
                self._put(at, known, "guard.replayed")
            if _raw_size(self._result(at)) > single:
                self._put(at, _single(item, single), "guard.single")

    def blank_newest_first(self) -> None:
        """Blank what calls have shown until the rest fits, the unseen results counted at their floor."""
        fresh = self._fresh()
        share = self.limits.total_chars // (UNSEEN_SHARE * max(1, len(fresh)))
        floor = max(UNSEEN_FLOOR_CHARS * RESULT_WEIGHT, share)
        spare = sum(max(0, self.chars(at) - floor) for at in fresh)
        for at in reversed(self.view.results):
            if self.total - spare <= self.limits.total_chars:
                return
            if self.items[at].entry not in self.unseen:
                self._blank(at)

    def share_what_is_left(self) -> None:
        """The unseen results share the room that is left evenly."""
        fresh = self._fresh()
        room = self.limits.total_chars - self.total + sum(map(self.chars, fresh))
        for left, at in zip(range(len(fresh), 0, -1), sorted(fresh, key=self.chars), strict=True):
            share = max(UNSEEN_LEAST_CHARS * RESULT_WEIGHT, room // left)
            self._trim(at, share)
            room -= self.chars(at)

    def _fresh(self) -> list[int]:
        return [at for at in self.view.results if self.items[at].entry in self.unseen]

    def overflow(self, tool_tokens: int) -> ContextOverflow:
        """The typed error, by owner. The floor is named where it alone passes the line."""
        tokens, line = -(-self.total // CHARS_PER_TOKEN_ESTIMATE), self.limits.overflow
        told = owners(
            tuple(self.items),
            [self.chars(at) for at in range(len(self.items))],
            fixed_tokens=self.fixed_tokens,
            tool_tokens=tool_tokens,
            total=tokens,
        )
        floor = floor_of(told)
        return ContextOverflow(tokens, line, floor if sum(floor.values()) > line else None, told)

    def changed(self) -> Changed:
        if not self.done:
            return Changed(self.originals)
        lines = tuple(self._line(at, *self.done[at]) for at in sorted(self.done))
        new = tuple(
            decision
            for decision, rule in (self.done[at] for at in sorted(self.done))
            if rule != "guard.replayed" and decision.key
        )
        return Changed(tuple(self.items), lines, new)

    def _line(self, at: int, decision: Decision, rule: str) -> LedgerLine:
        return LedgerLine(
            entry=self.items[at].entry,
            decision="placeholder" if decision.form == "placeholder" else "shortened",
            rule=rule,
            tokens=self.estimator.tokens(self.measures[at]),
            zone="tail" if self.items[at].entry in self.unseen else "stable",
        )

    def _result(self, at: int) -> ToolResult:
        message = self.items[at].message
        assert isinstance(message, ToolResult)
        return message

    def _original(self, at: int) -> ToolResult:
        message = self.originals[at].message
        assert isinstance(message, ToolResult)
        return message

    def _put(self, at: int, decision: Decision, rule: str) -> None:
        item, size = self.gauge.shown(self.originals[at], decision, render)
        self.size += size - self.measures[at]
        self.items[at], self.measures[at] = item, size
        self.done[at] = (decision, rule)

    def _blank(self, at: int) -> None:
        decision = Decision(self.items[at].entry, "placeholder")
        blank = render(self._original(at), decision)
        if self.chars(at, measure(blank)) < self.chars(at):
            self._put(at, decision, "guard.total")

    def _trim(self, at: int, room: int) -> None:
        """Cut an unseen result so that its estimate is at most `room`, or as near as the notice allows."""
        if self.chars(at) <= room:
            return
        original, entry = self._original(at), self.items[at].entry
        images = images_of(original)
        value = NO_IMAGES if images and len(images) * IMAGE_CHAR_ESTIMATE * RESULT_WEIGHT > room // 2 else ""
        text = text_of(original)
        limit = min(len(text), self.limits.single_chars) if text else 0
        for _ in range(_TRIES):
            cut = plan(text, limit, entry)
            decision = Decision(entry, "trimmed", cut.head, cut.tail, value)
            size = self.chars(at, measure(render(original, decision)))
            if size <= room or not cut.head:
                break
            limit = min(limit - 1, int(limit * room / size))
        if size < self.chars(at):
            self._put(at, decision, "guard.unseen")


def _raw_size(result: ToolResult) -> int:
    """Raw characters, each image priced flat: what the single limit is drawn in."""
    return len(text_of(result)) + len(images_of(result)) * IMAGE_CHAR_ESTIMATE


def _single(item: Item, limit: int) -> Decision:
    """Images stay if the text may keep half of the limit beside them."""
    result = item.message
    assert isinstance(result, ToolResult)
    images, text = images_of(result), text_of(result)
    price = len(images) * IMAGE_CHAR_ESTIMATE
    dropped = bool(images) and price + min(len(text), limit // 2) > limit
    room = limit - (len(image_notice(images, item.entry)) + 1 if dropped else price)
    cut = plan(text, room, item.entry)
    return Decision(item.entry, "shortened", cut.head, cut.tail, NO_IMAGES if dropped else "")
