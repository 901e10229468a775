"""How far memory has come in a session: what was flushed, what was captured. Under the session's id."""

from __future__ import annotations

from perdure.records import Record


class Flushing(Record):
    """One flush: numbers, no text. `cycle`: the compaction behind which it was made ("": none).

    `upto`: the last entry that memory has seen. `how`: done, failed, skipped; `why`, where it was not done.
    `left_out`: messages that had no room.
    """

    session: str
    at: int
    cycle: str = ""
    upto: str = ""
    how: str = "done"
    why: str = ""
    reason: str = "soft"
    messages: int = 0
    left_out: int = 0
    calls: int = 0
    notes: int = 0
    characters: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


class Captured(Record):
    """`upto`: the last entry that the memory has taken in; `tries` that failed on what comes behind it."""

    session: str
    upto: str = ""
    tries: int = 0
