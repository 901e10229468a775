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

# What the reader makes of each kind until somebody mends it; truncation leaves damaged lines where they are.
_READ_AS: Final[dict[str, str]] = {
    "torn": "the piece costs itself only, whole records beside it are read; an append begins a new line",
    "glued": "each whole record of the line is read",
    "nul": "the padding is skipped",
    "undecodable": "the line costs itself only; what followed it is linked to what stands before it",
    "bad_header": "the entries are read all the same",
    "missing_parent": "the entry is linked to what stands before the hole, and the view shows a gap there",
    "cycle": "the entry is read as a root",
    "repeated": "of lines with one id the last counts; a second header is skipped",
    "missing_anchor": "the compaction is read as one that keeps nothing before it",
}


class Problem(Record):
    """One finding. `byte` is an absolute offset, `line` counts from 1, `fix` tells what is made of it."""

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
    """A finding, with what readers make of its kind."""
    return Problem(kind, line, byte, detail, _READ_AS.get(kind, ""))
