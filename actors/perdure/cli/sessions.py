"""`perdure sessions list` and `show`: what is there, and what one of them remembers word for word."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from perdure.cli import folder as looking
from perdure.cli.output import emit, one_line, patience, say, size, table
from perdure.cli.transcript import paragraphs
from perdure.edges.session.encode import encode_message
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import newer, read_header, reading
from perdure.edges.session.lines import iso
from perdure.edges.session.scan import FIRST_BLOCK, read
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.looking.target import Target, existing, find

LONGEST_HEADER = 256 * 1024


def run_list(*, state: Path | None, as_json: bool) -> int:
    """The sessions of a state folder, the latest first. No file is read beyond its first line."""
    found = existing(state)
    counts = looking.counted(found)
    listed = [_listed(row, counts) for row in looking.rows(found)]
    if as_json:
        emit({"sessions": listed})
        return 0
    if not listed:
        say(f"{found.root}: no sessions")
        return 0
    rows: list[tuple[str, ...]] = [("session", "entries", "size", "updated (UTC)", "remarks")]
    for entry in listed:
        told = ", ".join(problem["kind"] for problem in entry["problems"])
        if entry["earlier"]:
            told += f"{', ' if told else ''}{entry['earlier']:,} earlier, put aside by /new"
        name = entry["key"] or entry["file"]
        count = "-" if entry["entries"] is None else f"{entry['entries']:,}"
        rows.append((name, count, size(entry["bytes"]), entry["updated"][:19].replace("T", " "), told))
    say(table(rows, frozenset({1, 2})))
    return 0


def _listed(row: looking.Row, counts: dict[tuple[str, int, int], int]) -> dict[str, Any]:
    return {
        "key": row.key,
        "file": row.path,
        "entries": counts.get((row.key or "", row.size, row.mtime_ns)),
        "bytes": row.size,
        "updated": iso(row.updated),
        "earlier": row.earlier,
        "problems": _problems(row),
    }


def _problems(row: looking.Row) -> list[dict[str, str]]:
    """What can be told without reading the file: its name, its first line, its lock."""
    found = []
    if row.key is None:
        found.append({"kind": "foreign_name", "detail": "the file's name is not that of a session key"})
    if (wrong := _header_problem(row)) is not None:
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
            header = read_header(file.fd, file.size)
            start = read(file.fd, min(file.size, FIRST_BLOCK), 0).lstrip(b"\xef\xbb\xbf \r\n")
    except UnreadableFile as error:
        return {"kind": "bad_header", "detail": str(error).removeprefix(f"{row.path}: ")}
    if header is not None and (wrong := newer(header.version)):
        return {"kind": "newer_version", "detail": wrong}
    begins = start.startswith(b"{") and b'"session"' in start.split(b"\n", 1)[0]
    return None if begins else {"kind": "bad_header", "detail": "no session header"}


_NAMED = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


# --- show -----------------------------------------------------------------------------------------


def run_show(target: str, *, state: Path | None, as_json: bool) -> int:
    """The view as a transcript: summary first, then every message since, as it is stored."""
    found = find(target, state)
    patience(found.path)
    opened = open_session(found.path)
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
        "earlier": [os.fspath(path) for path in _earlier(target)],
        "waiting": [{"entry": p.entry, "sender": p.letter.sender} for p in opened.pending],
        "messages": [
            {"entry": item.entry, "message": msgspec.Raw(encode_message(item.message))}
            for item in opened.items
        ],
    }


def _print(target: Target, opened: Opened) -> None:
    name = f" ({one_line(opened.name)})" if opened.name else ""
    say(f"{target.key or target.path}{name}: {len(opened.items):,} messages in view")
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
