"""`perdure sessions list` and `show`: what is there, and what one of them remembers word for word."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.actors.status import kindred
from perdure.cli import folder as looking
from perdure.cli.output import emit, one_line, patience, say, size, table, warn
from perdure.cli.transcript import paragraphs
from perdure.context.text.plural import counted
from perdure.edges.session import keys
from perdure.edges.session.branching import completed
from perdure.edges.session.encode import encode_message
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import newer, parse_header, reading
from perdure.edges.session.lines import iso
from perdure.edges.session.links import is_subagent, lineage, link_of, named
from perdure.edges.session.scan import BOM, FIRST_BLOCK, read
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile, UsageError
from perdure.looking.target import Target, existing, find

LONGEST_HEADER = 256 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions are listed. `children`: subagents', too; `every`: what `/new` put aside as well."""

    agent: str | None = None
    limit: int | None = None
    children: bool = False
    every: bool = False


def run_list(*, wanted: Wanted, state: Path | None, as_json: bool) -> int:
    """The sessions of a state folder, the latest first.

    Where the index knows a file as it is, it isn't opened; else its first block is read. Of subagents the
    tail is: how they ended stands there.
    """
    if wanted.limit is not None and wanted.limit < 1:
        raise UsageError(f"--limit {wanted.limit}: a number of sessions from 1 on")
    found = existing(state)
    counts = looking.counted(found)
    rows, hidden = _chosen(looking.rows(found), wanted)
    listed = [_listed(row, counts) for row in rows]
    if as_json:
        emit({"sessions": listed})
    elif listed:
        _print_list(listed)
    else:
        say(f"{found.root}: no sessions")
    if hidden:
        warn(f"perdure: not shown: {', '.join(hidden)}")
    return 0


def _chosen(rows: list[looking.Row], wanted: Wanted) -> tuple[list[looking.Row], list[str]]:
    """Every filter first, the limit last; and what is hidden, counted. A filter by name hides nothing."""
    if wanted.agent is not None:
        rows = [row for row in rows if row.key is not None and keys.agent_of(row.key) == wanted.agent]
    hidden = []
    if not (wanted.children or wanted.every):
        shown = [row for row in rows if row.key is None or not is_subagent(row.key)]
        if less := len(rows) - len(shown):
            hidden.append(f"{counted(less, 'session')} of subagents (--children)")
        rows = shown
    if wanted.every:
        both = [each for row in rows for each in (row, *looking.put_aside(row))]
        rows = sorted(both, key=lambda row: (-row.mtime_ns, row.path))
    if wanted.limit is not None and len(rows) > wanted.limit:
        hidden.append(f"{counted(len(rows) - wanted.limit, 'older session')} (--limit)")
        rows = rows[: wanted.limit]
    return rows, hidden


def _print_list(listed: list[dict[str, Any]]) -> None:
    rows: list[tuple[str, ...]] = [("session", "name", "entries", "size", "updated (UTC)", "remarks")]
    for entry in listed:
        told = [f"{entry['state']}, child of {entry['parent'] or 'nobody known'}"] if entry["state"] else []
        told += [problem["kind"] for problem in entry["problems"]]
        told += ["put aside by /new"] if entry["kind"] == "put_aside" else []
        told += [f"{entry['earlier']:,} earlier, put aside by /new"] if entry["earlier"] else []
        key = entry["key"] or entry["file"]
        count = "-" if entry["entries"] is None else f"{entry['entries']:,}"
        when = entry["updated"][:19].replace("T", " ")
        rows.append((key, entry["name"] or "", count, size(entry["bytes"]), when, ", ".join(told)))
    if not any(row[1] for row in rows[1:]):
        rows = [(row[0], *row[2:]) for row in rows]
    say(table(rows, frozenset({len(rows[0]) - 4, len(rows[0]) - 3})))


def _listed(row: looking.Row, counts: looking.Known) -> dict[str, Any]:
    known = counts.get((row.key or "", row.size, row.mtime_ns)) if not row.aside else None
    line = lineage(row.key or "", Path(row.path))
    return {
        "key": row.key,
        "name": known.name if known else None,
        "kind": _kind(row),
        "parent": line.parent if line else None,
        "state": line.state if line else None,
        "file": row.path,
        "entries": known.entries if known else None,
        "bytes": row.size,
        "updated": iso(row.updated),
        "earlier": row.earlier,
        "problems": _problems(row, known is not None),
    }


def _kind(row: looking.Row) -> str:
    if row.aside:
        return "put_aside"
    return "subagent" if row.key is not None and is_subagent(row.key) else "session"


def _problems(row: looking.Row, known: bool) -> list[dict[str, str]]:
    """What can be told without reading the file: its name, its first line, its lock.

    `known`: the index has read this very file, so that its first line is a good one.
    """
    found = []
    if row.key is None:
        found.append({"kind": "foreign_name", "detail": "the file's name is not that of a session key"})
    if not known and (wrong := _header_problem(row)) is not None:
        found.append(wrong)
    if pid := looking.awake(row):
        found.append({"kind": "locked", "detail": f"awake in process {pid}"})
    return found


def _header_problem(row: looking.Row) -> dict[str, str] | None:
    if not stat.S_ISREG(row.mode):
        what = _NAMED.get(stat.S_IFMT(row.mode), "a device")
        return {"kind": "not_a_file", "detail": f"{what}, not a file"}
    if not row.size:
        return {"kind": "empty", "detail": "the file is empty: a message to this key begins the session"}
    try:
        with reading(row.path) as file:
            start = read(file.fd, min(file.size, FIRST_BLOCK), 0).removeprefix(BOM).lstrip()
    except UnreadableFile as error:
        return {"kind": "bad_header", "detail": str(error).removeprefix(f"{row.path}: ")}
    line = start.split(b"\n", 1)[0]
    header = parse_header(line)
    if header is not None and (wrong := newer(header.version)):
        return {"kind": "newer_version", "detail": wrong}
    begins = line.startswith(b"{") and b'"session"' in line
    return None if begins else {"kind": "bad_header", "detail": "no session header"}


_NAMED = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


# --- show -----------------------------------------------------------------------------------------


def run_show(target: str, *, state: Path | None, as_json: bool) -> int:
    """The view as a transcript: summary first, then every message since, as it is stored."""
    found = find(target, state)
    patience(found.path)
    opened = completed(open_session(found.path))
    if as_json:
        emit(_as_json(found, opened))
    else:
        _print(found, opened)
    return 0


def _earlier(target: Target) -> list[Path]:
    return looking.earlier(target.path) if target.key is not None else []


def _as_json(target: Target, opened: Opened) -> dict[str, Any]:
    return {
        "key": target.key,
        "file": os.fspath(target.path),
        "session": opened.session_id,
        "name": opened.name,
        "cwd": opened.cwd,
        "leaf": opened.leaf,
        "compaction": opened.compaction,
        "link": _link(target, opened),
        **kindred(opened.relatives),
        "earlier": [os.fspath(path) for path in _earlier(target)],
        "waiting": [{"entry": p.entry, "sender": p.letter.sender} for p in opened.pending],
        "messages": [
            {"entry": item.entry, "message": msgspec.Raw(encode_message(item.message))}
            for item in opened.items
        ],
    }


def _link(target: Target, opened: Opened) -> dict[str, Any] | None:
    """Where the session came from; nothing that is shown is read from there."""
    key = target.key or named(os.path.abspath(target.path))
    found = link_of(key, opened.parent_session)
    return None if found is None else {"kind": found.kind, "key": found.key, "file": found.file}


def _print(target: Target, opened: Opened) -> None:
    name = f" ({one_line(opened.name)})" if opened.name else ""
    say(f"{target.key or target.path}{name}: {counted(len(opened.items), 'message')} in view")
    for path in _earlier(target):
        say(f"an earlier session, put aside by /new: {path}")
    if wrong := newer(opened.version):
        say(f"read as far as it is known: {wrong}")
    for item in opened.items:
        say()
        for line in paragraphs(item):
            say(line.strip("\n"))
    for pending in opened.pending:
        say()
        say(f"waiting for its turn: a message of {one_line(pending.letter.sender)} [{pending.entry}]")
