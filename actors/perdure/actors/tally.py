"""What a turn has used so far; it outlives the restarts of the turn."""

from __future__ import annotations

from msgspec import Struct

from perdure.contracts import Recalled
from perdure.records import Usage


class Tally(Struct):
    """One for a turn, whichever restart of it: after an overflow, or with another model."""

    steps: int = 0
    usage: Usage = Usage()
    entries: list[str] = []
    errors: list[str] = []
    partial: str = ""
    asked: int = 0  # wall ms when the latest request was sent
    recalled_for: str = ""  # the user message for which memory was asked
    recalled: tuple[Recalled, ...] = ()
