"""What can be wrong with a session file: one record for readers and for the doctor."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from perdure.records import Record

Damage: TypeAlias = Literal[
    "torn", "glued", "nul", "undecodable", "bad_header", "missing_parent", "cycle", "repeated",
    "missing_anchor", "missing_evidence", "missing_segment", "broken_proof", "stale_owner",
]  # fmt: skip
Note: TypeAlias = Literal[
    "unpaired_call", "orphan_result", "empty_content", "no_assistant", "old_version", "foreign_compaction",
    "journal_pending", "locked",
]  # fmt: skip
Kind: TypeAlias = Damage | Note

NOTES: Final = frozenset(get_args(Note))

_FIXES: Final[dict[str, str]] = {
    "torn": "the stub is cut out; whole records beside it stay",
    "glued": "a newline is put between the records",
    "nul": "the padding is cut out",
    "undecodable": "the line is moved to the backup; its children are bridged",
    "bad_header": "a valid header is written as the first line",
    "missing_parent": "the entry is linked to what the view already uses",
    "cycle": "the entry becomes a root",
    "repeated": "the earlier line is left out",
    "missing_anchor": "the compaction keeps nothing before it, as it is read now",
}


class Problem(Record):
    """One finding. `byte` is an absolute offset, `line` counts from 1, `fix` tells what `--fix` does."""

    kind: Kind
    line: int
    byte: int
    detail: str
    fix: str = ""

    @property
    def severity(self) -> Literal["damage", "note"]:
        """Damage makes a file unhealthy, a note does not."""
        return "note" if self.kind in NOTES else "damage"


def problem(kind: Kind, line: int, byte: int, detail: str) -> Problem:
    """A finding with the repair that belongs to its kind."""
    return Problem(kind, line, byte, detail, _FIXES.get(kind, ""))
