"""How large a piece of content is, before any model is asked: by the plain weights, and by kinds of text.

A `Measure` depends on the content only and may be kept for ever; an `Estimator` turns it into tokens.
"""

from __future__ import annotations

import re
from operator import attrgetter

from perdure.context.numbers import (
    CHARS_PER_TOKEN_ESTIMATE,
    IMAGE_CHAR_ESTIMATE,
    TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE,
)
from perdure.context.pictures import images
from perdure.context.pictures import prices as image_prices
from perdure.context.pictures.prices import Price, anthropic
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
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
GRAINS = 10 * CHARS_PER_TOKEN_ESTIMATE
"""Grains of a token: the content-aware reading is kept in tenths of a char, so that parts add up."""

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

# Grains for each kind, fitted on texts of real sessions with two real tokenizers, rounded up so that
# code isn't underrated. A digit ends the token before it: behind a blank or a letter it costs more.
_LETTER, _BLANK, _DIGIT, _MARK, _RUN = 12, 11, 26, 30, 30
WORDS_OF_A_TOKEN = CHARS_PER_TOKEN_ESTIMATE * _LETTER
"""Grains of four letters: what one token by the plain weights is read as."""
_SEAMS = ((b"WD", 30), (b"DL", 20), (b"LD", 20))
_WIDE = {b"2": 24, b"T": 24, b"3": 50, b"4": 100}
_LIFTED = {b"2": 20, b"T": 20, b"3": 50, b"4": 80}  # the plain weights lift only what lies beyond ASCII
_CJK_WEIGHT = 4
_MESSAGE = 16 * 10  # role and separators, about four tokens

# Base64, hashes, long paths: counted by length. Looked for only where there is one.
_LONG = 32
_IN_RUN = bytes(0x61 if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "+/=_-") else 0x20
                for byte in range(256))  # fmt: skip
_RUNS = re.compile(rb"[A-Za-z0-9+/=_-]{32,}")


class Measure(Record):
    """Size of one piece of content.

    `seed`: the plain weights, in chars (quarters of a token). `raw`: the same without the doubling of tool
    results, for shares of the window that pruning looks at. The others are the content-aware reading, in
    grains: `words` (letters and blanks), `marks` (digits and punctuation), `runs` (base64, hashes), `wide`
    (beyond ASCII), `images`. A model's tokenizer has a density of its own for each.
    """

    seed: int = 0
    raw: int = 0
    words: int = 0
    marks: int = 0
    runs: int = 0
    wide: int = 0
    images: int = 0

    def __add__(self, other: Measure) -> Measure:
        return Measure(
            self.seed + other.seed,
            self.raw + other.raw,
            self.words + other.words,
            self.marks + other.marks,
            self.runs + other.runs,
            self.wide + other.wide,
            self.images + other.images,
        )

    def __sub__(self, other: Measure) -> Measure:
        return Measure(*(mine - theirs for mine, theirs in zip(_all(self), _all(other), strict=True)))

    def share(self, part: int, whole: int) -> Measure:
        """`part` of `whole` equal pieces of it."""
        return Measure(*(each * part // whole for each in _all(self)))

    @property
    def kinds(self) -> tuple[int, int, int, int, int]:
        """The content-aware reading by kind: words, marks, runs, wide, images."""
        return self.words, self.marks, self.runs, self.wide, self.images


_all = attrgetter("seed", "raw", "words", "marks", "runs", "wide", "images")


def measure_text(text: str, weight: int = 1) -> Measure:
    """Measure text whose plain characters weigh so many chars each (2 in tool results)."""
    data = text.encode("utf-8", "surrogatepass")
    runs = 0
    if b"a" * _LONG in data.translate(_IN_RUN):
        rest = _RUNS.sub(b"", data)
        runs, data = len(data) - len(rest), rest
    kinds = data.translate(_KINDS)
    count = kinds.count
    digits, marks, blanks = count(b"D"), count(b"P"), count(b"W") + count(b"N")
    dense = digits * _DIGIT + marks * _MARK
    if digits:
        dense += sum(count(seam) * grains for seam, grains in _SEAMS)
    length = len(text)
    letters = length - runs - digits - marks - blanks
    if len(data) + runs == length:  # ASCII: most texts are
        return Measure(length * weight, length, letters * _LETTER + blanks * _BLANK, dense, runs * _RUN)
    counts = {kind: count(kind) for kind in _WIDE}
    beyond = sum(counts.values())
    lifted = sum(counts[kind] * max(tenths, weight * 10) for kind, tenths in _LIFTED.items())
    return Measure(
        (length - beyond) * weight - (-lifted // 10),
        length + (counts[b"3"] + counts[b"4"]) * (_CJK_WEIGHT - 1),
        (letters - beyond) * _LETTER + blanks * _BLANK,
        dense,
        runs * _RUN,
        sum(counts[kind] * grains for kind, grains in _WIDE.items()),
    )


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
    return body + Measure(words=_MESSAGE) if body.seed else body


def _bash(message: Bash) -> Measure:
    if message.excluded:
        return Measure()
    return measure_text(message.command) + measure_text(message.output)


def _blocks(blocks: tuple[Block, ...], weight: int, price: Price) -> Measure:
    if len(blocks) == 1:
        return _block(blocks[0], weight, price)
    total = Measure()
    for block in blocks:
        total += _block(block, weight, price)
    return total


def _block(block: Block, weight: int, price: Price) -> Measure:
    if isinstance(block, Text):
        return measure_text(block.text, weight)
    if isinstance(block, Image):
        tokens = image_prices.tokens(images.known(block), price)
        return Measure(IMAGE_CHAR_ESTIMATE * weight, IMAGE_CHAR_ESTIMATE, images=tokens * GRAINS)
    if isinstance(block, Thinking):
        return measure_text(block.signature or "" if block.redacted else block.thinking)
    if isinstance(block, ToolCall):
        return measure_text(f"{block.name}{block.id}{block.arguments.decode('utf-8', 'replace')}")
    return Measure()  # of a type we don't know: never sent
