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
    r"|\b\d{8,10}:[A-Za-z0-9_-]{35}\b"  # Telegram bots
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_NAMED = re.compile(
    r"(?i)(\b(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?token|auth[_-]?token|password|passwd|pwd|密码|口令)"
    r"[\"']?\s*[:=：]\s*[\"']?|\bbearer\s+|://[^/\s:@]{1,64}:)([^\s\"'@,;，。]{6,256})"
)


def redact(text: str) -> str:
    """The text without what looks like a secret; names and places around it stay."""
    return _NAMED.sub(lambda found: found[1] + MARK, _SHAPES.sub(MARK, text))


def has_secret(text: str) -> bool:
    return _SHAPES.search(text) is not None or _NAMED.search(text) is not None
