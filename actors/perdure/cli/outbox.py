"""`perdure outbox list`, `retry` and `drop`: by the session files, which are the truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.actors import outgoing as rules
from perdure.cli import folder as looking
from perdure.cli.changing import owned
from perdure.cli.output import emit, one_line, say, table
from perdure.cli.owning import now_ms
from perdure.edges.index import SessionIndex
from perdure.edges.session import lines
from perdure.edges.session.facts import Outgoing
from perdure.edges.session.files import Held, Listed
from perdure.edges.session.survey import survey
from perdure.edges.session.tail import open_session
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError
from perdure.looking.target import existing, find


def run_list(key: str | None, *, state: Path | None, as_json: bool) -> int:
    """Exit 1 where something waits for a person."""
    found = [told for name, path in _files(key, state) for told in _read(name, path)]
    well = all(each["state"] in ("waiting", "begun") for each in found)
    if as_json:
        emit({"outbox": found})
    elif not found:
        say("nothing is on its way out")
    else:
        rows: list[tuple[str, ...]] = [("session", "entry", "event", "by", "state", "attempts", "why")]
        for each in found:
            named = [one_line(str(each[name])) for name in ("key", "entry", "event", "to", "state")]
            rows.append((*named, f"{each['tries']:,}", one_line(each["why"])))
        say(table(rows, frozenset({5})))
    return 0 if well else 1


def _files(key: str | None, state: Path | None) -> Iterator[tuple[str, str]]:
    if key is not None:
        yield key, str(find(key, state).path)
        return
    for row in looking.rows(existing(state)):
        if row.key is not None:
            yield row.key, row.path


def _read(key: str, path: str) -> Iterator[dict[str, Any]]:
    try:
        found = open_session(path).outgoing
    except (PerdureError, OSError):
        return  # `doctor` tells of such a file
    for each in found:
        yield {"key": key} | _told(each)


def _told(each: Outgoing) -> dict[str, Any]:
    return {name: getattr(each, name) for name in each.__struct_fields__}


def run_move(key: str, what: str, entry: str, *, state: Path | None, as_json: bool) -> int:
    """Exit 0 where something was moved."""
    with owned(key, state) as desk:
        moved = rules.moved(desk.held.opened.outgoing, what, entry, now_ms())
        for each in moved:
            _write(desk.held, each)
        if moved and what == "retry":
            _tell_the_next_host(desk.shop.folder, key, desk.held.file.path)
        desk.log("outbox.command", session=key, what=what, answers=len(moved))
    if as_json:
        emit({"key": key, "done": bool(moved), "moved": [_told(each) for each in moved]})
    else:
        done = "sent by the next host" if what == "retry" else "dropped"
        say(f"{key}: {len(moved)} {done}" if moved else f"{key}: nothing to {what}")
    return 0 if moved else 1


def _write(held: Held, each: Outgoing) -> None:
    opened, now = held.opened, now_ms()
    line = lines.outbox_line(
        held.ids.entry(now), opened.leaf, now, each, opened.session_id, held.file.epoch
    )  # fmt: skip
    held.file.append((line,))


def _tell_the_next_host(folder: StateFolder, key: str, path: Path) -> None:
    """The index says which sessions a host begins with; where there is none, one is made by a scan."""
    if not folder.index.exists():
        return
    status = path.stat()
    index = SessionIndex(folder.index)
    try:
        index.put(survey(Listed(key, str(path), status.st_size, status.st_mtime_ns)))
    finally:
        index.close()
