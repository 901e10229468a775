"""Points in time as a model writes and reads them: `2026`, `2026-01`, `2026-01-05`, `2026-01-05T08:30Z`.
Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from perdure.errors import UsageError

_PARTIAL = re.compile(r"(\d{4})(?:-(\d{1,2}))?")
_DAY_MS = 86_400_000


def to_ms(text: str, what: str) -> int:
    """Milliseconds since 1970; a year, month or day is its first moment, UTC. Raises `UsageError`."""
    try:
        if found := _PARTIAL.fullmatch(text.strip()):
            when = datetime(int(found[1]), int(found[2] or 1), 1, tzinfo=UTC)
        else:
            when = datetime.fromisoformat(text.strip())
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{what}: {text[:40]!r} is no time; write it like 2026-01-05") from None


def to_text(ms: int) -> str:
    """The day; with the minute where it isn't midnight, UTC."""
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return when.strftime("%Y-%m-%d" if ms % _DAY_MS == 0 else "%Y-%m-%dT%H:%MZ")
