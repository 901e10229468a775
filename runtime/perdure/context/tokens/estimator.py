"""The one estimator that guard, trigger, cut and display share.

The size of a request is the larger of two readings: the plain weights (4 chars a token, tool results 2,
images flat), and an upper bound that a model's usage has calibrated. Before anything is learned it is
the plain weights alone, with CJK at more than a token a character.

What is learned: the last request's real size, so that only what changed since is estimated; how dense
each kind of content is for this model; and what a request costs beside its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import TypeAlias

from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE, SAFETY_MARGIN
from perdure.context.pictures.prices import Price, anthropic, price_of
from perdure.context.tokens.measure import (
    GRAINS,
    RESULT_WEIGHT,
    WORDS_OF_A_TOKEN,
    Measure,
    measure,
    measure_text,
)
from perdure.context.tokens.sizes import Sizes
from perdure.records import Decision, Item, Items, Message, Record, ToolResult

__all__ = [
    "RESULT_WEIGHT",
    "Estimator",
    "Gauge",
    "Measure",
    "estimator_of",
    "measure",
    "measure_text",
    "with_learned",
]

Kinds: TypeAlias = tuple[float, float, float, float, float]
Grains: TypeAlias = tuple[int, int, int, int, int]

DENSE, SURE = 1.1, 1.25
"""New content of a kind that was hardly seen is taken to be as dense as this, in tokens per token of the
content-aware reading, which is above real tokenizers on all but a few kinds of text; of a kind that is
well known, as this many times what was learned: prose and code are both words, with other densities."""

_RATE, _DOUBT = 0.75, 0.04  # where a model's densities begin, and the variance of that guess
_LOWEST, _HIGHEST = 0.15, 3.0
_DRIFT = 2e-5  # doubt that each call adds: the work changes, and with it the words
_NOISE, _NOISE_TOKENS = 0.05, 20.0  # error of a tail by its kinds alone; what framing varies by
_OUTLIER = 3.0  # standard deviations: more is not density but something that isn't in the record
_SLACK, _SLACK_TOKENS = 0.02, 40.0  # of a prompt: what a program adds to it that no record shows
_MOST_ADDED = 32_000  # tokens that a provider puts before a request: prompts and tools of its own
_BEYOND = 10**12  # no count of a request is as large
_SURPRISE_KEPT, _MOST_SURPRISED = 0.95, 0.1
MODELS = 4
"""Models of one session whose calibration is kept."""


class Estimator(Record, array_like=True):
    """Turns measures into tokens; `samples` 0: nothing learned yet. Persisted, hence rounded.

    `rates` are tokens per token of the content-aware reading by kind (see `Measure.kinds`), `doubts` their
    variances. `base` is what a request costs beside its measured content, `base_doubt` its standard
    deviation. `known` and `prompt`: content by kind (grains) and real tokens of the last request. `slack`:
    by how much the forecast was passed lately.
    """

    model: str = ""
    samples: int = 0
    rates: Kinds = (_RATE, _RATE, _RATE, _RATE, _RATE)
    doubts: Kinds = (_DOUBT, _DOUBT, _DOUBT, _DOUBT, _DOUBT)
    base: int = 0
    base_doubt: int = 0
    known: Grains = (0, 0, 0, 0, 0)
    prompt: int = 0
    slack: int = 0

    @property
    def sound(self) -> bool:
        """Whether these are numbers that learning gives; a file may hold others."""
        dense = all(0 <= rate <= _HIGHEST for rate in self.rates)
        sure = all(0 <= doubt <= _DOUBT for doubt in self.doubts)
        counts = (*self.known, self.samples, self.prompt, self.base_doubt, abs(self.base), self.slack)
        return dense and sure and all(0 <= count < _BEYOND for count in counts)

    # --- pieces -----------------------------------------------------------------------------------

    def chars(self, size: Measure) -> int:
        """A careful size of one piece, in chars, so that a line can be drawn without rounding each."""
        if not self.samples or not size.seed:
            return size.seed
        return max(size.seed, int(_dot(self._careful(), size.kinds) * CHARS_PER_TOKEN_ESTIMATE) + 1)

    def tokens(self, size: Measure) -> int:
        """A careful size of one piece, or of several taken together, in tokens."""
        return -(-self.chars(size) // CHARS_PER_TOKEN_ESTIMATE)

    def item(self, item: Item) -> int:
        """Tokens of one message."""
        return self.tokens(measure(item.message))

    def items(self, items: Iterable[Item]) -> int:
        """Tokens of messages taken together (not above the sum of each: only the whole is rounded)."""
        return self.tokens(sum((measure(item.message) for item in items), Measure()))

    def text(self, text: str) -> int:
        """Tokens of text that is no message: a system prompt, tool schemas."""
        return self.tokens(measure_text(text))

    # --- whole requests ---------------------------------------------------------------------------

    def whole(self, view: Measure, fixed_tokens: int) -> int:
        """The size of a request, in tokens: what the lines of guard and trigger are held against, and
        what is shown. `fixed_tokens`: its system prompt and tool schemas by the plain weights.
        """
        return -(-self.whole_chars(view, fixed_tokens) // CHARS_PER_TOKEN_ESTIMATE)

    def whole_chars(self, view: Measure, fixed_tokens: int) -> int:
        """`whole` in chars, unrounded, as the guard draws its lines."""
        plain = self.plain_chars(view, fixed_tokens)
        if not self.samples:
            return plain
        return max(plain, self._bound(_request(view, fixed_tokens)) * CHARS_PER_TOKEN_ESTIMATE)

    def plain_chars(self, view: Measure, fixed_tokens: int) -> int:
        """The reading by the plain weights, and what stands beside it if that is known."""
        return (fixed_tokens + max(0, self.base)) * CHARS_PER_TOKEN_ESTIMATE + view.seed

    def saved_chars(self, size: Measure, *, sent: bool) -> int:
        """By how much the calibrated reading of a request falls without this piece of it."""
        rates = [rate * (2 - DENSE) for rate in self.rates] if sent else self._careful()
        return int(_dot(rates, size.kinds) * CHARS_PER_TOKEN_ESTIMATE)

    def forecast(self, view: Measure, fixed_tokens: int) -> int:
        """The likeliest size of a request in tokens, without margin."""
        kinds = _request(view, fixed_tokens)
        return max(1, int(self._line(kinds) if self.samples else _dot(self.rates, kinds)))

    def upper(self, view: Measure, fixed_tokens: int) -> int:
        """A careful size even before anything is learned: for output room."""
        if self.samples:
            return self.whole(view, fixed_tokens)
        content = sum(_request(view, fixed_tokens)) / GRAINS
        return max(self.whole(view, fixed_tokens), int(content * DENSE) + 1)

    def _line(self, kinds: Sequence[float]) -> float:
        """From what is known of the last request: exact for that one, and the base for an empty one.

        What the record doesn't explain stays while the view grows, and goes in proportion as it shrinks.
        """
        size, known = _dot(self.rates, kinds), _dot(self.rates, self.known)
        return self.base + size + (self.prompt - self.base - known) * _left(size, known)

    def _bound(self, kinds: Grains) -> int:
        """A size that the real one does not pass: new content is taken to be dense, what went to be thin."""
        change = anew = size = known = 0.0
        for rate, doubt, now, was in zip(self.rates, self.doubts, kinds, self.known, strict=True):
            careful = _careful(rate, doubt)
            change += (now - was) * (careful if now > was else rate * (2 - DENSE))
            anew += careful * now
            size += rate * now
            known += rate * was
        size, known = size / GRAINS, known / GRAINS
        left = _left(size, known)
        unexplained = self.prompt - self.base - known
        line = self.base + size + unexplained * left
        anew = self.base + 2 * self.base_doubt + anew / GRAINS + max(0.0, unexplained) * left
        bound = max(min(self.prompt + change / GRAINS, anew), line)
        bound *= left + (1 - left) * SAFETY_MARGIN
        return int(bound + self.slack + _SLACK * self.prompt + _SLACK_TOKENS)

    def _careful(self) -> list[float]:
        return [_careful(rate, doubt) for rate, doubt in zip(self.rates, self.doubts, strict=True)]

    # --- learning ---------------------------------------------------------------------------------

    def learn(self, view: Measure, fixed_tokens: int, real: int) -> Estimator:
        """A better estimator, from a request's measured content and its real tokens (its usage).

        Densities follow by a Kalman filter on the difference between two requests, each kind by itself; a
        difference that no density explains is taken for something that isn't in the record. A size that
        no such addition explains either teaches nothing: believed, it would end the session for good.
        """
        kinds, samples = _request(view, fixed_tokens), self.samples + 1
        if real <= 0 or not any(kinds) or not _believable(kinds, real):
            return self
        if not self.samples:
            return self._first(kinds, real)
        tail = [now - was for now, was in zip(kinds, self.known, strict=True)]
        rates: Sequence[float] = self.rates
        doubts = [min(_DOUBT, doubt + _DRIFT) for doubt in self.doubts]
        if sum(tail) > 0:
            rates, doubts = _filtered(rates, doubts, tail, real - self.prompt)
        base, doubt = self._base(_dot(rates, kinds), real)
        surprise = min(real - int(self._line(kinds)), int(real * _MOST_SURPRISED))
        slack = max(int(self.slack * _SURPRISE_KEPT), surprise)
        settled = _five(doubts, 6)
        return Estimator(self.model, samples, _five(rates, 4), settled, base, doubt, kinds, real, slack)

    def refused(self, view: Measure, fixed_tokens: int, real: int) -> Estimator:
        """After a refusal that names the request's size. Nothing tells what the provider counted; all of its
        content is taken to be so dense, since a compaction must take away enough.
        """
        kinds = _request(view, fixed_tokens)
        if not _believable(kinds, real):
            return self
        scale = max(1.0, (real - self.base) / max(1.0, _dot(self.rates, kinds)))
        rates = _five([min(_HIGHEST, rate * scale) for rate in self.rates], 4)
        doubts = (_DOUBT, _DOUBT, _DOUBT, _DOUBT, _DOUBT)
        samples, base, doubt = self.samples + 1, self.base, self.base_doubt
        return Estimator(self.model, samples, rates, doubts, base, doubt, kinds, real, self.slack)

    def _first(self, kinds: Grains, real: int) -> Estimator:
        """The first usage: it tells the density where the content explains it, else what stands beside."""
        likely = _dot(self.rates, kinds)
        scale = real / likely if 0.5 < real / likely < 1.6 else 1.0
        size = likely * scale
        rates = _five([rate * scale for rate in self.rates], 4)
        return Estimator(
            self.model, 1, rates, self.doubts, int(real - size), int(0.15 * size) + 50, kinds, real
        )

    def _base(self, size: float, real: int) -> tuple[int, int]:
        """The base and its doubt: a request of little content tells it best."""
        found, doubt = real - size, 0.12 * size + 50
        gain = self.base_doubt**2 / (self.base_doubt**2 + doubt**2)
        return round(self.base + gain * (found - self.base)), max(50, round(self.base_doubt * sqrt(1 - gain)))


def _request(view: Measure, fixed_tokens: int) -> Grains:
    """A whole request by kind: system prompt and tools, known by the plain weights, are mostly prose."""
    fixed = fixed_tokens * WORDS_OF_A_TOKEN
    return view.words + fixed, view.marks, view.runs, view.wide, view.images


def _believable(kinds: Grains, real: int) -> bool:
    """Whether the densest content, and the most that a provider adds, may come to so many tokens."""
    return real <= _HIGHEST * sum(kinds) / GRAINS + _MOST_ADDED


def _dot(rates: Sequence[float], kinds: Sequence[float]) -> float:
    """Tokens of content by kind."""
    a, b, c, d, e = kinds
    return (rates[0] * a + rates[1] * b + rates[2] * c + rates[3] * d + rates[4] * e) / GRAINS


def _careful(rate: float, doubt: float) -> float:
    """A density that new content of a kind will not pass: what is well known may be taken for thinner."""
    known = max(rate + 3 * sqrt(doubt), SURE * rate)
    return min(known, DENSE * rate if rate > 1.0 else DENSE)


def _left(size: float, known: float) -> float:
    """How much of the known request is still there."""
    return size / known if size < known else 1.0


def _five(values: Sequence[float], digits: int) -> Kinds:
    a, b, c, d, e = values
    return round(a, digits), round(b, digits), round(c, digits), round(d, digits), round(e, digits)


def _filtered(
    rates: Sequence[float], doubts: Sequence[float], tail: Sequence[int], real: int
) -> tuple[list[float], list[float]]:
    """Densities after a tail of so many real tokens, and what doubt is left."""
    pieces = [(rate, doubt, grains / GRAINS) for rate, doubt, grains in zip(rates, doubts, tail, strict=True)]
    likely = moved = variance = 0.0
    for rate, doubt, size in pieces:
        likely += rate * size
        moved += rate * abs(size)
        variance += doubt * size * size
    variance += (_NOISE * moved) ** 2 + _NOISE_TOKENS**2
    most = _OUTLIER * sqrt(variance)
    error = max(-most, min(most, real - likely)) / variance
    known = [min(_HIGHEST, max(_LOWEST, rate + doubt * size * error)) for rate, doubt, size in pieces]
    return known, [doubt - (doubt * size) ** 2 / variance for _, doubt, size in pieces]


_ONE: Kinds = (1.0, 1.0, 1.0, 1.0, 1.0)
CAREFUL = Estimator(samples=1, rates=_ONE)
"""Where to start with a model nobody has measured, if an overflow is worse than an early compaction."""


def estimator_of(learned: Iterable[Estimator], model: str) -> Estimator:
    """What was learned about a model, else an estimator that knows nothing yet."""
    return next((each for each in learned if each.model == model), Estimator(model))


def with_learned(known: tuple[Estimator, ...], latest: Estimator) -> tuple[Estimator, ...]:
    """What is known of a session's models, the latest last; the oldest is forgotten."""
    return (*(each for each in known if each.model != latest.model), latest)[-MODELS:]


class Gauge:
    """Remembers what a view's entries measure, and what they look like as decided, so that a step costs
    only the tail that changed.

    An entry whose message was replaced is looked at again. The caller owns its life, and forgets.
    """

    __slots__ = ("_known", "_price", "_shown", "_sizes")

    def __init__(self) -> None:
        self._price: Price = anthropic
        self._sizes: dict[str, Sizes] = {}
        self._known: dict[str, tuple[Message, Measure]] = {}
        self._shown: dict[str, tuple[Message, Decision, Item, Measure]] = {}

    def charge(self, api: str) -> None:
        """Measure pictures at the price of this API from now on."""
        if price_of(api) is not self._price:
            self._price = price_of(api)
            self.keep(frozenset())

    def measure(self, item: Item) -> Measure:
        known = self._known.get(item.entry)
        if known is not None and known[0] is item.message:
            return known[1]
        size = measure(item.message, self._price)
        if item.entry:
            self._known[item.entry] = (item.message, size)
        return size

    def sizes(self, step: str, items: Items) -> Sizes:
        """Sizes of the view that `step` looks at; each step has its own, since each sees another view."""
        kept = self._sizes.get(step)
        if kept is None:
            kept = self._sizes[step] = Sizes()
        return kept.follow(items, self.measure)

    def total(self, step: str, items: Items) -> Measure:
        """The size of the whole view that `step` looks at."""
        return self.sizes(step, items).total

    def shown(
        self, item: Item, decision: Decision, render: Callable[[ToolResult, Decision], ToolResult]
    ) -> tuple[Item, Measure]:
        """A result as a decision has it sent, with its measure."""
        known = self._shown.get(item.entry)
        if known is not None and known[0] is item.message and known[1] == decision:
            return known[2], known[3]
        assert isinstance(item.message, ToolResult)
        out = Item(item.entry, render(item.message, decision))
        size = measure(out.message, self._price)
        if item.entry:
            self._shown[item.entry] = (item.message, decision, out, size)
        return out, size

    def keep(self, entries: frozenset[str]) -> None:
        """Forget all entries but these (after a compaction)."""
        self._known = {entry: known for entry, known in self._known.items() if entry in entries}
        self._shown = {entry: shown for entry, shown in self._shown.items() if entry in entries}
        self._sizes = {}
