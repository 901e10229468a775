"""The cache boundary in a system prompt: above it what stays the same, below it what changes.

Everything written above must be a pure function of the session's configuration, so the texts that
go into it are normalised here. OpenClaw's marker means the same as ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

BOUNDARY = "<!-- PERDURE_CACHE_BOUNDARY -->"
FOREIGN_BOUNDARY = "<!-- OPENCLAW_CACHE_BOUNDARY -->"

_MARKER = re.compile(f"\n(?:{re.escape(BOUNDARY)}|{re.escape(FOREIGN_BOUNDARY)})\n")
_TRAILING = re.compile("[ \t]+(?=[\n\u2028\u2029]|$)")


def split(prompt: str) -> tuple[str, str] | None:
    """The stable and the dynamic part, at the first marker; None where there is no marker."""
    found = _MARKER.search(prompt)
    if found is None:
        return None
    return prompt[: found.start()].rstrip(), prompt[found.end() :].lstrip()


def strip(prompt: str) -> str:
    """The prompt without markers, for providers that can't use them."""
    return _MARKER.sub("\n", prompt)


def insert_after_boundary(prompt: str, addition: str) -> str:
    """The prompt with `addition` just below the boundary; above everything where there is none."""
    addition = normalise(addition)
    if not addition:
        return prompt
    found = _MARKER.search(prompt)
    if found is None:
        return f"{addition}\n\n{prompt}"
    stable, dynamic = prompt[: found.start()].rstrip(), normalise(prompt[found.end() :])
    return stable + found.group() + addition + (f"\n\n{dynamic}" if dynamic else "")


def normalise(text: str) -> str:
    """One section: line ends as LF, no blanks at line ends, none around the whole."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _TRAILING.sub("", lines).strip()


def capability_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Capabilities in lower case, without blanks and repetitions, in one order on every machine."""
    cleaned = {normalise(each).lower() for each in ids}
    return tuple(sorted(cleaned - {""}, key=_alphabetical))


def tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of tools as the cache snapshot holds them: trimmed, without blanks, in their order."""
    return tuple(trimmed for name in names if (trimmed := name.strip()))


def _alphabetical(text: str) -> tuple[list[tuple[int, str]], str]:
    """The order people expect (blank, punctuation, digits, letters; accents beside their letter).

    It needs no locale, which would differ from machine to machine.
    """
    base = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return [(_rank(c), c) for c in "".join(base).replace("ß", "ss")], text


def _rank(char: str) -> int:
    if char.isspace():
        return 0
    punctuation = "_-,;:!?./|"
    if char in punctuation:
        return 1 + punctuation.index(char)
    if char.isdigit():
        return 30
    return 40 if char.isalpha() else 20
