"""`perdure doctor`: what is damaged in a session file, and what is only worth knowing.

Changes nothing, unless told to mend: then damaged lines are rewritten, and the old file is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.cli.output import emit, fail, patience, say
from perdure.context.text.plural import counted
from perdure.edges.journal import aside
from perdure.edges.journal.form import identity
from perdure.edges.journal.replay import pending
from perdure.edges.placement import boot_id
from perdure.edges.session.doctor import UNREADABLE, Report, examine, exit_status
from perdure.edges.session.mend import MENDED, Mended, mend
from perdure.edges.session.problems import Problem
from perdure.errors import Locked, StorageFailed, UnreadableFile, UsageError
from perdure.looking.target import find

SHOWN = 100  # problems of one severity printed for a person


def run(target: str, *, fix: bool = False, state: Path | None = None, as_json: bool) -> int:
    """Print the report. 0 healthy (notes may be there), 1 damage, 2 unreadable (or not to be mended)."""
    name, done = target, Mended()
    try:
        path = find(target, state).path
        name = str(path)
        patience(path)
        now = time.time_ns() // 1_000_000
        if fix:
            done = mend(path, now)
        due, kept = _journal(path)
        report = examine(path, now_ms=now, has_evidence=_evidence(path), journal_pending=due, put_aside=kept)
        report = replace(report, fixed=tuple(map(_told, done.fixed)))
    except (UnreadableFile, UsageError, Locked, StorageFailed) as error:
        if as_json:
            emit(_unreadable(name, str(error)))
        fail(str(error), UNREADABLE)
    if as_json:
        emit(report.builtins())
    else:
        show(report)
        _show_mended(done)
    return exit_status(report)


def _told(found: Problem) -> str:
    return f"{found.kind} at line {found.line}, byte {found.byte}: {found.detail}"


def _show_mended(done: Mended) -> None:
    for found in done.fixed[:SHOWN]:
        say(f"  mended: {_told(found)}")
    if done.backup:
        say(f"  The file as it was is kept as {done.backup}")


def _evidence(path: Path) -> Callable[[str], bool] | None:
    """Whether evidence is kept, for a file of a state folder; a bare file has none beside it."""
    state = _state_of(path)
    if state is None:
        return None
    root = state / "evidence"
    return lambda digest: (root / digest[:2] / digest[2:4] / digest[4:]).is_file()


def _state_of(path: Path) -> Path | None:
    """The state folder that the file belongs to."""
    for folder in Path(os.path.abspath(path)).parents:
        if folder.name == "sessions" and (folder.parent / "shard.lock").exists():
            return folder.parent
    return None


def _journal(path: Path) -> tuple[bool, list[Path]]:
    """Whether a start would replay lines of the file, and where lines are that one did not put back."""
    state = _state_of(path)
    if state is None or not (state / "journal").is_dir():
        return False, []
    journal, key = state / "journal", os.path.relpath(os.path.abspath(path), state)
    return key in pending(journal, identity(journal, boot_id())), aside.of(journal, key)


def _unreadable(path: str, why: str) -> dict[str, Any]:
    """The same object for what is no session: a program reads one shape."""
    detail = why.removeprefix(f"{path}: ")
    problem = {"kind": "unreadable", "severity": "damage", "line": 0, "byte": 0, "detail": detail, "fix": ""}
    return {
        "file": path,
        "format": None,
        "entries": None,
        "healthy": False,
        "problems": [problem],
        "fixed": [],
    }


def show(report: Report) -> None:
    """For a person: the verdict, the damage with its places, then the notes."""
    damage = [found for found in report.problems if found.severity == "damage"]
    notes = [found for found in report.problems if found.severity == "note"]
    verdict = "healthy" if report.healthy else f"{len(damage):,} places are damaged"
    if len(damage) == 1:
        verdict = "one place is damaged"
    say(f"{report.file}: {report.format}, {counted(report.entries, 'entry')}: {verdict}")
    _list("damage", damage)
    if any(found.kind in MENDED for found in damage):
        say("  `perdure doctor FILE --fix` rewrites such lines and keeps the file as it was beside it.")
    _list("note", notes)


def _list(word: str, problems: list[Problem]) -> None:
    for found in problems[:SHOWN]:
        place = f" line {found.line:,}, byte {found.byte:,}:" if found.line else ""
        told = f": {found.fix}" if found.fix else ""
        say(f"  {word}: {found.kind}:{place} {found.detail}{told}")
    if len(problems) > SHOWN:
        say(f"  {word}: … and {len(problems) - SHOWN:,} more: `--json` lists all")
