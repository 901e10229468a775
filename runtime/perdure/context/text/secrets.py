"""Finds secrets in text by their shape, and secret settings by their name, and blacks them out.

For logs, summaries and child environments. A secret that is missed does harm, a harmless string that
is blacked out rarely does: where a shape is unmistakable (`sk-ant-…`), no word boundary is asked for.
All patterns are linear: hostile text must not stall a host.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_SHAPES = (
    r"sk-(?:ant|proj|or|svcacct|admin|lf)-[A-Za-z0-9_-]{8,}",  # Anthropic, OpenAI, OpenRouter, Langfuse
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, DeepSeek and those that copy them
    r"(?:sk|rk|pk|whsec)_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{16,}",  # Stripe
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_.-]{16,}",
    r"xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}",
    r"hooks\.slack\.com/services/[A-Za-z0-9/_-]{8,}|discord(?:app)?\.com/api/webhooks/[A-Za-z0-9/_-]{8,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}",
    r"hf_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}",
    r"npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}|dckr_pat_[A-Za-z0-9_-]{16,}",
    r"do[opr]_v1_[a-f0-9]{16,}|SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}",
    r"lin_api_[A-Za-z0-9]{16,}|ntn_[A-Za-z0-9]{20,}|secret_[A-Za-z0-9]{32,}|key-[a-f0-9]{32}|tvly-[A-Za-z0-9-]{16,}",
    r"eyJ[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]*){0,4}",  # JSON web tokens, and other encoded JSON objects
    r"(?<![0-9])[0-9]{8,}+:AA[A-Za-z0-9_-]{30,}",  # Telegram bots
    r"age-secret-key-1[a-z0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    r"gl(?:agent|imt|ffct|oas|rtr|ft|cbt)-[A-Za-z0-9_.-]{16,}|GR1348941[A-Za-z0-9_-]{16,}",  # more of GitLab
    r"1//0[A-Za-z0-9_-]{32,}",  # refresh tokens of Google's OAuth
    r"hv[sbr]\.[A-Za-z0-9_-]{20,}|dapi[a-f0-9]{32}|ATATT3[A-Za-z0-9_=-]{20,}|NRAK-[A-Z0-9]{20,}",
    r"rubygems_[a-f0-9]{32,}|cio[A-Za-z0-9]{32}|PMAK-[a-f0-9]{20,}(?:-[a-f0-9]+)?|oy2[a-z0-9]{43}",
    r"gl(?:sa|c)_[A-Za-z0-9_]{20,}(?:={0,2})|sntry[su]_[A-Za-z0-9_=+/-]{20,}|dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9.]{16,}",
    r"sbp_[a-f0-9]{20,}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{16,}|figd_[A-Za-z0-9_-]{16,}|fm[12]_[A-Za-z0-9+/=_,-]{20,}",
    r"sq0(?:atp|csp)-[A-Za-z0-9_-]{16,}|(?<![A-Za-z0-9])(?:SK|AC)[a-f0-9]{32}(?![A-Za-z0-9])|pat[A-Za-z0-9]{14}\.[a-f0-9]{32,}",
)
_SHAPE = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES))
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_SCHEME = re.compile(r"\b(bearer|basic|token|digest)(\s{1,4})([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_URL_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/?#@'\"<>]{1,512}@)+")
_WORDS = (
    r"api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?|secret[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key"
    r"|account[_-]?key|auth[_-]?key|access[_-]?token|refresh[_-]?token|auth[_-]?token|id[_-]?token|session[_-]?token"
    r"|bearer[_-]?token|bot[_-]?token|csrf[_-]?token|token|client[_-]?secret|secret|passwd|password|passphrase|pwd"
    r"|authorization|credentials?|cookie|signature"
)
_ASSIGNED = re.compile(
    r"((?:" + _WORDS + r")(?:\\?[\"'])?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4})"
    r"(\\\"[^\"\\\n]{1,4096}\\\"|\"(?:[^\"\\\n]|\\[^\n]){1,4096}\"|'[^'\n]{1,4096}'"  # \"x\" or "x" or 'x'
    r"|\\?[\"']?[^\s\"'\\&;,<>{}()\[\]]{4,})",  # a bare word, or a quote that never closes
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?:^|[_.-])(?:api_?key|apikey|access_?key(?:_?id)?|secret(?:s|_?key|_?access_?key)?|private_?key|signing_?key"
    r"|encryption_?key|account_?key|auth_?key|key|token|passwd|password|passphrase|pwd|pat|auth|authorization"
    r"|credentials?|cookies?|set_?cookie|sock|dsn|session_?key)$",
    re.IGNORECASE,
)
_HARMLESS = frozenset({"key", "session_key", "sessionkey", "pwd", "oldpwd", "sock"})


def redact(text: str) -> str:
    """The text with every secret-shaped part replaced by `[redacted]`; harmless text stays as it is."""
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(REDACTED, text)
    text = _SHAPE.sub(REDACTED, text)
    if "://" in text:
        text = _URL_USER.sub(r"\1" + REDACTED + "@", text)
    text = _SCHEME.sub(_keep_words, text)
    return _ASSIGNED.sub(_keep_name, text)


def is_secret_name(name: str) -> bool:
    """Whether a setting, field or variable of this name holds a secret (`ANTHROPIC_API_KEY`, `authToken`)."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return plain not in _HARMLESS and _NAME.search(plain) is not None


def _keep_words(found: re.Match[str]) -> str:
    """`token economics` is prose; a credential has a digit, a sign or mixed case."""
    value = found[3]
    mixed = value.lower() != value and not value.istitle() and not value.isupper()
    if value.isalpha() and not mixed and len(value) < 24:
        return found[0]
    return f"{found[1]}{found[2]}{REDACTED}"


def _keep_name(found: re.Match[str]) -> str:
    value = found[2].strip("\\\"'")
    if value.startswith(REDACTED) or value.lower() in {"true", "false", "null", "none"} or len(value) < 4:
        return found[0]
    if value.isdigit() and len(value) <= 8:
        return found[0]  # counts and limits: `max_token: 4096`
    opening, closing = found[2][: found[2].index(value)], found[2][found[2].index(value) + len(value) :]
    return f"{found[1]}{opening}{REDACTED}{closing}"
