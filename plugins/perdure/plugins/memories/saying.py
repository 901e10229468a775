"""Whether a text says something, in any case and width, and as whole words where a script has words. Pure."""

from __future__ import annotations

import re
import unicodedata

JOINED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts without spaces, or whose words grow endings: a part counts there."""
_JOINED = re.compile(f"[{JOINED}]")


def folded(text: str) -> str:
    """What is equal for texts that differ in case, width and white space only."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def is_joined(text: str) -> bool:
    """Whether it holds a character of such a script."""
    return _JOINED.search(text) is not None


def says(text: str, wanted: str) -> bool:
    """Whether the text holds what is wanted; nothing says nothing."""
    held, part = folded(text), folded(wanted)
    if not part or is_joined(part):
        return bool(part) and part in held
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", held) is not None
