"""Shortening a text: head only, or head 70 % and tail 30 % where the tail matters.

`plan` decides once how many characters stay; `shorten` renders. The rendering is a pure function of
(text, head, tail, ref), so that a stored `Decision` gives the same bytes for ever. The notice says how
much is missing and how to read it. A text that carries such a notice is cut further, never noticed twice.
"""

from __future__ import annotations

import re

from perdure.context.numbers import OMISSION_MARKER, TAIL_SHARE
from perdure.context.results.tails import has_important_tail
from perdure.context.text.graphemes import cut_after, cut_before
from perdure.records import Record

_NOTICE = re.compile(
    r"\n?\[\.\.\. ([\d,]{1,20}) more characters truncated(?:; `recall ([^`\s]{1,200})` reads them)?\]\s*\Z"
)
_NEWLINE_SHARE = 0.2
"""A cut moves to a line end if that costs at most this share of the part."""


class Cut(Record):
    """How many characters of a text stay, at its start and at its end."""

    head: int
    tail: int = 0


class Parts(Record):
    """A text that was shortened before, taken apart: what is left, and how much was missing already."""

    body: str
    missing: int = 0
    ref: str = ""


def notice(missing: int, ref: str = "") -> str:
    """The line that ends a shortened text. `ref` is what `recall` takes: an entry id or a hash."""
    how = f"; `recall {ref}` reads them" if ref else ""
    return f"\n[... {max(1, missing):,} more characters truncated{how}]"


def parts(text: str) -> Parts:
    """Recognise a text that was shortened already (by us, by the tool's edge, or by OpenClaw)."""
    found = _NOTICE.search(text, max(0, len(text) - 400))
    if found is None:
        return Parts(text)
    return Parts(text[: found.start()], int(found[1].replace(",", "") or 0), found[2] or "")


def shorten(text: str, head: int, tail: int, ref: str = "") -> str:
    """Keep `head` characters at the start and `tail` at the end, with marker and notice.

    The same arguments give the same bytes. Nothing is missing: the text itself. A reference that an
    older notice names wins: it leads to the full output, the entry only to what was left of it.
    """
    known = parts(text)
    body = known.body
    if head + tail >= len(body) or (tail and body[head : len(body) - tail] == OMISSION_MARKER):
        return text  # nothing is missing, or exactly this was done before
    kept = body[:head] + (OMISSION_MARKER + body[len(body) - tail :] if tail else "")
    return kept + notice(len(body) - head - tail + known.missing, known.ref or ref)


def plan(text: str, limit: int, ref: str = "") -> Cut:
    """Decide what stays of a text so that `shorten` gives at most `limit` characters.

    Where not even the notice fits, nothing but the notice stays: it is never left out, because a text
    that silently ends reads like a whole one.
    """
    known = parts(text)
    if len(text) <= limit:
        return Cut(len(known.body))
    tail_of_notice = notice(len(known.body) + known.missing, known.ref or ref)
    return plan_cut(known.body, limit - len(tail_of_notice))


def plan_cut(body: str, budget: int) -> Cut:
    """Split a budget of characters over head and tail of a text that is longer than the budget."""
    if budget >= 2 * len(OMISSION_MARKER) and has_important_tail(body):
        tail = int(budget * TAIL_SHARE)
        return Cut(_head(body, budget - tail - len(OMISSION_MARKER)), _tail(body, tail))
    return Cut(_head(body, budget))


def _head(body: str, budget: int) -> int:
    budget = max(0, budget)
    line = body.rfind("\n", 0, budget + 1)
    return cut_before(body, line if line > budget * (1 - _NEWLINE_SHARE) else budget)


def _tail(body: str, budget: int) -> int:
    start = len(body) - budget
    line = body.find("\n", start)
    inside = line != -1 and line < start + budget * _NEWLINE_SHARE
    return len(body) - cut_after(body, line + 1 if inside else start)
