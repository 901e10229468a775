"""The one estimator that guard, trigger, cut and display share.

An estimate is the larger of two readings of the same content: the plain weights (4 chars a token, tool
results 2, images flat) and a content-aware reading times the ratio learned from real usage. Before
anything is learned it is the plain weights alone, with CJK at more than a token a character.
A `Measure` depends on the content only and may be kept for ever; the `Estimator` turns it into tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from perdure.context import image_prices, images
from perdure.context.image_prices import Price, anthropic, price_of
from perdure.context.numbers import (
    CHARS_PER_TOKEN_ESTIMATE,
    IMAGE_CHAR_ESTIMATE,
    TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE,
)
from perdure.context.sizes import Sizes
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Decision,
    Image,
    Item,
    Items,
    Message,
    Record,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

RESULT_WEIGHT = CHARS_PER_TOKEN_ESTIMATE // TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE

# Kinds of UTF-8 bytes: letters, digits, punctuation, blanks, line ends; first bytes of two-byte
# characters (Cyrillic, Greek, Arabic …), of typographic signs, of other three-byte characters (CJK,
# Hangul, Kana, Thai …) and of four-byte ones (emoji, rare Han). `x` continues one: counted already.
_KIND = bytearray(b"x" * 256)
for _byte in range(0x80):
    _KIND[_byte] = ord("P")
for _chars, _kind in ((b" ", "W"), (b"\n\r\t", "N"), (b"0123456789", "D")):
    for _byte in _chars:
        _KIND[_byte] = ord(_kind)
for _byte in (*range(0x41, 0x5B), *range(0x61, 0x7B)):
    _KIND[_byte] = ord("L")
for _span, _kind in ((range(0xC0, 0xE0), "2"), (range(0xE0, 0xF0), "3"), (range(0xF0, 0xF8), "4")):
    for _byte in _span:
        _KIND[_byte] = ord(_kind)
_KIND[0xE2] = ord("T")
_KINDS = bytes(_KIND)

# Tenths of a char (fortieths of a token) for each kind, fitted on texts of real sessions with two real
# tokenizers, rounded up so that code isn't underrated. The plain weights lift only what lies beyond ASCII.
_CONTENT = {b"D": 26, b"P": 30, b"W": 11, b"N": 11, b"2": 24, b"T": 24, b"3": 50, b"4": 100}
_LETTER_WEIGHT = 12
_LIFTED = {b"2": 20, b"T": 20, b"3": 50, b"4": 80}
_CJK_WEIGHT = 4
_MESSAGE_OVERHEAD = 16  # role and separators, about four tokens

# Base64, hashes, long paths: three of their chars are a token. Looked for only where there is one.
_LONG = 32
_IN_RUN = bytes(0x61 if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "+/=_-") else 0x20
                for byte in range(256))  # fmt: skip
_RUN, _RUN_WEIGHT = re.compile(rb"[A-Za-z0-9+/=_-]{32,}"), 30


class Measure(Record):
    """Size of one piece of content in chars (quarters of a token), read three ways.

    `seed`: the plain weights; `content`: by kinds of characters; `raw`: plain weights without the
    doubling of tool results, for shares of the window that pruning looks at.
    """

    seed: int = 0
    content: int = 0
    raw: int = 0

    def __add__(self, other: Measure) -> Measure:
        return Measure(self.seed + other.seed, self.content + other.content, self.raw + other.raw)


def measure_text(text: str, weight: int = 1) -> Measure:
    """Measure text whose plain characters weigh so many chars each (2 in tool results)."""
    data = text.encode("utf-8", "surrogatepass")
    runs = 0
    if b"a" * _LONG in data.translate(_IN_RUN):
        rest = _RUN.sub(b"", data)
        runs, data = len(data) - len(rest), rest
    kinds = data.translate(_KINDS)
    if text.isascii():
        return _plain(kinds, len(text), runs, weight)
    return _any(kinds, len(text), runs, weight)


def _plain(kinds: bytes, length: int, runs: int, weight: int) -> Measure:
    """`_any` for ASCII: half the kinds can't occur, and most texts are such."""
    digits, marks, blanks = kinds.count(b"D"), kinds.count(b"P"), kinds.count(b"W") + kinds.count(b"N")
    content = runs * _RUN_WEIGHT + (length - runs - digits - marks - blanks) * _LETTER_WEIGHT
    content += digits * _CONTENT[b"D"] + marks * _CONTENT[b"P"] + blanks * _CONTENT[b"W"]
    return Measure(length * weight, -(-content // 10), length)


def _any(kinds: bytes, length: int, runs: int, weight: int) -> Measure:
    """From the kinds of all bytes outside of runs; `length` and `runs` in characters."""
    counts = {kind: kinds.count(kind) for kind in _CONTENT}
    letters = length - runs - sum(counts.values())
    content = runs * _RUN_WEIGHT + letters * _LETTER_WEIGHT
    content = -(-(content + sum(counts[kind] * tenths for kind, tenths in _CONTENT.items())) // 10)
    beyond = sum(counts[kind] for kind in _LIFTED)
    if not beyond:
        return Measure(length * weight, content, length)
    lifted = sum(counts[kind] * max(tenths, weight * 10) for kind, tenths in _LIFTED.items())
    wide = (counts[b"3"] + counts[b"4"]) * (_CJK_WEIGHT - 1)
    return Measure((length - beyond) * weight - (-lifted // 10), content, length + wide)


def measure(message: Message, price: Price = anthropic) -> Measure:
    """Measure a message as a model would be charged for it; tool result details never count.

    `price`: what a picture costs there (`image_prices`), never by its bytes.
    """
    if isinstance(message, ToolResult):
        body = _blocks(message.content, RESULT_WEIGHT, price)
    elif isinstance(message, (User, Assistant, Custom)):
        body = _blocks(message.content, 1, price)
    elif isinstance(message, (Summary, BranchSummary)):
        body = measure_text(message.summary)
    else:
        body = _bash(message)
    return body + Measure(content=_MESSAGE_OVERHEAD) if body.seed else body


def _bash(message: Bash) -> Measure:
    if message.excluded:
        return Measure()
    return measure_text(message.command) + measure_text(message.output)


def _blocks(blocks: tuple[Block, ...], weight: int, price: Price) -> Measure:
    total = Measure()
    for block in blocks:
        total += _block(block, weight, price)
    return total


def _block(block: Block, weight: int, price: Price) -> Measure:
    if isinstance(block, Text):
        return measure_text(block.text, weight)
    if isinstance(block, Image):
        content = image_prices.tokens(images.known(block), price) * CHARS_PER_TOKEN_ESTIMATE
        return Measure(IMAGE_CHAR_ESTIMATE * weight, content, IMAGE_CHAR_ESTIMATE)
    if isinstance(block, Thinking):
        return measure_text(block.signature or "" if block.redacted else block.thinking)
    if isinstance(block, ToolCall):
        return measure_text(f"{block.name}{block.id}{block.arguments.decode('utf-8', 'replace')}")
    return Measure()  # of a type we don't know: never sent


class Estimator(Record):
    """Turns measures into tokens. `ratio` 0: nothing learned yet; `spread` is the error seen lately."""

    ratio: float = 0.0
    spread: float = 0.0
    samples: int = 0

    def chars(self, size: Measure) -> int:
        """The estimate in chars, so that a line can be drawn without rounding each message."""
        if not self.ratio:
            return size.seed
        return max(size.seed, int(size.content * self.ratio * (1 + self.spread)) + 1) if size.seed else 0

    def each(self, sizes: Sizes) -> list[int]:
        """`chars` of every item of a view."""
        if not self.ratio:
            return list(sizes.seeds)
        ratio, margin = self.ratio, 1 + self.spread
        return [
            0 if not seed else seed if seed > (known := int(content * ratio * margin) + 1) else known
            for seed, content in zip(sizes.seeds, sizes.contents, strict=True)
        ]

    def most(self, sizes: Sizes) -> int:
        """At least the sum of `each`, and the sum itself while nothing is learned; no item is looked at."""
        if not self.ratio:
            return sizes.seed
        return sizes.seed + int(sizes.content * self.ratio * (1 + self.spread)) + len(sizes.seeds)

    def tokens(self, size: Measure) -> int:
        return -(-self.chars(size) // CHARS_PER_TOKEN_ESTIMATE)

    def item(self, item: Item) -> int:
        """Tokens of one message."""
        return self.tokens(measure(item.message))

    def items(self, items: Iterable[Item]) -> int:
        """Tokens of a view (not above the sum of its items: only the whole is rounded)."""
        return -(-sum(self.chars(measure(item.message)) for item in items) // CHARS_PER_TOKEN_ESTIMATE)

    def text(self, text: str) -> int:
        """Tokens of text that is no message: a system prompt, tool schemas."""
        return self.tokens(measure_text(text))

    def forecast(self, size: Measure) -> int:
        """The likeliest real size in tokens, without margin: what `learn` compares with usage."""
        return -(-int(size.content * (self.ratio or 1.0)) // CHARS_PER_TOKEN_ESTIMATE)

    def upper(self, size: Measure) -> int:
        """A careful size in tokens even before anything is learned: for output room."""
        careful = self if self.ratio else CAREFUL
        return careful.tokens(size)

    def learn(self, predicted: int, real: int) -> Estimator:
        """A better estimator, from this one's `forecast` of a whole prompt and its real tokens.

        Moves half way each time, so that one odd prompt doesn't decide; the margin jumps to the error
        at once and shrinks slowly, so that the estimate stays above.
        """
        if predicted <= 0 or real <= 0:
            return self
        known = self.ratio or 1.0
        aim = min(8.0, max(0.125, known * real / predicted))
        if not self.samples:
            return Estimator(aim, 0.08, 1)
        error = abs(real / predicted - 1)
        spread = min(0.5, max(0.02, error, self.spread * 0.8))
        return Estimator(known + (aim - known) / 2, spread, self.samples + 1)


CAREFUL = Estimator(ratio=1.0, spread=0.1)
"""Where to start with a model nobody has measured, if an overflow is worse than an early compaction."""


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
        sizes = self.sizes(step, items)
        return Measure(sizes.seed, sizes.content, sizes.raw)

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
