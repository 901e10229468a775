"""How many bytes an awake session owns: a handful of sums over sizes that are kept up to date anyway.

Nothing is walked, so it can be asked after every message. The constants are what CPython takes for the
objects around a text; `tests/host/test_memory_count.py` holds the count against what the process really
took, and says how far the two may lie apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.records import Block, Image, Text

if TYPE_CHECKING:
    from perdure.actors.session import Session
    from perdure.contracts import Letter

OPENING = 8 * 1024  # of a session whose file is being opened
AWAKE = 14 * 1024  # its parts, its file and lock, its prompt's frame
ITEM = 700  # records, tuples and ids of one entry in the view, its place in the file, its measures
VIEW = 1.5  # of its lines: a text that isn't ASCII keeps its UTF-8 beside it once it was encoded
REQUEST = 1.2  # of what the last request was made of: room that a growing buffer takes ahead
SENT = 450  # more for each message of the last request: its chunk, its check sum, what it was sent as
RUNNING = 24 * 1024  # task, scope and waiters of a turn, buffers of its stream
DECISION, RECENT, LETTER = 260, 260, 1_024  # what is remembered, apart from texts
NOTE = 16 * 1024  # a message that asks for no turn, about
EVENT = 1_024  # an event in a listener's buffer


def owned(session: Session) -> int:
    """Bytes that go when this session sleeps.

    The view counts by its lines in the file, its request as it was encoded: once for the messages and once
    more for what is kept joined. A turn holds the body it has sent, and a worker the messages it was given:
    each counts as one more copy.
    """
    if session.state in ("opening", "closed"):
        return OPENING
    t, turns = session.transcript, session.turns
    memo = turns.scratch.memo
    held = AWAKE + ITEM * len(t.items) + int(VIEW * t.view_bytes) + turns.pictures.held
    held += int(REQUEST * memo.held) + SENT * len(memo.chunks) + 2 * len(session.environment.system)
    held += DECISION * len(t.decisions) + RECENT * len(t.recent)
    if t.pending:
        held += sum(weight(waiting.letter) for waiting in t.pending.values())
    if session.state == "running":
        held += RUNNING + memo.held
    if not session.compacting.at_rest:
        held += t.view_bytes
    return held


def weight(letter: Letter) -> int:
    """Bytes of a letter, wherever it waits."""
    return LETTER + sum(map(_chars, letter.content))


def _chars(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    return len(block.data) if isinstance(block, Image) else LETTER
