"""Bootstrap files: which of them a session gets, and how much of each.

Budgets are spent in loading order (most important first); a file over its limit keeps head and tail
with a notice that names the file to read. Raw and injected sizes are reported.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from perdure.context.prompt.system import ContextFile
from perdure.records import Record

NAMES = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md")
OPTIONAL = frozenset({"HEARTBEAT.md", "BOOTSTRAP.md"})  # their absence is normal and is not shown
HEAD_SHARE, TAIL_SHARE = 0.7, 0.2  # of a file's limit; the rest is room for the notice
MIN_ROOM = 64  # less than this is not worth a heading

Kind: TypeAlias = Literal["main", "group", "subagent", "cron", "heartbeat", "first_run"]
"""What a session is, as far as injection goes."""

_DELEGATED = frozenset({"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md"})
GATES: dict[Kind, frozenset[str]] = {
    "main": frozenset(NAMES),
    "group": frozenset(NAMES),
    "subagent": _DELEGATED,
    "cron": _DELEGATED,
    "heartbeat": frozenset({"HEARTBEAT.md"}),  # a light run: it only asks whether something is due
    "first_run": _DELEGATED | {"BOOTSTRAP.md"},  # nothing is known yet that could be due
}
KNOWLEDGE_KINDS: frozenset[Kind] = frozenset({"main"})
"""MEMORY.md and daily notes are private: not in groups, and not for delegated or scheduled runs."""


class BootstrapFile(Record):
    """A file as it lies in the workspace; `text` is None where it is missing or can't be read."""

    name: str
    path: str
    text: str | None = None


class Share(Record):
    """How much of one file was injected, in characters; `cause` says why not all."""

    name: str
    raw: int
    injected: int
    missing: bool = False
    cause: Literal["", "file", "total"] = ""


class Injected(Record):
    """The files for the prompt, and the report about them."""

    files: tuple[ContextFile, ...]
    report: tuple[Share, ...]

    @property
    def chars(self) -> int:
        """Characters injected in all."""
        return sum(share.injected for share in self.report)


def session_kind(key: str, *, first_run: bool = False, heartbeat: bool = False) -> Kind:
    """What a session key says: `…:subagent:…`, `…:cron:…`, a group or channel, else a main session.

    Letter case says nothing. A group stays one in a workspace that is new: others read along.
    """
    parts = [part for part in key.lower().split(":") if part]
    rest = parts[2:] if parts[:1] == ["agent"] else parts
    if "subagent" in rest[:1]:
        return "subagent"
    if "cron" in rest[:1]:
        return "cron"
    if heartbeat or "heartbeat" in rest[:1]:
        return "heartbeat"
    if rest[1:2] and rest[1] in ("group", "channel"):
        return "group"
    return "first_run" if first_run else "main"


def gate(
    files: tuple[BootstrapFile, ...], kind: Kind, *, heartbeats: bool = True
) -> tuple[BootstrapFile, ...]:
    """The files this kind of session gets, in loading order; other names never get in.

    `heartbeats` false: their guidance is off, so their file is for heartbeat runs only.
    """
    order = {name: n for n, name in enumerate(NAMES)}
    names = GATES[kind] if heartbeats or kind == "heartbeat" else GATES[kind] - {"HEARTBEAT.md"}
    return tuple(sorted((f for f in files if f.name in names), key=lambda f: order[f.name]))


def inject(
    files: tuple[BootstrapFile, ...], kind: Kind, *, per_file: int, total: int, heartbeats: bool = True
) -> Injected:
    """What the prompt gets. `per_file` and `total` are characters (`Limits.bootstrap_*_chars`)."""
    shown: list[ContextFile] = []
    report: list[Share] = []
    left = total
    for file in gate(files, kind, heartbeats=heartbeats):
        if file.text is None and file.name in OPTIONAL:
            continue
        if left < MIN_ROOM:
            report.append(Share(file.name, len(file.text or ""), 0, file.text is None, "total"))
            continue
        text, cause = _fit(file, per_file, left)
        if text:
            shown.append(ContextFile(file.name, text))
        left -= len(text)
        report.append(Share(file.name, len(file.text or ""), len(text), file.text is None, cause))
    return Injected(tuple(shown), tuple(report))


def _fit(file: BootstrapFile, per_file: int, left: int) -> tuple[str, Literal["", "file", "total"]]:
    if file.text is None:
        return clamp(f"[MISSING] Expected at: {file.path}", left), ""
    text = file.text.replace("\r\n", "\n").strip()
    limit = min(per_file, left)
    if len(text) <= limit:
        return text, ""
    return clamp(shorten(text, file.name, limit), left), "file" if per_file <= left else "total"


def shorten(text: str, name: str, limit: int) -> str:
    """Head 70 % and tail 20 % of the limit, and between them what is missing and where to read it."""
    head, tail = int(limit * HEAD_SHARE), int(limit * TAIL_SHARE)
    kept = f"kept the first {head:,} and the last {tail:,} of {len(text):,} characters"
    notice = f"[... shortened: {kept}; read {name} for the rest ...]"
    return f"{text[:head].rstrip()}\n\n{notice}\n\n{text[-tail:].lstrip() if tail else ''}".rstrip()


def clamp(text: str, limit: int) -> str:
    """At most `limit` characters, an ellipsis where something went."""
    if len(text) <= limit:
        return text
    return text[:limit] if limit <= 3 else text[: limit - 1] + "…"


def warning(report: tuple[Share, ...]) -> str:
    """One line about shortened files for people, empty where all is whole."""
    cut = [share for share in report if share.cause]
    if not cut:
        return ""
    named = ", ".join(f"{share.name} ({share.injected:,} of {share.raw:,} characters)" for share in cut[:3])
    more = f" and {len(cut) - 3} more" if len(cut) > 3 else ""
    return f"bootstrap files shortened: {named}{more}"
