"""Secrets never enter a summary: what looks like one is replaced by a marker. `recall` still finds it.

Only shapes that are secrets for sure: a false hit destroys an identifier that the work may need.
"""

from __future__ import annotations

import re

MARK = "[secret left out]"
_SHAPES = re.compile(
    r"sk-(?:ant-|proj-|live-|or-)?[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe …
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"  # JSON web tokens
    r"|\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"  # Telegram bots
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_NAMED = re.compile(
    r"(?i)(\b(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?token|auth[_-]?token|password|passwd|pwd|密码|口令)"
    r"[\"']?\s*[:=：]\s*[\"']?|\bbearer\s+|://[^/\s:@]{1,64}:)([^\s\"'@,;，。]{6,256})"
)


_SHAPE_HINTS = (
    "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox",
    "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "npm_", "pypi-", "hf_", "eyJ", "PRIVATE KEY", ":AA",
)  # fmt: skip
_NAME_HINTS = ("key", "secret", "token", "passw", "pwd", "bearer", "密码", "口令", "://")


def redact(text: str) -> str:
    """The text without what looks like a secret; names and places around it stay."""
    if _may_have_shape(text):
        text = _SHAPES.sub(MARK, text)
    return _NAMED.sub(lambda found: found[1] + MARK, text) if _may_have_name(text) else text


def has_secret(text: str) -> bool:
    """Whether `redact` would change anything."""
    if _may_have_shape(text) and _SHAPES.search(text) is not None:
        return True
    return _may_have_name(text) and _NAMED.search(text) is not None


def _may_have_shape(text: str) -> bool:
    """Finding a hint is a hundred times cheaper than finding that no secret is there."""
    return any(hint in text for hint in _SHAPE_HINTS)


def _may_have_name(text: str) -> bool:
    small = text.lower()
    return any(hint in small for hint in _NAME_HINTS)
