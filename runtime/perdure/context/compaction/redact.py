"""Secrets never enter a summary: `recall` still finds them. The shapes are those of `context.secrets`.

A history is long and most of its lines can't hold a secret: only lines with a telling word or a long
enough run of token characters are read closely.
"""

from __future__ import annotations

import re

from perdure.context.text import secrets

_LONG = r"[A-Za-z0-9_.+/=-]{13,}"
"""No known shape is shorter."""

_TELLING = re.compile(
    "key|token|secret|pass|pwd|auth|credential|cookie|signature|bearer|basic|digest|://|密码|口令|パスワード|비밀번호|"
    + _LONG,
    re.IGNORECASE,
)
_OTHER_NAMES = re.compile(r"((?:密码|口令|パスワード|비밀번호)\s*[:=：]\s*)([^\s，。；,;]{4,256})")


def redact(text: str) -> str:
    """The text without what looks like a secret; names and places around it stay."""
    if "PRIVATE KEY" in text:  # a block of several lines
        return _close(text)
    if not _TELLING.search(text):
        return text
    return "".join(_close(line) if _TELLING.search(line) else line for line in text.splitlines(keepends=True))


def has_secret(text: str) -> bool:
    """Whether `redact` would change anything."""
    return redact(text) != text


def _close(text: str) -> str:
    clean = secrets.redact(text)
    return clean if clean.isascii() else _OTHER_NAMES.sub(rf"\g<1>{secrets.REDACTED}", clean)
