"""Expected counts as people write them (`3`, `">=3"`, `"<=3"`, `"2..5"`), and what was observed.

Pure: the player fills `Observed`, `failures` compares. A failure is one line: expected, found, where.
"""

from __future__ import annotations

import re

from perdure.records import Record
from perdure.replay.steps import Count, ExpectStep

COUNTS = (
    "turns", "steps", "requests", "refused", "compactions", "truncations", "overflows", "errors", "entries",
    "tool_runs", "largest", "lost", "unused", "unscripted",
)  # fmt: skip
_FORM = re.compile(r"(>=|<=)? ?(\d+)|(\d+)\.\.(\d+)")
_SHOWN = 120


class Observed(Record):
    """What a player saw of one session, or of all together, up to an expectation.

    `reply` and `stop` are the last turn's; `request` is the text of the last request (system, messages),
    `recalled` what recall finds for the text that is looked for. `largest` is the biggest request in
    tokens by the scripted model's count. `lost`: acknowledged messages that are not in their files.
    """

    reply: str = ""
    stop: str = ""
    request: str = ""
    recalled: str = ""
    turns: int = 0
    steps: int = 0
    requests: int = 0
    refused: int = 0
    compactions: int = 0
    truncations: int = 0
    overflows: int = 0
    errors: int = 0
    entries: int = 0
    tool_runs: int = 0
    largest: int = 0
    lost: int = 0
    unused: int = 0
    unscripted: int = 0


def bounds(count: Count) -> tuple[int, int | None] | None:
    """The least and most (`None`: no most) that a count allows; `None` where it can't be read."""
    if isinstance(count, int):
        return (count, count) if count >= 0 else None
    found = _FORM.fullmatch(count.strip())
    if found is None:
        return None
    sign, number, least, most = found.groups()
    if number is None:
        return (int(least), int(most)) if int(least) <= int(most) else None
    value = int(number)
    return {">=": (value, None), "<=": (0, value)}.get(sign, (value, value))


def failures(step: ExpectStep, seen: Observed) -> tuple[str, ...]:
    """One line for everything that doesn't hold; empty if all does."""
    where = f" in {step.session}" if step.session else ""
    return tuple(line + where for line in (*_counted(step, seen), *_read(step, seen)))


def _counted(step: ExpectStep, seen: Observed) -> list[str]:
    lines = []
    for name in COUNTS:
        count: Count | None = getattr(step, name)
        allowed = None if count is None else bounds(count)
        if allowed is None:
            continue
        least, most = allowed
        found: int = getattr(seen, name)
        if found < least or (most is not None and found > most):
            lines.append(f"expected {name} {count}, found {found}")
    return lines


def _read(step: ExpectStep, seen: Observed) -> list[str]:
    lines = []
    if step.reply is not None and step.reply not in seen.reply:
        lines.append(f"expected a reply with {step.reply!r}, the last was {_short(seen.reply)!r}")
    if step.stop is not None and step.stop != seen.stop:
        lines.append(f"expected the last turn to end with {step.stop!r}, it was {seen.stop!r}")
    if step.visible is not None and step.visible not in seen.request:
        lines.append(f"expected {step.visible!r} in the last request")
    if step.hidden is not None and step.hidden in seen.request:
        lines.append(f"expected {step.hidden!r} not to be in the last request")
    if step.findable is not None and step.findable not in seen.request + "\0" + seen.recalled:
        lines.append(f"expected to find {step.findable!r} in the last request or by recall")
    return lines


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
