"""The second decoder: JSON that strict decoders refuse and JavaScript writes (lone surrogates, 1e400).

Raw control characters and bytes that are not UTF-8 (read as U+FFFD, as JavaScript does) cost nothing
either. Numbers no double can hold become null, which is what JavaScript writes for them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DIGITS: Final = 400  # more than any finite double has


def loads(data: bytes) -> Any:
    """The value of a JSON text. Raises `ValueError` for what is damaged or nested too deeply."""
    try:
        return _DECODER.decode(text(data))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def text(data: bytes) -> str:
    """UTF-8 as text; halves of surrogate pairs are kept, other stray bytes become U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def dumps(value: Any) -> bytes:
    """Compact JSON, non-ASCII kept, lone surrogates as escapes; what `loads` gives comes back equal."""
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", plain).encode()


def _float(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _int(digits: str) -> int | float | None:
    return int(digits) if len(digits) < _DIGITS else _float(digits)


_DECODER: Final = json.JSONDecoder(
    parse_float=_float, parse_int=_int, parse_constant=lambda _: None, strict=False
)
