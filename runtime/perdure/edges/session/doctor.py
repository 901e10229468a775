"""The doctor's examination of one file: all damage and notes with their byte positions; nothing is changed.

Works on a bare file, ours or foreign, without a host. Repair is `mend`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from perdure.edges.session import checks
from perdure.edges.session.header import newer
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.lock import holder_of
from perdure.edges.session.problems import Problem, problem
from perdure.errors import UnreadableFile
from perdure.records import Record

HEALTHY, DAMAGED, UNREADABLE = 0, 1, 2


class Report(Record):
    """What was found in a file, in the order of its bytes."""

    file: str
    format: str
    entries: int
    problems: tuple[Problem, ...] = ()
    fixed: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing is damaged; notes don't count."""
        return not any(found.severity == "damage" for found in self.problems)

    def builtins(self) -> dict[str, Any]:
        """The JSON contract of `perdure doctor --json`."""
        return {
            "file": self.file,
            "format": self.format,
            "entries": self.entries,
            "healthy": self.healthy,
            "problems": [_builtins(found) for found in self.problems],
            "fixed": list(self.fixed),
        }


def _builtins(found: Problem) -> dict[str, Any]:
    place = {"kind": found.kind, "severity": found.severity, "line": found.line, "byte": found.byte}
    return place | {"detail": found.detail, "fix": found.fix}


def exit_status(report: Report) -> int:
    """0 healthy, 1 damaged. (2, unreadable, is an `UnreadableFile` instead of a report.)"""
    return HEALTHY if report.healthy else DAMAGED


def examine(
    path: str | PathLike[str],
    *,
    now_ms: int = 0,
    has_evidence: Callable[[str], bool] | None = None,
    journal_pending: bool = False,
    put_aside: Sequence[Path] = (),
) -> Report:
    """Read a file whole and report. Raises `UnreadableFile`, in one line, for what is no session.

    `now_ms` (since 1970) decides whether a lock is too old to count; 0: none is. `has_evidence(digest)`
    looks into the state folder; without it evidence isn't checked. `journal_pending`: a start would replay
    lines of it; `put_aside`: where lines are that a replay did not put back.
    """
    loaded = load(path)
    if wrong := newer(loaded.header.version):
        raise UnreadableFile(f"{loaded.path}: {wrong}")
    notes = [*_notes(loaded, now_ms), *_journal(journal_pending, put_aside)]
    found = [*loaded.problems, *notes, *_checks(loaded, has_evidence)]
    found.sort(key=lambda each: (each.byte, each.line))
    return Report(loaded.path, f"session v{loaded.header.version}", loaded.count, tuple(found))


def _checks(loaded: Loaded, has_evidence: Callable[[str], bool] | None) -> Iterator[Problem]:
    with loaded.reading():
        moved = checks.archive(loaded)
        yield from checks.repeated(loaded)
        yield from checks.missing_parents(loaded)
        yield from checks.cycles(loaded)
        yield from checks.bodies(loaded, has_evidence)
        yield from checks.lost_segments(loaded, moved)
        yield from checks.compactions(loaded, moved)


def _notes(loaded: Loaded, now_ms: int) -> Iterator[Problem]:
    version = loaded.header.version
    if version < 3:
        detail = (
            f"version {version} of the format: it becomes version 3, with a backup, before the first append"
        )
        yield problem("old_version", 1, 0, detail)
    if (pid := holder_of(Path(loaded.path), now_ms)) is not None:
        yield problem("locked", 0, 0, f"the program with pid {pid} holds the session's lock")


def _journal(pending: bool, put_aside: Sequence[Path]) -> Iterator[Problem]:
    if pending:
        detail = "the journal holds lines that may not have reached this file: the next start of a host looks"
        yield problem("journal_pending", 0, 0, detail)
    for place in put_aside:
        detail = f"lines that a replay of the journal did not put into a changed file are kept in {place}"
        yield problem("journal_pending", 0, 0, detail)
