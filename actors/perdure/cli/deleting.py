"""`perdure sessions delete`: a session goes for good, and what went is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure.actors.arguments import a_key
from perdure.cli.output import emit, say, size, warn
from perdure.cli.owning import Shop, now_ms, owning
from perdure.cli.remote.address import Address, running
from perdure.cli.remote.client import LONG, asked
from perdure.cli.remote.client import session as path_of
from perdure.context.text.plural import counted
from perdure.edges.erasing import Erased, Piece, belongings, size_of
from perdure.edges.session import keys, links
from perdure.edges.session.lock import holder_of
from perdure.errors import Locked, SessionNotFound
from perdure.looking.target import existing


def run(key: str, *, dry_run: bool, state: Path | None, as_json: bool) -> int:
    """Exit 0 once it is gone (or would be). Raises `Locked` where anybody has it, or one of its subagents."""
    a_key(key)
    folder = existing(state)
    at = running(state)
    if dry_run:
        every = _family(folder.sessions, key)
        if at is None:
            _refuse_locked(folder.sessions, every)
        _tell(key, [_planned(folder.path, each) for each in every], as_json=as_json, dry_run=True)
        return 0
    if at is not None:
        _tell(key, _asked(folder.path, folder.sessions, key, at), as_json=as_json, dry_run=False)
        return 0
    with owning(state) as shop:
        done = [_erase(shop, each) for each in _checked(shop, key)]
    _tell(key, done, as_json=as_json, dry_run=False)
    return 0


def _asked(state: Path, root: Path, key: str, at: Address) -> list[Erased]:
    """By the running host. What there was is read before; of evidence the host alone knows."""
    before = {each: _planned(state, each) for each in _family(root, key)}
    found = asked(at, lambda remote: remote.ask("DELETE", path_of(key), seconds=LONG))
    return [before.get(each, Erased(each)) for each in found["deleted"]]


def _checked(shop: Shop, key: str) -> list[str]:
    """The session behind its subagents, none of them in use."""
    root = shop.folder.sessions
    eraser = shop.eraser()
    every = _family(eraser.root, key)
    _refuse_locked(root, every)
    return every


def _family(root: Path, key: str) -> list[str]:
    if not belongings(root / keys.relative_path(key)):
        raise SessionNotFound(f"{key}: no such session: see `perdure sessions list`")
    return [*reversed(links.spawned(key, links.keyed(root))), key]


def _refuse_locked(root: Path, every: list[str]) -> None:
    for key in every:
        path = root / keys.relative_path(key)
        if pid := holder_of(path, now_ms()):
            raise Locked(f"{key}: in use (session file locked: pid={pid}): stop that program, or wait for it")


def _erase(shop: Shop, key: str) -> Erased:
    done = shop.eraser().erase(key)
    shop.log(
        "session.deleted", session=key, files=len(done.files), evidence=len(done.evidence),
        kept=done.kept, bytes=done.bytes, unread=done.unread,
    )  # fmt: skip
    return done


def _planned(state: Path, key: str) -> Erased:
    """What would go of one session, evidence apart: who else refers to it is read when it goes."""
    path = state / "sessions" / keys.relative_path(key)
    pieces = (Piece(os.fspath(each.relative_to(state)), size_of(each)) for each in belongings(path))
    return Erased(key, tuple(pieces))


def _tell(key: str, done: list[Erased], *, as_json: bool, dry_run: bool) -> None:
    for each in done:
        if each.unread:
            warn(f"perdure: no evidence was deleted, for others may refer to it: {each.unread}")
    if as_json:
        emit(
            {"key": key, "done": not dry_run, "dry_run": dry_run, "sessions": [_dict(each) for each in done]}
        )
        return
    for each in done:
        would = "would delete" if dry_run else "deleted"
        evidence = f", {counted(len(each.evidence), 'output')} of evidence" if each.evidence else ""
        kept = f" ({each.kept:,} more that others refer to stay)" if each.kept else ""
        say(f"{each.key}: {would} {counted(len(each.files), 'file')}, {size(each.bytes)}{evidence}{kept}")
        for piece in (*each.files, *each.evidence):
            say(f"  {piece.path}  {size(piece.bytes)}")
    if later := sorted({name for each in done for name in each.pending}):
        say(f"what plugins keep of it goes at the next start of a host: {', '.join(later)}")


def _dict(each: Erased) -> dict[str, Any]:
    return {
        "key": each.key,
        "files": [{"path": piece.path, "bytes": piece.bytes} for piece in each.files],
        "evidence": [{"path": piece.path, "bytes": piece.bytes} for piece in each.evidence],
        "evidence_kept": each.kept,
        "index_rows": each.rows,
        "bytes": each.bytes,
        "unread": each.unread or None,
        "pending": list(each.pending),
    }
