"""What a failure of a model call means: decided here once, for every provider and every caller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from perdure.edges.models.wordings import BY_STATUS, ORDER
from perdure.errors import ModelError, ModelErrorKind

MAX_TEXT = 8_000  # characters looked at: error pages can be long
MAX_DIGITS = 12  # of a prompt's size; what is longer is no size
OBSERVED = re.compile(
    r"prompt is too long: ([\d,]+)|requested (?:about )?([\d,]+) tokens|resulted in ([\d,]+) tokens"
    r"|input length and `?max_tokens`? exceed context limit: ([\d,]+)|input token count (?:is )?\(?([\d,]+)"
    r"|(?:prompt|request|messages?) (?:contains?|has) ([\d,]+) (?:input )?tokens"
    r"|prompt token count of ([\d,]+)|number of input tokens ([\d,]+)"
    r"|(?:prompt|input|request) \((?:(?:total )?length )?([\d,]+)(?: tokens)?\)"
    r"|given: ([\d,]+) `inputs`|current length is ([\d,]+)|- received ([\d,]+)",
    re.IGNORECASE,
)
RETRY_TEXT = re.compile(
    r"(?:retry|try again) (?:in|after) ([\d.]+) ?(ms|milliseconds?|s|sec|seconds?|m|min|minutes?)?\b"
    r"|\"?retrydelay\"?\W{1,4}([\d.]+)s",
    re.IGNORECASE,
)
STATUS_TEXT = re.compile(r"^(?:error code: )?([1-5]\d\d)\b", re.IGNORECASE)


def classify(status: int | None, text: str) -> ModelErrorKind:
    """One kind for a status and whatever text came with it (plain, JSON, or JSON inside JSON).

    The text decides before the status: providers send overflow as 400, billing as 429 and missing
    logins as 500. Without a status, one at the head of the text is used, as clients render it.
    """
    text = text[:MAX_TEXT]
    low = f"{text}\n{message_of(text)}".lower().strip()
    first = STATUS_TEXT.match(low)
    if status is None and first:
        status = int(first[1])
    for kind, pattern in ORDER:
        if pattern.search(low):
            return kind
    if status is None:
        return "unknown"
    return BY_STATUS.get(status) or ("server" if status >= 500 else "invalid" if status >= 400 else "unknown")


def model_error(
    status: int | None, text: str, headers: Mapping[str, str] | None = None, now: float = 0.0
) -> ModelError:
    """The typed error for a reply. `now` is epoch seconds, for a `retry-after` that is a date."""
    kind = classify(status, text)
    line = " ".join(f"{status or ''} {message_of(text[:MAX_TEXT])}".split())[:600]
    wait = retry_after(headers or {}, text, now) if kind in ModelError.RETRYABLE else None
    return ModelError(
        kind, line or "the provider sent an error without a text", status=status, retry_after=wait
    )


def retry_after(headers: Mapping[str, str], text: str, now: float) -> float | None:
    """Seconds to wait: `retry-after-ms`, `retry-after` (seconds or an HTTP date), else a hint in the text."""
    lowered = {name.lower(): value for name, value in headers.items()}
    wait = _number(lowered.get("retry-after-ms"))
    if wait is not None:
        return wait / 1000
    value = lowered.get("retry-after")
    wait = _number(value)
    if wait is None and value:
        try:
            wait = max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except (ValueError, OverflowError):  # no date, or a year that no clock has
            wait = None
    return wait if wait is not None else _wait_in(text[:MAX_TEXT])


def _wait_in(text: str) -> float | None:
    found = RETRY_TEXT.search(text)
    wait = _number(found[1] or found[3]) if found else None
    if not found or wait is None:
        return None
    unit = (found[2] or "s").lower()
    if unit.startswith("milli") or unit == "ms":
        return wait / 1000
    return wait * 60 if unit.startswith("m") else wait


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 1e9 else None


def observed_tokens(text: str) -> int | None:
    """The size of the refused prompt in tokens, where the provider's wording tells it."""
    found = OBSERVED.search(text[:MAX_TEXT])
    groups = found.groups() if found else ()
    digits = next((group for group in groups if group), "").replace(",", "")
    return int(digits) if 0 < len(digits) <= MAX_DIGITS else None


def message_of(text: str) -> str:
    """The innermost message of an error body: plain text, JSON, or JSON text inside JSON."""
    for _ in range(4):
        start = text.find("{")
        inner = _message(_loads(text[start:])) if start >= 0 else None
        if not inner or inner == text:
            break
        text = inner
    return text.strip()


def _message(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    error = value.get("error", value)
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return None
    message = error.get("message")
    return message if isinstance(message, str) else None


def _loads(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
