"""Which rule of ours changed a byte that was sent before: the cause of a parting, by name.

A request is made in stages. The one to blame is the first whose outcome for the entry in question is
another than at the last request, for what went into it was the same. Causes are *declared* where a
command, a recorded decision or the clock stands behind them; all others are faults to be found.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, TypeAlias

from perdure.context.cache.prefix import Parting
from perdure.context.prompt.recalled import RULE, without_recalled
from perdure.records import Items, LedgerLine, Record, Summary

Cause: TypeAlias = Literal[
    "compaction", "pruning", "guard", "limit", "model", "thinking", "retention", "expired", "refresh",
    "tools", "prompt", "knowledge", "skills", "clock", "engine", "hook", "edited", "branch", "sanitise",
    "settings", "images", "restart", "provider", "recall",
]  # fmt: skip
DECLARED: frozenset[Cause] = frozenset(
    {
        "compaction",
        "pruning",
        "guard",
        "limit",
        "model",
        "thinking",
        "retention",
        "expired",
        "refresh",
        "images",
        "recall",
    }
)

Stage: TypeAlias = tuple[str, Items]
"""A step on the way to the wire by name (`stored`, `history`, `engine`, `hook NAME`, `prune`, `guard`,
`seal`), and what it made."""

_CLOCK = re.compile(
    r"\d{1,2}:\d{2}(?::\d{2})?|\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\b1[6-9]\d{8}(?:\d{3})?\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,2}\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\d{1,2}月\d{1,2}日|星期.",
    re.IGNORECASE,
)
_NEAR = 40  # characters around a difference that are looked at for a clock


class Blame(Record):
    """`rule` names the code path; `refresh` in it why a prompt was read anew."""

    cause: Cause
    rule: str
    parting: Parting | None = None

    @property
    def declared(self) -> bool:
        """Whether somebody chose it, or the clock did."""
        return self.cause in DECLARED


class Made(Record):
    """What is known of how one request came about."""

    stages: tuple[Stage, ...]
    lines: tuple[LedgerLine, ...]
    system: str
    addition: str
    thinking: str
    refreshed: str = ""


def blame(parting: Parting, before: Made, after: Made) -> Blame:
    """The cause of a parting between two requests."""
    if parting.part == "messages":
        return _in_messages(parting, before, after)
    if parting.part == "system":
        return _in_system(parting, before, after)
    if parting.part == "settings":
        return _in_settings(parting, before, after)
    if parting.part in ("images", "retention"):
        return Blame("images" if parting.part == "images" else "retention", parting.part, parting)
    if parting.part == "tools":
        return Blame(
            "tools", f"tools: {parting.before or 'nothing'} -> {parting.after or 'nothing'}", parting
        )
    return Blame("model", f"model: {parting.before} -> {parting.after}", parting)


def _in_settings(parting: Parting, before: Made, after: Made) -> Blame:
    if before.thinking == after.thinking:
        return Blame("settings", "settings of the request", parting)
    asked = next((line.rule for line in after.lines if line.rule.startswith("thinking")), "")
    level = f"thinking: {before.thinking} -> {after.thinking}"
    if after.thinking == "off" and asked:  # it was asked for, and couldn't be had with this history
        return Blame("sanitise", f"{level} ({asked})", parting)
    return Blame("thinking", level, parting)


def _in_system(parting: Parting, before: Made, after: Made) -> Blame:
    """Whoever wrote the line that differs: an engine, a memory, a time of day, or a file read anew."""
    if before.addition != after.addition and before.system == after.system:
        rule = "engine: its addition to the prompt"
        return Blame("clock" if is_clock(parting) else "engine", rule, parting)
    if before.system != after.system and without_recalled(before.system) == without_recalled(after.system):
        return Blame("recall", RULE, parting)
    heading, _, _ = (parting.before or parting.after).partition(":")
    why = f"prompt: {heading.strip('# ') or 'its text'}"
    if heading == "## Runtime" and before.thinking != after.thinking:
        return Blame("thinking", f"thinking: {before.thinking} -> {after.thinking}", parting)
    if after.refreshed == "compaction":
        return Blame("compaction", f"{why}, read anew after it", parting)
    if after.refreshed in ("cold", "model", "thinking"):
        return Blame("refresh", f"{why}, read anew ({after.refreshed})", parting)
    if is_clock(parting):
        return Blame("clock", why, parting)
    kind: Cause = "prompt"
    if heading.startswith("## Skills"):
        kind = "skills"
    elif heading.startswith(("# Workspace Knowledge", "## MEMORY.md", "## memory/")):
        kind = "knowledge"
    return Blame(kind, f"{why}, read anew ({after.refreshed})" if after.refreshed else why, parting)


def is_clock(parting: Parting) -> bool:
    """Whether what differs is a time of day or a date, on both sides."""
    a, b = parting.before, parting.after
    at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return all(_CLOCK.search(text[max(0, at - _NEAR) : at + _NEAR]) for text in (a, b)) and any(
        found.start() <= at < found.end() + 1 for found in _CLOCK.finditer(a)
    )


def _in_messages(parting: Parting, before: Made, after: Made) -> Blame:
    old, new = dict(before.stages), dict(after.stages)
    for stages, others in ((before.stages, new), (after.stages, old)):  # a hook that is gone, or new
        for (_, given), (name, made) in pairwise(stages):
            if name not in others and _differs(parting.entries, given, made):
                return Blame("hook", name, parting)
    for name, items in after.stages:
        if name in old and _differs(parting.entries, old[name], items):
            return _of_stage(name, parting, before, after)
    last = after.stages[-1][0] if after.stages else "seal"
    return Blame("sanitise", f"{last}: another order", parting)


def _differs(entries: tuple[str, ...], before: Items, after: Items) -> bool:
    return any(
        [item.message for item in before if item.entry == entry]
        != [item.message for item in after if item.entry == entry]
        for entry in entries
    )


def _of_stage(name: str, parting: Parting, before: Made, after: Made) -> Blame:
    rule = _rule(parting.entries, after.lines) or _rule(parting.entries, before.lines)
    if name == "stored":
        return _stored(parting, dict(before.stages)[name], dict(after.stages)[name])
    if name == "prune":
        return Blame("pruning", rule or name, parting)
    if name == "guard":
        return Blame("guard", rule or name, parting)
    if name.startswith(("engine", "hook")):
        kind: Cause = "engine" if name.startswith("engine") else "hook"
        return Blame("clock" if is_clock(parting) else kind, name, parting)
    return Blame("limit" if rule.startswith("limit") else "sanitise", rule or name, parting)


def _stored(parting: Parting, before: Items, after: Items) -> Blame:
    """The view itself is another: a summary stands first, a branch was left, or an entry was rewritten."""
    known = {item.entry for item in before}
    if after and isinstance(after[0].message, Summary) and after[0].entry not in known:
        return Blame("compaction", f"compaction {after[0].entry}", parting)
    left = {item.entry for item in before} - {item.entry for item in after}
    if left:
        return Blame("branch", "the view goes along another branch", parting)
    return Blame("edited", f"entry {parting.entries[0]} was rewritten in the file", parting)


def _rule(entries: tuple[str, ...], lines: tuple[LedgerLine, ...]) -> str:
    """What was newly done to one of these entries, else what was done to it again."""
    rules = [line.rule for line in lines if line.entry in entries]
    return next((rule for rule in rules if not rule.endswith("replayed")), rules[0] if rules else "")
