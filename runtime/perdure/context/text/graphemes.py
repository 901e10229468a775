"""Where a text may be cut: never between a base character and what belongs to it.

A cut inside a surrogate pair, an accented letter or an emoji sequence gives text that some providers
refuse and all readers stumble over. This covers what occurs in tool output, not all of Unicode's rules.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_EXTENDING = frozenset({"Mn", "Mc", "Me"})
_FAR = 512
"""No honest cluster is longer; a longer run of marks is an attack and may be cut."""


def _extends(char: str) -> bool:
    """Whether this character only modifies the one before it."""
    if char < "\u0300":
        return False
    code = ord(char)
    return (
        unicodedata.category(char) in _EXTENDING
        or char == _JOINER
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags of regional flags
        or 0xDC00 <= code <= 0xDFFF  # second half of a surrogate pair
        or 0x1160 <= code <= 0x11FF  # vowels and finals of decomposed Hangul
    )


def _flag_halves(text: str, at: int) -> int:
    """How many regional indicators stand directly before `at` (a flag is two of them)."""
    start = at
    while start > max(0, at - _FAR) and 0x1F1E6 <= ord(text[start - 1]) <= 0x1F1FF:
        start -= 1
    return at - start


def _splits(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    if _extends(text[at]) or text[at - 1] == _JOINER or text[at - 1 : at + 1] == "\r\n":
        return True
    return 0x1F1E6 <= ord(text[at]) <= 0x1F1FF and _flag_halves(text, at) % 2 == 1


def cut_before(text: str, at: int) -> int:
    """The last place at or before `at` where the text may be cut."""
    at = max(0, min(at, len(text)))
    for place in range(at, max(-1, at - _FAR), -1):
        if not _splits(text, place):
            return place
    return at


def cut_after(text: str, at: int) -> int:
    """The first place at or after `at` where the text may be cut."""
    at = max(0, min(at, len(text)))
    for place in range(at, min(len(text) + 1, at + _FAR)):
        if not _splits(text, place):
            return place
    return at
