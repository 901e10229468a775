"""Counts tokens with a real tokenizer (o200k), never with the estimator that it is there to judge.

Not the provider's own vocabulary, which is not published; a real one all the same, for any script.
Counts are kept by digest, so that a request costs what is new in it.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from hashlib import blake2b
from typing import Protocol

PIECE = 8192  # characters encoded at once: bounds the work of one call whatever the text repeats
SEAM = 256  # how far back a piece may be cut at white space, where tokens end anyway
REMEMBERED = 65_536  # texts whose count is kept: about 8 MB


class Encoding(Protocol):
    """What we use of the tokenizer."""

    def encode_ordinary(self, text: str) -> list[int]: ...
    def decode(self, tokens: list[int]) -> str: ...


class Tokenizer:
    """One vocabulary for the process; loaded (about a second) when something is first counted."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._encoding: Encoding | None = None
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._remembered = remembered

    def count(self, text: str) -> int:
        """Tokens of a text; the same text costs one hash the next time."""
        if not text:
            return 0
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._counts.get(key)
        if known is not None:
            self._counts.move_to_end(key)
            return known
        count = self._counts[key] = self.measure(text)
        if len(self._counts) > self._remembered:
            self._counts.popitem(last=False)
        return count

    def measure(self, text: str) -> int:
        """Tokens of a text, remembering nothing."""
        return sum(len(self._load().encode_ordinary(piece)) for piece in pieces(text)) if text else 0

    def cut(self, text: str, tokens: int) -> str:
        """The first `tokens` tokens of a text, never ending inside a character."""
        kept: list[str] = []
        for piece in pieces(text):
            found = self._load().encode_ordinary(piece)
            kept.append(
                piece if len(found) <= tokens else self._load().decode(found[:tokens]).rstrip("\ufffd")
            )
            tokens -= len(found)
            if tokens <= 0:
                break
        return "".join(kept)

    def load(self) -> None:
        """Load the vocabulary now. Blocking: for a thread, before somebody waits for it on a loop."""
        self._load()

    def _load(self) -> Encoding:
        if self._encoding is None:
            self._encoding = _open()
        return self._encoding


def _open() -> Encoding:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its reader of resources is an old one
        import bpe_openai  # on first use: it costs more than a second

        encoding: Encoding = bpe_openai.get_encoding("o200k_base")
    return encoding


def pieces(text: str) -> list[str]:
    """The text in pieces of at most `PIECE` characters, cut before white space where there is some."""
    if len(text) <= PIECE:
        return [text]
    out, at = [], 0
    while at < len(text):
        end = min(len(text), at + PIECE)
        if end < len(text):
            end = max(text.rfind(" ", end - SEAM, end), text.rfind("\n", end - SEAM, end), at + PIECE - SEAM)
        out.append(text[at:end])
        at = end
    return out


TOKENIZER = Tokenizer()
