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
    "too many tokens, please wait",
    "token rate",
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
    "exceed_context_size",
    r"resulted in \d+ tokens",
    "too long to fit into the model",
    "input token length too long",
    "maximum length 10485760",
    r"maximum (context|prompt|input|model) length",
    r"max (context|input|prompt|message)[ _]?(length|tokens)",
    r"max_(prompt|input)_tokens_exceeded",
    r"string too long\. expected a string with maximum length \d{5}",
    r"(longer|greater|larger) than the (model('s)? )?(maximum )?(model |context )(length|size|window)",
    r"token count.{0,80}(exceed|only supports up to|is too large)",
    r"(?<!\w)(prompt|inputs?|messages?)\b.{0,60}cannot exceed.{0,60}\d",
    r"too many (input tokens|tokens: |tokens in)",
    r"(prompt|input|request|message) has too many tokens",
    r"(prompt|inputs?|messages?|context|conversation).{0,40}\b(is|are) too (long|large)\b",
    r"prompt exceeds",
    r"prompt contains .{0,60}too large for",
    r"tokens? \+ `?max_new_tokens`? must be",
    r"must have less than \d+ tokens",
    r"context (length|window|size) (of|is) only",
    r"context the overflows",
    "reached context length",
    "context overflow",
    "tokens_limit_reached",
    r"request body too large for",
    r"payload size exceeds the limit",
    r"range of input length should be",
    r"total tokens.{0,60}exceed",
    r"exceed(s|ed)? (the )?(model|total) token(s)? limit",
    r"context window exceeds limit",
    r"input length \d+ exceeds",
    r"input is too large to process",
    r"current length is \d+ while limit is \d+",
    r"expected maxlength: \d+, actual: \d+",
    "输入.{0,6}(过长|超长|超出|超过)",
    "(提示词|消息|对话|prompt).{0,6}(过长|超长)",
    "(?<!max_)(tokens?|令牌).{0,6}(超限|超出|超过)",
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
