"""How providers word their failures: patterns in lower case, in the order in which they are tried.

Recorded in real sessions, quoted in public issue threads, or taken from the official SDKs. The first
kind that matches wins, so what only looks like an overflow (rate limits in tokens, billing, settings)
stands before it.
"""

from __future__ import annotations

import re

from perdure.errors import ModelErrorKind


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.DOTALL | re.MULTILINE)


SETTINGS = _any(
    "context window (is )?too small",
    r"minimum (context window )?is \d",
    "reasoning is (mandatory|required)",
    r"reasoning.{0,40}cannot be disabled",
    "thinking level",
    "items are not persisted when",
)
BILLING = _any(
    "credit balance",
    r"exceeded your current quota(?!.{0,400}retry (in|delay))",
    r"usage limit for this (period|billing|month)",
    "insufficient[_ ](quota|balance|credits|funds)",
    "billing_error",
    "payment required",
    "spend(ing)? (limit|cap)",
    "billing hard limit",
    "余额不足",
    "欠费",
    "账户已停用",
)
RATE = _any(
    "rate[_ -]?limit",
    "too many requests",
    r"tokens per (min|day)",
    r"requests per (min|day)",
    r"\btpm\b",
    r"\brpm\b",
    "resource[_ ]?(has been )?exhausted",
    "quota exceeded for metric",
    "exceeded your current quota",
    "throttl",
    "请求过于频繁",
    "速率限制",
    "限流",
    "并发.{0,6}(超|上限)",
)
AUTH = _any(
    "authentication_error",
    "permission_error",
    r"(invalid|incorrect|missing|no|expired)[ _](x-)?api[ _-]?key",
    "unauthorized",
    "auth_unavailable",
    "no auth available",
    "could not resolve authentication",
    "cannot convert argument to a bytestring",
    "oauth token (has )?expired",
    "密钥(无效|错误)",
    "鉴权失败",
)
OVERFLOW = _any(
    "request_too_large",
    r"context[ _]length[ _]exceeded",
    "maximum context length",
    "prompt (is )?too long",
    "exceeds? (the )?model('s)? context window",
    "model token limit",
    "request exceeds the maximum size",
    "context overflow:",
    "exceeds? (the )?context (limit|window|length|size)",
    r"context[ _]window[ _]exceeded",
    r"(invalid_argument|input exceeds|input token count).{0,200}maximum number of tokens",
    r"request size exceeds.{0,200}context",
    r"max_tokens.{0,200}exceed.{0,200}context",
    r"input length.{0,200}exceed.{0,200}context",
    r"exceed.{0,40}maximum (input|prompt|context)",
    r"413.{0,40}too large",
    r"context (size|length|window).{0,40}(too large|too long|exceeded)",
    "input is too long for requested model",
    "reduce the length of the (messages|prompt)",
    r"exceeds the available context size",
    r"resulted in \d+ tokens",
    "longer than the maximum model length",
    "too long to fit into the model",
    r"context (the )?overflows?\b",
    "greater than the context length",
    r"reached context length of \d",
    r"maximum prompt length is \d",
    "input token length too long",
    "exceed_context_size",
    "maximum length 10485760",
    "上下文过长",
    "上下文超出",
    "上下文长度超",
    "超出最大上下文",
    "请压缩上下文",
)
NOT_FOUND = _any(
    "not_found_error",
    r"model[ _]not[ _]found",
    r"model.{0,80}does not exist",
    "unknown model",
    "code plan not support model",
    r"(404|not found).{0,20}model",
    "not a valid model id",
    "模型不存在",
)
INVALID = _any("does not support tools", "invalid_request_error", "unsupported parameter", "invalid request")
OVERLOADED = _any(
    "overloaded",
    "service unavailable",
    "over capacity",
    "model is busy",
    "loading model",
    "服务繁忙",
    "服务过载",
)
TIMEOUT = _any("timed? ?out", "timeout", "deadline exceeded")
CUT = _any(
    r"^terminated$",
    r"unterminated string in json",
    r"unexpected end of (json|file|stream)",
    "premature close",
    "incomplete chunked read",
    "stream (ended|closed|was cut)",
    "peer closed connection",
)
TRANSPORT = _any(
    "econnre(set|fused)",
    "enotfound",
    "eai_again",
    "epipe",
    "unknown_certificate",
    "certificate",
    "socket hang up",
    "fetch failed",
    "connection (error|reset|refused|aborted)",
    "network error",
    "name or service not known",
)
ABORTED = _any(r"(request|operation) was aborted", "aborterror")
EMPTY = _any("empty (response|answer|content)", "returned no content")
SERVER = _any("internal server error", "api_error", "provider returned error", "bad gateway", "server_error")

ORDER: tuple[tuple[ModelErrorKind, re.Pattern[str]], ...] = (
    ("aborted", ABORTED),
    ("invalid", SETTINGS),
    ("billing", BILLING),
    ("rate_limit", RATE),
    ("auth", AUTH),
    ("overflow", OVERFLOW),
    ("not_found", NOT_FOUND),
    ("overloaded", OVERLOADED),
    ("invalid", INVALID),
    ("cut", CUT),
    ("timeout", TIMEOUT),
    ("transport", TRANSPORT),
    ("empty", EMPTY),
    ("server", SERVER),
)
BY_STATUS: dict[int, ModelErrorKind] = {
    400: "invalid",
    401: "auth",
    402: "billing",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "overflow",
    422: "invalid",
    429: "rate_limit",
    499: "aborted",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
