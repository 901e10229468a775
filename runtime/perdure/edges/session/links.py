"""How sessions descend from each other. A link says where one came from; none is a continuation.

`reset`: `/new` put the parent's file aside and began another of the same key. `subagent`: spawned by the
parent's turn. `fork`: a copy of the parent's history, and a session of its own from then on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

from perdure.edges.session import keys
from perdure.edges.session.header import read_header, reading
from perdure.edges.session.tail import open_session
from perdure.errors import PerdureError, UnreadableFile
from perdure.records import Record

Kind: TypeAlias = Literal["reset", "fork", "subagent"]


class Lineage(Record):
    """A subagent's parent (where it is named) and how it stands: the terminal record of its own file, `open`
    while there is none, `unknown` where it runs under no grant of ours.
    """

    parent: str | None
    state: str


class Link(Record):
    """Where a session came from; `key` is `None` where the parent's file is not named by a key."""

    kind: Kind
    key: str | None
    file: str


def is_subagent(key: str) -> bool:
    """Whether a key is that of a session which another one spawned (`agent:<agent>:subagent:…`)."""
    parts = key.split(":")
    return len(parts) > 3 and parts[0] == "agent" and parts[2] == "subagent"


def link_of(key: str | None, parent_session: str | None) -> Link | None:
    """The link that a header's `parentSession` is, for the session of `key`."""
    if not parent_session:
        return None
    parent = named(parent_session)
    if key is not None and parent == key:
        return Link("reset", parent, parent_session)
    return Link("subagent" if key is not None and is_subagent(key) else "fork", parent, parent_session)


def named(file: str) -> str | None:
    """The key of a session file by its path, in whatever state folder it stands, put aside or not."""
    parts = PurePath(file).parts
    if "sessions" not in parts:
        return None
    below = parts[len(parts) - parts[::-1].index("sessions") :]
    if not below:
        return None
    stem = below[-1].split(".", 1)[0]
    try:
        return keys.key_of(PurePath(*below[:-1], stem + keys.SUFFIX))
    except (ValueError, IndexError):
        return None


def parent_of(path: Path) -> str | None:
    """`parentSession` of a file's header; its first block is read. `None` for what is no session."""
    try:
        with reading(path) as file:
            header = read_header(file.fd, file.size)
    except UnreadableFile:
        return None
    return header.parent_session if header is not None else None


def lineage(key: str, path: Path) -> Lineage | None:
    """Of a subagent; `None` for any other session, and for what can't be read. Reads the file's tail."""
    if not is_subagent(key):
        return None
    try:
        found = open_session(path, search=False)
    except (PerdureError, OSError):
        return None
    own = found.relatives.own
    if own is None:
        link = link_of(key, found.parent_session)
        return Lineage(link.key if link is not None else None, "unknown")
    return Lineage(own.grant.parent, "open" if own.ending is None else own.ending.state)


def spawned(key: str, sessions: Iterable[tuple[str, Path]]) -> list[str]:
    """The subagents of a session, and theirs, nearest first. Reads the header of each subagent's file."""
    below: dict[str, list[str]] = {}
    for child, path in sessions:
        link = link_of(child, parent_of(path)) if is_subagent(child) else None
        if link is not None and link.kind == "subagent" and link.key is not None:
            below.setdefault(link.key, []).append(child)
    found = {key: None}
    for each in _descend(key, below):
        found.setdefault(each)
    return list(found)[1:]


def _descend(key: str, below: dict[str, list[str]]) -> Iterator[str]:
    queue, seen = [key], {key}
    while queue:
        for child in below.get(queue.pop(0), []):
            if child not in seen:
                seen.add(child)
                queue.append(child)
                yield child


def keyed(root: Path) -> Iterator[tuple[str, Path]]:
    """Every current session file below `sessions/` with its key; no file is opened."""
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.endswith(keys.SUFFIX) or "." in name[: -len(keys.SUFFIX)]:
                continue
            path = Path(folder, name)
            try:
                yield keys.key_of(path.relative_to(root)), path
            except ValueError:
                continue
