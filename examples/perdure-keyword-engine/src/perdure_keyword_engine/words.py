"""Words of a text, as a set: of scripts without blanks every two neighbouring characters are one."""

from __future__ import annotations

import re

_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\w+")
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SHORTEST = 3  # letters: shorter words say little


def words(text: str) -> frozenset[str]:
    """Lower-cased words of at least three letters, and pairs of CJK characters."""
    found: set[str] = set()
    for run in _RUN.findall(text.lower()):
        if _DENSE.match(run):
            found |= {run[n : n + 2] for n in range(max(1, len(run) - 1))}
        elif len(run) >= SHORTEST:
            found.add(run)
    return frozenset(found)
